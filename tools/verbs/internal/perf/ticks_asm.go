//go:build amd64 || arm64

package perf

// ticks reads the processor's counter, as perftest does: the system's clock takes a call
// where it cannot be read in the program, which is longer than some messages take.
func ticks() int64
