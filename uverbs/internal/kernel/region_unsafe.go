//go:build linux

package kernel

import (
	"runtime"
	"sync"
	"unsafe"
)

// region is the system's side of a [Mapping]: it must not refer to the
// Mapping, whose cleanup it is the argument of.
type region struct {
	mu   sync.Mutex
	addr unsafe.Pointer
	b    []byte
	gone bool
}

// mapping wraps r. With collect set, r is unmapped when the Mapping becomes
// unreachable.
func (r *region) mapping(collect bool) *Mapping {
	m := NewMapping(r.b, r.detach, r.unmap)
	if collect {
		runtime.AddCleanup(m, func(r *region) { r.unmap() }, r)
	}
	return m
}

// detach replaces what is mapped by zero pages. After unmap it does nothing:
// the addresses may already be somebody else's.
func (r *region) detach() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return nil
	}
	return replaceByZeros(r.addr, len(r.b))
}

func (r *region) unmap() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return nil
	}
	r.gone = true
	return munmap(r.addr, len(r.b))
}
