//go:build amd64 && !race

package cq

import "sync/atomic"

// Counter is a number that one goroutine raises and any may read. Raising it takes one
// plain instruction on amd64, where sync/atomic would emit a locked one.
type Counter struct{ v uint64 }

// Add raises the number by n. One goroutine at a time calls it.
func (c *Counter) Add(n uint64) { c.v += n }

// Load returns the number.
func (c *Counter) Load() uint64 { return atomic.LoadUint64(&c.v) }
