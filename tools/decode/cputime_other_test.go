//go:build !linux

package decode

import "time"

var started = time.Now()

// cpuTime is the time of the clock, where the tests do not ask for the
// processor's.
func cpuTime() time.Duration { return time.Since(started) }
