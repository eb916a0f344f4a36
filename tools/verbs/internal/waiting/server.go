package waiting

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/verbs/internal/cputime"
	"github.com/goverbs/goverbs/uverbs"
)

// A server is the side that waits in the way that is measured. Its methods are called one after
// another.
type server interface {
	// begin begins to answer what the client sends.
	begin(v *variant) error
	// mark begins the time over which processor time is counted.
	mark() error
	// end ends answering. cpu is the processor time of the serving process since mark, wall the
	// time that went by. alone is whether nothing else is in it.
	end() (cpu, wall time.Duration, alone bool, err error)
	// flood writes into the client's memory, after a tenth of the time to warm up.
	flood(v *variant, outstanding int, length time.Duration) (flooded, error)
	close() error
}

// localServer serves in a goroutine of this process.
type localServer struct {
	e      *end
	fail   func(error) // told when it cannot go on: the client would wait for ever
	cancel context.CancelFunc
	waiter *poll.Waiter
	done   chan error
	began  cputime.Stamp
}

func (s *localServer) begin(v *variant) error {
	w, err := s.wait(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.waiter, s.cancel, s.done = w, cancel, make(chan error, 1)
	go func() {
		release, err := v.how.own()
		defer release()
		if err == nil {
			err = s.e.serve(ctx, w, v.batch)
		}
		if err != nil {
			s.fail(err)
		}
		s.done <- err
	}()
	return nil
}

// wait makes a waiter. That the way to wait does not suit is an *unsuitableError.
func (s *localServer) wait(v *variant) (*poll.Waiter, error) {
	w, err := poll.NewWaiter(v.how.make(), s.e.cq)
	if err != nil && !errors.Is(err, uverbs.ErrDeviceGone) && !errors.Is(err, os.ErrClosed) {
		err = &unsuitableError{err}
	}
	return w, err
}

func (s *localServer) mark() (err error) {
	s.began, err = cputime.Process()
	return err
}

func (s *localServer) end() (cpu, wall time.Duration, alone bool, err error) {
	now, err := cputime.Process()
	s.cancel()
	err = errors.Join(err, <-s.done, s.waiter.Close())
	return now.Used() - s.began.Used(), now.At.Sub(s.began.At), false, err
}

func (s *localServer) close() error { return s.e.close() }

// serve answers messages until ctx ends. It takes up to batch completions at a time, and
// answers what came with them behind one doorbell.
func (e *end) serve(ctx context.Context, w *poll.Waiter, batch int) error {
	for {
		n, err := w.Wait(ctx, e.wcs[:batch])
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if _, err := e.take(e.wcs[:n]); err != nil {
			return err
		}
		if e.sent == e.arrived {
			continue
		}
		// An answer for which there is no room yet goes out with a later one: its
		// room comes with a completion.
		for room := e.sq.Room(); e.sent < e.arrived && room > 0; room-- {
			e.send()
		}
		if err := e.sq.Flush(); err != nil {
			return err
		}
	}
}

// stopper ends the client when the server fails, or ctx ends.
type stopper struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	set    atomic.Bool // what a loop can look at often
}

func newStopper(ctx context.Context) *stopper {
	s := new(stopper)
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(s.ctx, func() { s.set.Store(true) })
	return s
}

func (s *stopper) err() error {
	if s.set.Load() {
		return context.Cause(s.ctx)
	}
	return nil
}
