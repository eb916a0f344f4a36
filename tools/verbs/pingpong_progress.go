package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A game shorter than progressAfter shows no progress.
const (
	progressAfter = time.Second
	progressEvery = 500 * time.Millisecond
	// stalledAfter is how long nothing comes before the line says so: a side
	// that waits for a message cannot know that its peer has ended.
	stalledAfter = 10 * time.Second
)

// showProgress keeps a line on a terminal that says how far the game is. The
// function that it returns removes the line.
func showProgress(terminal io.Writer, count *atomic.Int64, iters int) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		begin := time.Now()
		last, at := 0, begin // the message that came last, and when
		next := progressAfter
		for shown := false; ; shown = true {
			select {
			case <-quit:
				if shown {
					fmt.Fprint(terminal, "\r\x1b[K")
				}
				return
			case <-time.After(next):
			}
			next = progressEvery
			now, n := time.Now(), int(count.Load())
			if n != last {
				last, at = n, now
			}
			fmt.Fprintf(terminal, "\r\x1b[K%s", progressLine(n, iters, now.Sub(begin), now.Sub(at)))
		}
	}()
	return func() {
		close(quit)
		<-done
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
