package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// stalledAfter is how long nothing comes before the line of progress says so: a side that
// waits for a message cannot know that its peer has ended.
const stalledAfter = 10 * time.Second

// pingpongProgress says how far a game is of which count counts the messages.
func pingpongProgress(count *atomic.Int64, iters int) func(elapsed time.Duration) string {
	last, at := 0, time.Duration(0) // the message that came last, and when
	return func(elapsed time.Duration) string {
		n := int(count.Load())
		if n != last {
			last, at = n, elapsed
		}
		return progressLine(n, iters, elapsed, elapsed-at)
	}
}

// progressLine says how far a game is, and about how long it still takes; or
// that nothing has come for too long.
func progressLine(n, iters int, elapsed, idle time.Duration) string {
	if idle >= stalledAfter {
		return fmt.Sprintf("%d of %d, nothing for %v: does the other side still run, with the same -n and -s? Ctrl-C ends this one", n, iters, idle.Round(time.Second))
	}
	if n == 0 {
		return fmt.Sprintf("0 of %d, after %v", iters, elapsed.Round(time.Second))
	}
	each := elapsed / time.Duration(n)
	left := each * time.Duration(iters-n)
	return fmt.Sprintf("%d of %d (%d%%), %v each, %v left", n, iters, int64(n)*100/int64(iters), each.Round(10*time.Nanosecond), left.Round(time.Second))
}
