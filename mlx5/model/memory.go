package model

// Memory is the address space of the program that uses a device: its requests,
// queues, doorbell records and data. The model checks every address of data
// against the memory regions that the program registered, so a Memory sees no
// others than those, the buffers that queues were made with and what requests of the
// kernel point to. It must fail, not panic, on addresses that are not there.
//
// The model calls it with its lock held, from the goroutine that rang a doorbell
// or made a request, or from a timer's.
type Memory interface {
	// Read copies the len(p) bytes at addr.
	Read(addr uint64, p []byte) error
	// Write copies p to addr.
	Write(addr uint64, p []byte) error
	// Load32 reads the four bytes at addr, which is a multiple of four, in
	// one step and before all reads that follow. The number is big-endian, as
	// doorbell records are.
	Load32(addr uint64) (uint32, error)
	// Publish copies p to addr. Its last four bytes, at a multiple of four,
	// appear in one step and after the others: the owner byte of a completion
	// is among them.
	Publish(addr uint64, p []byte) error
}

// Doorbells are the UAR pages of a program whose stores nobody tells the model of:
// memory that both share, at which the model looks in [File.Poll].
type Doorbells interface {
	// Take returns the eight bytes at an offset of a page, as a big-endian
	// number, and makes them zero in the same step. Zero says that no doorbell
	// was rung there.
	Take(page uint32, offset int) uint64
}
