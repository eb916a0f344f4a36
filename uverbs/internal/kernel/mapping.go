package kernel

import "sync"

// Mapping is a range of memory outside the Go heap: device rings or anonymous
// pages. The addresses stay readable and writable for as long as the Mapping
// is reachable, whatever happens to the device: Detach only changes what is
// behind them. So a poller that meets a Close reads stale or zero words, never
// a fault, provided that it keeps the Mapping alive.
type Mapping struct {
	// Tell, if not nil, is told of stores to a device's registers: of the first
	// eight bytes that were stored at an offset, as a big-endian number, after
	// they were. A device in software does not see them by itself.
	Tell func(off int, value uint64)

	// Fresh, if not nil, is called before memory is read that a device changes all
	// the time: one in software does not do so by itself.
	Fresh func()

	anchor Anchor
	b      []byte
	page   int // size of its pages in bytes, if from [Kernel.Alloc]
	detach func(keep bool) error
	unmap  func() error

	unmapped   sync.Once
	unmapError error
}

// NewMapping makes a Mapping of b. detach replaces the memory at the same
// addresses by private pages: a copy of what is there with keep, else zeros;
// where it was replaced before it does nothing. unmap gives the addresses back,
// at most once. A mapping from [File.Map] is unmapped when it becomes
// unreachable; one from [Kernel.Alloc] only by Unmap, unless it was asked for.
func NewMapping(b []byte, detach func(keep bool) error, unmap func() error) *Mapping {
	return &Mapping{b: b, detach: detach, unmap: unmap}
}

// Bytes is the mapped memory. The caller keeps the Mapping alive while it uses
// the slice.
func (m *Mapping) Bytes() []byte { return m.b }

// Detach gives the device memory back to the kernel and leaves private zero
// pages at the same addresses, which frees the file that was mapped. It may be
// called more than once and beside readers and writers of the memory. When it fails the
// memory is still the device's, until the next one.
func (m *Mapping) Detach() error { return m.detach(false) }

// Keep is Detach, but what was in the memory stays. Nobody but readers, and writers
// whose stores may be lost, is at the memory meanwhile. When it fails the memory is
// still the device's, until Detach.
func (m *Mapping) Keep() error { return m.detach(true) }

// Unmap gives the addresses back. Nothing may use Bytes afterwards.
func (m *Mapping) Unmap() error {
	m.unmapped.Do(func() { m.unmapError = m.unmap() })
	return m.unmapError
}
