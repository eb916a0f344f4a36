package main

import (
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tty"
)

// What takes less than progressAfter shows no progress.
const (
	progressAfter = time.Second
	progressEvery = 500 * time.Millisecond
)

// showProgress keeps a line on a terminal that says how far something is after some time.
// The function that it returns removes the line.
func showProgress(terminal io.Writer, line func(elapsed time.Duration) string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		begin := time.Now()
		for next, shown := progressAfter, false; ; next, shown = progressEvery, true {
			select {
			case <-quit:
				if shown {
					fmt.Fprint(terminal, tty.Erase)
				}
				return
			case <-time.After(next):
			}
			fmt.Fprint(terminal, tty.Line(line(time.Since(begin))))
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
