package uverbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Memory is page-aligned memory outside the Go heap, made for registration: it
// does not move, the garbage collector never touches it, and no other Go object
// shares its pages. It belongs to whoever allocated it: neither Device.Close
// nor the garbage collector unmaps it. Its methods may be called from any
// goroutine; what is in the bytes is yours to synchronise.
type Memory struct {
	kernel  kernel.Kernel
	mapping *kernel.Mapping
	bytes   []byte

	mu            sync.Mutex
	registrations int
	closed        bool
}

// MemoryOptions are the choices of Alloc. The zero value, and nil, mean
// ordinary pages, wherever the system puts them.
type MemoryOptions struct {
	// HugePages asks for pages of the system's huge page size. Alloc fails
	// when not enough of them were set aside (vm.nr_hugepages).
	HugePages bool
	// Node is the NUMA node that the memory is to lie on: Device.NUMANode,
	// or OnNode of a number. All of it does, or Alloc fails; it touches
	// every page to make sure. The system does not move the memory later.
	Node NUMANode

	collected bool // see kernel.AllocOptions
}

// allocated finds the Memory that a slice lies in, so that it is not unmapped
// while registered.
var allocated struct {
	sync.Mutex
	byStart map[uint64]*Memory
}

// Alloc maps size bytes, rounded up to whole pages, zeroed. Close gives them
// back.
//
// The program may start children, by os/exec or otherwise, also during traffic.
// Those that os/exec starts borrow the program's memory until they run their own
// code, and change nothing in it. Where a child gets a copy of the memory, by a
// fork of C code, or of os/exec when SysProcAttr asks for a user namespace, it
// does not get this memory: to share a registered page with a child, Linux from
// 5.12 on copies it during the fork, which fails when there is no room, and
// before may leave the parent with another page than the device.
func Alloc(size int, opts *MemoryOptions) (*Memory, error) {
	return allocOn(kernel.Host(), size, opts)
}

func allocOn(k kernel.Kernel, size int, opts *MemoryOptions) (*Memory, error) {
	if size <= 0 {
		return nil, invalid("allocate %d bytes: the size must be positive", size)
	}
	var o MemoryOptions
	if opts != nil {
		o = *opts
	}
	m, err := o.alloc(k, size)
	if err != nil {
		return nil, fmt.Errorf("goverbs: allocate %d bytes%s: %w", size, o.where(), err)
	}
	mem := &Memory{kernel: k, mapping: m, bytes: m.Bytes()[:size:size]}
	allocated.Lock()
	defer allocated.Unlock()
	if allocated.byStart == nil {
		allocated.byStart = make(map[uint64]*Memory)
	}
	allocated.byStart[address(mem.bytes)] = mem
	return mem, nil
}

// alloc maps memory as the options say.
func (o *MemoryOptions) alloc(k kernel.Kernel, size int) (*kernel.Mapping, error) {
	node, placed := o.Node.Number()
	if placed {
		if err := checkNode(k.Sysfs(), node); err != nil {
			return nil, err
		}
	}
	m, err := k.Alloc(size, kernel.AllocOptions{HugePages: o.HugePages, Placed: placed, Node: node, Collected: o.collected})
	if err != nil {
		return nil, o.explain(err)
	}
	if placed {
		if err := o.checkPlace(k, m, node); err != nil {
			m.Unmap()
			return nil, err
		}
	}
	return m, nil
}

// checkPlace makes sure that memory lies where it was asked to.
func (o *MemoryOptions) checkPlace(k kernel.Kernel, m *kernel.Mapping, node int) error {
	nodes, err := k.Nodes(m)
	if err != nil {
		return o.explain(err)
	}
	if nodes[node] == len(m.Bytes()) {
		return nil
	}
	hint := ""
	if o.HugePages {
		hint = fmt.Sprintf("; /sys/devices/system/node/node%d/hugepages sets aside huge pages of the node", node)
	}
	return fmt.Errorf("%w: of %d bytes %s%s", syscall.ENOMEM, len(m.Bytes()), describeNodes(nodes), hint)
}

// where says in an error what was asked for besides bytes.
func (o *MemoryOptions) where() string {
	s := ""
	if o.HugePages {
		s = " in huge pages"
	}
	if o.Node != (NUMANode{}) {
		s += " on " + o.Node.String()
	}
	return s
}

// explain adds the causes that people look for.
func (o *MemoryOptions) explain(err error) error {
	_, placed := o.Node.Number()
	switch {
	case errors.Is(err, kernel.ErrNotLinux):
		return fmt.Errorf("%w on this system: Linux has it", ErrNotSupported)
	case o.HugePages && isErrno(err, syscall.ENOMEM):
		return fmt.Errorf("%w (vm.nr_hugepages sets huge pages aside)", err)
	case !placed:
		return err
	case isErrno(err, syscall.ENOSYS):
		return fmt.Errorf("%w: the kernel was built without NUMA: %w", ErrNotSupported, err)
	case isErrno(err, syscall.EPERM):
		return fmt.Errorf("%w (container runtimes allow placement with CAP_SYS_NICE)", err)
	case isErrno(err, syscall.EINVAL):
		return fmt.Errorf("%w (the process may not use the node: Mems_allowed_list in /proc/self/status says which it may)", err)
	}
	return err
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

// Nodes says how many bytes of the memory, in whole pages, lie on which NUMA
// node. Pages that were not touched yet, nor registered, lie on none.
func (m *Memory) Nodes() (map[int]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("goverbs: nodes of memory: %w", os.ErrClosed)
	}
	nodes, err := m.kernel.Nodes(m.mapping)
	if err != nil {
		o := MemoryOptions{Node: OnNode(0)} // for what may be wrong with nodes
		return nil, fmt.Errorf("goverbs: nodes of memory of %d bytes: %w", len(m.bytes), o.explain(err))
	}
	return nodes, nil
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
