package main

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/verbs/internal/perf"
)

// perfProgressLine says how far the measurement of a size is after some time.
func perfProgressLine(n int64, c *perf.Config, size int, elapsed time.Duration) string {
	elapsed = elapsed.Round(100 * time.Millisecond)
	if c.Duration > 0 {
		return fmt.Sprintf("%s: %s, %v of %v", plural.Of(size, "byte"), plural.Of(n, "message"), elapsed, c.Duration)
	}
	of := int64(c.Iters) * int64(c.QPs)
	if c.Bidirectional && c.Test.Verb == perf.Send {
		of *= 2
	}
	return fmt.Sprintf("%s: %s of %d, %v", plural.Of(size, "byte"), plural.Of(n, "message"), of, elapsed)
}
