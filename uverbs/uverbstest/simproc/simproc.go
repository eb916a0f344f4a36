package simproc

import (
	"fmt"
	"syscall"
)

// Options are the choices of [Serve]. Nil is the zero value.
type Options struct {
	// NoMount starts programs without namespaces and mounts, as the package comment says.
	NoMount bool
	// Strict acts only on queues whose doorbell was seen. A doorbell that a second one on
	// the same register hides before this process looks is then lost, so it
	// is for programs with one queue pair and one completion queue a page. Who
	// forgets a doorbell is found out.
	Strict bool
}

// Stats are what a server has done since it began.
type Stats struct {
	// Calls are system calls that programs were answered, Opens device files.
	Calls, Opens uint64
	// Looks are looks at the registers of an open device, Doorbells those that found one.
	Looks, Doorbells uint64
	// Events are records that were put to event files.
	Events uint64
	// Open are device files that are open now.
	Open int
}

// ExitError is a program that did not end with status 0.
type ExitError struct {
	// Code is the exit status, -1 of a program that a signal ended.
	Code int
	// Signal is what ended it, 0 if none did.
	Signal syscall.Signal
}

// Error says how it ended.
func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("simproc: the program was ended by a signal: %v", e.Signal)
	}
	return fmt.Sprintf("simproc: the program ended with exit status %d", e.Code)
}
