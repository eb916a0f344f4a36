package model

import "github.com/goverbs/goverbs/abi/request"

// Tap listens to what passes between programs and their devices, byte by byte: [Model.Trace]
// tells what it means. Functions that are nil are not called. The others are called with the
// model's lock held, and must neither block nor call the model, as with Trace.
type Tap struct {
	// Memory makes of a program's memory the one that its device uses, for every file that is
	// opened from now on. It may listen, but passes on what it is asked.
	Memory func(program string, mem Memory) Memory
	// Request is told of an ioctl before anything is done. Its bytes are at addr of mem.
	// The [IoctlEvent] of Trace comes when the answer is there.
	Request func(program string, mem request.Memory, addr uint64)
	// Doorbell is told of a store to a register that the device has seen, before it
	// acts: the arguments are those of [File.Ring].
	Doorbell func(program string, page uint32, offset int, value uint64)
}

// Tap listens from now on; the zero value ends that, but for the memory of files that
// are open.
func (m *Model) Tap(t Tap) {
	m.enter()
	defer m.leave()
	m.tap = t
}
