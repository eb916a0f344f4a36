package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/perf"
)

// showPerfProgress keeps a line on a terminal that says how far the measurement of a size
// is, if it takes long. The function that it returns removes the line.
func showPerfProgress(terminal io.Writer, count *atomic.Int64, c *perf.Config, size int) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		begin := time.Now()
		for next, shown := progressAfter, false; ; next, shown = progressEvery, true {
			select {
			case <-quit:
				if shown {
					fmt.Fprint(terminal, "\r\x1b[K")
				}
				return
			case <-time.After(next):
			}
			fmt.Fprintf(terminal, "\r\x1b[K%s", perfProgressLine(count.Load(), c, size, time.Since(begin)))
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// perfProgressLine says how far it is after some time.
func perfProgressLine(n int64, c *perf.Config, size int, elapsed time.Duration) string {
	elapsed = elapsed.Round(100 * time.Millisecond)
	if c.Duration > 0 {
		return fmt.Sprintf("%d bytes: %d messages, %v of %v", size, n, elapsed, c.Duration)
	}
	of := int64(c.Iters) * int64(c.QPs)
	if c.Bidirectional && c.Test.Verb == perf.Send {
		of *= 2
	}
	return fmt.Sprintf("%d bytes: %d messages of %d, %v", size, n, of, elapsed)
}
