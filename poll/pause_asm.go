//go:build amd64 || arm64

package poll

// pause tells the processor n times, n > 0, that this is a loop that waits: it may give
// what it saves to the other thread of the core. Each takes between a nanosecond and
// some sixty, by the make of the processor.
//
//go:noescape
func pause(n uint32)
