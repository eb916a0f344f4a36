package waiting

import (
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// client sends and measures. It runs in the goroutine of its caller, which owns its thread.
type client struct {
	e      *end
	stop   *stopper
	posted time.Time // the message that is under way
	hist   cq.Histogram
	yield  bool // there is no other processor for the server
}

func newClient(e *end, stop *stopper) *client {
	return &client{e: e, stop: stop, yield: runtime.GOMAXPROCS(0) == 1}
}

// looks is how many polls find nothing between two looks at whether to stop.
const looks = 256

// look polls once and records how long the answers took that came.
func (c *client) look() (answers int, err error) {
	e := c.e
	n, err := e.cq.Poll(e.wcs[:clientBatch])
	if n == 0 || err != nil {
		return 0, err
	}
	if answers, err = e.take(e.wcs[:n]); answers > 0 {
		c.hist.Record(uint64(time.Since(c.posted)))
	}
	return answers, err
}

// collect looks until there are answers.
func (c *client) collect() error {
	for looked := 1; ; looked++ {
		if n, err := c.look(); n > 0 || err != nil {
			return err
		}
		if looked%looks == 0 {
			if err := c.stop.err(); err != nil {
				return err
			}
			if c.yield {
				runtime.Gosched()
			}
		}
	}
}

// clientBatch is how many completions the client takes at a time.
const clientBatch = 32

// post sends a message.
func (c *client) post() error {
	c.posted = time.Now()
	c.e.send()
	return c.e.sq.Flush()
}

// paced sends one message each time that pace has gone by, unless the answer takes longer. With a
// pace of 0 it does not rest.
func (c *client) paced(pace, length time.Duration) error {
	begin := time.Now()
	for due := begin; due.Sub(begin) < length; {
		if err := c.post(); err != nil {
			return err
		}
		if err := c.collect(); err != nil {
			return err
		}
		now := time.Now()
		if due = due.Add(pace); due.Before(now) {
			due = now
		}
		if err := pause(due); err != nil {
			return err
		}
	}
	return nil
}

// dozing is what a sleep takes at least, more or less: less time goes by spinning.
const dozing = 70 * time.Microsecond

// pause waits until a time.
func pause(until time.Time) error {
	if left := time.Until(until); left > dozing {
		if err := sleep(left - dozing); err != nil {
			return err
		}
	}
	for time.Until(until) > 0 {
	}
	return nil
}

// play sends for a time and returns how many messages came back.
func (c *client) play(pace, length time.Duration) (n uint64, err error) {
	c.hist.Reset()
	if err = c.paced(pace, length); err == nil {
		if n = c.hist.Count(); n == 0 {
			err = fmt.Errorf("no message came back within %v", length)
		}
	}
	return n, err
}
