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
)

// showProgress keeps a line on a terminal that says how far the game is. The
// function that it returns removes the line.
func showProgress(terminal io.Writer, count *atomic.Int64, iters int) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		begin := time.Now()
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
			fmt.Fprintf(terminal, "\r\x1b[K%s", progressLine(int(count.Load()), iters, time.Since(begin)))
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// progressLine says how far a game is, and about how long it still takes.
func progressLine(n, iters int, elapsed time.Duration) string {
	if n == 0 {
		return fmt.Sprintf("0 of %d, after %v", iters, elapsed.Round(time.Second))
	}
	each := elapsed / time.Duration(n)
	left := each * time.Duration(iters-n)
	return fmt.Sprintf("%d of %d (%d%%), %v each, %v left", n, iters, int64(n)*100/int64(iters), each.Round(10*time.Nanosecond), left.Round(time.Second))
}
