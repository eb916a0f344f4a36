//go:build amd64 && !race

package cq

// StoreRelease32 stores v at p after all that the program read and wrote
// before. On amd64 a plain store does that: the hardware keeps the order of
// stores and of loads before them, and the compiler does not move memory
// operations across a store. sync/atomic would emit XCHG, a locked instruction.
// It is for words that providers share with a device in write-back memory.
func StoreRelease32(p *uint32, v uint32) { *p = v }
