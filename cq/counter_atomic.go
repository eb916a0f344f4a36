//go:build !amd64 || race

package cq

import "sync/atomic"

// Counter is a number that one goroutine raises and any may read.
type Counter struct{ v atomic.Uint64 }

// Add raises the number by n. One goroutine at a time calls it.
func (c *Counter) Add(n uint64) { c.v.Store(c.v.Load() + n) }

// Load returns the number.
func (c *Counter) Load() uint64 { return c.v.Load() }
