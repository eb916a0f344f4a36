// Package cputime tells how much processor time was used between two moments.
//
//	before, err := cputime.Process()
//	...
//	after, err := cputime.Process()
//	user, system := after.Since(before)
//	fmt.Println((user + system).Seconds() / after.At.Sub(before.At).Seconds(), "processors")
//
// # Concurrency
//
// All functions may be called from any goroutine. [Thread] means something to a
// goroutine that owns its thread only (runtime.LockOSThread).
//
// # Errors
//
// On systems other than Linux every call fails with an error that wraps
// errors.ErrUnsupported.
package cputime

import "time"

// Stamp is a moment and the processor time that was used until then.
type Stamp struct {
	At time.Time
	// User is the time in the program and System that in the kernel on its behalf. The
	// work of interrupts and of the kernel's own threads is nobody's.
	User, System time.Duration
}

// Used is all processor time until the moment.
func (s Stamp) Used() time.Duration { return s.User + s.System }

// Since is the processor time since an earlier moment.
func (s Stamp) Since(before Stamp) (user, system time.Duration) {
	return s.User - before.User, s.System - before.System
}
