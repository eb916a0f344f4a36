package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/internal/plural"
)

// busyPingpong sends a message to and fro, one goroutine polling both ends in turn:
// it needs one processor, and nobody is woken.
func busyPingpong(ctx context.Context, p *pair, rounds int, step *demoStep) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.a.arrived, p.b.arrived = 0, 0
	times := make([]time.Duration, 0, rounds)
	for round := range rounds {
		begin := time.Now()
		if err := p.a.send(round, false); err != nil {
			return err
		}
		if err := p.spin(ctx, func() bool { return p.b.arrived > round }); err != nil {
			return err
		}
		if err := p.b.send(round, true); err != nil {
			return err
		}
		if err := p.spin(ctx, func() bool { return p.a.arrived > round }); err != nil {
			return err
		}
		times = append(times, time.Since(begin))
	}
	if err := p.spin(ctx, func() bool { return p.a.ended == p.a.sent && p.b.ended == p.b.sent }); err != nil {
		return err
	}
	step.roundTrips(times)
	return nil
}

// spin polls both ends until there is what until looks for. It takes what comes to
// either: a request that fails at the one is what the other waits for in vain.
func (p *pair) spin(ctx context.Context, until func() bool) error {
	for looked := 1; !until(); looked++ {
		for _, e := range [...]*end{p.a, p.b} {
			n, err := e.cq.Poll(e.wcs[:])
			if n > 0 {
				err = e.take(n, e == p.a)
			}
			if err != nil {
				return err
			}
		}
		if looked%looks == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			runtime.Gosched() // whoever ends the context may need this processor
		}
	}
	return nil
}

// eventPingpong does the same with two goroutines that sleep until the device
// reports a completion.
func eventPingpong(ctx context.Context, p *pair, rounds int, step *demoStep) error {
	p.a.arrived, p.b.arrived = 0, 0
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	echo := make(chan error, 1)
	go func() {
		err := p.b.sleep(ctx, rounds, false, func(round int) error { return p.b.send(round, true) })
		if err != nil {
			cancel(err) // the other end would wait for ever
		}
		echo <- err
	}()
	times := make([]time.Duration, 0, rounds)
	begin := time.Now()
	err := p.a.send(0, false)
	if err == nil {
		err = p.a.sleep(ctx, rounds, true, func(round int) error {
			now := time.Now()
			times = append(times, now.Sub(begin))
			if begin = now; round+1 < rounds {
				return p.a.send(round+1, false)
			}
			return nil
		})
	}
	if err != nil {
		cancel(err)
	}
	if err := errors.Join(<-echo, err); err != nil {
		return context.Cause(ctx) // the first of the two
	}
	step.roundTrips(times)
	return nil
}

// sleep waits for the messages of all rounds, and for its own sends, and calls next
// for each message.
func (e *end) sleep(ctx context.Context, rounds int, back bool, next func(round int) error) error {
	w, err := poll.NewWaiter(poll.Event{}, e.cq)
	if err != nil {
		return err
	}
	defer w.Close()
	for e.arrived < rounds || e.ended < e.sent {
		n, err := w.Wait(ctx, e.wcs[:])
		if err != nil {
			return err
		}
		before := e.arrived
		if err := e.take(n, back); err != nil {
			return err
		}
		for round := before; round < e.arrived; round++ {
			if err := next(round); err != nil {
				return err
			}
		}
	}
	return nil
}

// roundTrips writes the times of all round trips into a step.
func (s *demoStep) roundTrips(times []time.Duration) {
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	slices.Sort(times)
	n := len(times)
	median, p99, mean := times[n/2], times[min(n-1, n*99/100)], sum/time.Duration(n)
	s.Rounds, s.Bytes = n, messageSize
	s.MedianUsec, s.P99Usec, s.MeanUsec = usec(median), usec(p99), usec(mean)
	if median == 0 {
		s.Text = fmt.Sprintf("%s of %d bytes, all checked: %v on average (this system's clock is too coarse for a median)", plural.Of(n, "round trip"), messageSize, short(mean))
		return
	}
	s.Text = fmt.Sprintf("%s of %d bytes, all checked: median %v, p99 %v", plural.Of(n, "round trip"), messageSize, short(median), short(p99))
}

func usec(d time.Duration) *float64 { return new(float64(d.Nanoseconds()) / 1e3) }

// short is a time with three digits or so.
func short(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Nanosecond)
}
