//go:build linux

package kernel

import (
	"sync"
	"unsafe"
)

// region is the system's side of a [Mapping]: it must not refer to the
// Mapping, whose cleanup leads to it.
type region struct {
	mu   sync.Mutex
	addr unsafe.Pointer
	b    []byte
	gone bool // unmapped
	ours bool // no device's any more
}

// mapping wraps r. With collect set, r is unmapped when the Mapping becomes
// unreachable.
func (r *region) mapping(collect bool) *Mapping {
	m := NewMapping(r.b, r.detach, r.unmap)
	if collect {
		m.anchor.OnCollect(func() { r.unmap() })
	}
	return m
}

// detach replaces what is mapped by zero pages, or by a copy. After unmap it does
// nothing: the addresses may already be somebody else's.
func (r *region) detach(keep bool) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || r.ours {
		return nil
	}
	if keep {
		err = replaceByCopy(r.addr, r.b)
	} else {
		err = replaceByZeros(r.addr, len(r.b))
	}
	r.ours = err == nil
	return err
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
