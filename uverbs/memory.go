package uverbs

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Memory is page-aligned memory outside the Go heap, made for registration: it
// does not move, the garbage collector never touches it, and no other Go object
// shares its pages. It belongs to whoever allocated it: neither Device.Close
// nor the garbage collector unmaps it. Its methods may be called from any
// goroutine; what is in the bytes is yours to synchronise.
type Memory struct {
	mapping *kernel.Mapping
	bytes   []byte

	mu            sync.Mutex
	registrations int
	closed        bool
}

// MemoryOptions are the choices of Alloc. The zero value, and nil, mean
// ordinary pages.
type MemoryOptions struct {
	// HugePages asks for pages of the system's huge page size. Alloc fails
	// when not enough of them were set aside (vm.nr_hugepages).
	HugePages bool
}

// allocated finds the Memory that a slice lies in, so that it is not unmapped
// while registered.
var allocated struct {
	sync.Mutex
	byStart map[uint64]*Memory
}

// Alloc maps size bytes, rounded up to whole pages, zeroed. Close gives them
// back.
func Alloc(size int, opts *MemoryOptions) (*Memory, error) {
	return allocOn(kernel.Host(), size, opts)
}

func allocOn(k kernel.Kernel, size int, opts *MemoryOptions) (*Memory, error) {
	if size <= 0 {
		return nil, invalid("allocate %d bytes: the size must be positive", size)
	}
	m, err := k.Alloc(size, opts != nil && opts.HugePages)
	if err != nil {
		return nil, fmt.Errorf("goverbs: allocate %d bytes: %w", size, err)
	}
	mem := &Memory{mapping: m, bytes: m.Bytes()[:size:size]}
	allocated.Lock()
	defer allocated.Unlock()
	if allocated.byStart == nil {
		allocated.byStart = make(map[uint64]*Memory)
	}
	allocated.byStart[address(mem.bytes)] = mem
	return mem, nil
}

// Bytes is the memory, or nil after Close.
func (m *Memory) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	return m.bytes
}

// Len is the size in bytes.
func (m *Memory) Len() int { return len(m.bytes) }

// Uint64 is the 64-bit word at byte offset off, for words that a peer changes
// by RDMA atomics. It panics when off is not a multiple of 8 within the memory,
// as an index out of range does.
func (m *Memory) Uint64(off int) *atomic.Uint64 {
	if off < 0 || off&7 != 0 || off > len(m.bytes)-8 {
		panic(fmt.Sprintf("goverbs: Uint64 at offset %d of %d bytes: want a multiple of 8 inside", off, len(m.bytes)))
	}
	return atomicWord(m.bytes[off:])
}

// Close unmaps the memory. Slices of it must not be used afterwards: touching
// them ends the program. It returns ErrInUse while the memory is registered.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("goverbs: close memory: %w", os.ErrClosed)
	}
	if m.registrations > 0 {
		return fmt.Errorf("goverbs: close memory of %d bytes: %w by %s; close those first", len(m.bytes), ErrInUse, plural(m.registrations, "MR"))
	}
	m.closed = true
	allocated.Lock()
	delete(allocated.byStart, address(m.bytes))
	allocated.Unlock()
	return m.mapping.Unmap()
}

// memoryOf finds the Memory that b lies in, and counts a registration of it.
// It returns nil for memory that does not come from Alloc.
func memoryOf(b []byte) (*Memory, error) {
	start := address(b)
	allocated.Lock()
	var found *Memory
	for at, m := range allocated.byStart {
		if start >= at && start < at+uint64(len(m.bytes)) {
			found = m
			break
		}
	}
	allocated.Unlock()
	if found == nil {
		return nil, nil
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.closed {
		return nil, fmt.Errorf("goverbs: register memory: %w", os.ErrClosed)
	}
	found.registrations++
	return found, nil
}

// unregistered takes one registration back.
func (m *Memory) unregistered() {
	m.mu.Lock()
	m.registrations--
	m.mu.Unlock()
}
