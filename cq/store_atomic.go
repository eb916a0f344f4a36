//go:build !amd64 || race

package cq

import "sync/atomic"

// StoreRelease32 stores v at p after all that the program read and wrote
// before. It is for words that providers share with a device in write-back
// memory.
func StoreRelease32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
