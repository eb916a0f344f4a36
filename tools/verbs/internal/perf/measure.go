package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/cputime"
	"github.com/goverbs/goverbs/tools/verbs/internal/present"
)

// Measure warms up and measures messages of one size. The sides measure the same sizes in
// the same order. If count is not nil, the number of messages so far is stored there.
//
// Where the end of ctx, or of the other side, has ended the measurement before its time,
// the report is of what there was until then, and comes with the error. It is nil where
// nothing was measured.
func (s *Side) Measure(ctx context.Context, size int, count *atomic.Int64) (*Report, error) {
	if runtime.GOMAXPROCS(0) < 2 {
		// With the only processor given up for each sleep, the runtime's monitor
		// goes to sleep as well, and is woken again: that doubles what a message
		// costs.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	s.size(size)
	if n := s.cfg.Warmup; n > 0 {
		if r, err := s.run(ctx, int64(n), 0, nil, false); err != nil {
			if r != nil && r.mine.Error == "" {
				err = fmt.Errorf("during the warm-up: %w", err)
			}
			return nil, s.named(err)
		}
	}
	r, err := s.run(ctx, int64(s.cfg.Iters), s.cfg.Duration, count, true)
	if r == nil || !s.cfg.sends() && !s.cfg.receives() && r.theirs == nil {
		return nil, s.named(err) // of a side that does nothing, only the other one knows
	}
	return r.report(s, size, err != nil), s.named(err)
}

// named adds the device to an error of it.
func (s *Side) named(err error) error {
	if err == nil || Stopped(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: %w", s.dev.Name(), err)
}

// size makes the requests ones for messages of a size.
func (s *Side) size(size int) {
	s.current = size
	b := s.mem.Bytes()
	for i := range s.queues {
		q := &s.queues[i]
		q.from, q.data = s.mr.Span(s.out(i), size), nil
		if s.cfg.sends() && !s.cfg.Test.answers() && size <= s.inline {
			q.data = b[s.out(i):][:size]
		}
	}
}

// A run is what a phase came to.
type run struct {
	mine   result
	theirs *result // nil: it has not said
	times  *times  // nil: none were taken
	cpu    *CPU
	own    int64 // messages that this side has sent or received
}

// run runs a phase. What there is it returns also with an error.
func (s *Side) run(ctx context.Context, n int64, duration time.Duration, count *atomic.Int64, measured bool) (*run, error) {
	c := &s.cfg
	r := &run{}
	word, shift := lastByte(s.mem, s.in(0)+s.current-1)
	if c.Test.alternates() && c.Test.Verb == Write {
		s.mem.Bytes()[s.in(0)+s.current-1] = 0 // what was there is no message
	}
	if c.Test.Latency && c.sends() {
		r.times = newTimes(n)
		if duration > 0 {
			r.times = newTimes(maxEach / 16)
		}
	}
	var peaks *peak
	if measured && !c.NoPeak && !c.Test.Latency && c.sends() {
		peaks = newPeak()
	}
	if err := s.replenish(); err != nil {
		return nil, err
	}
	runtime.GC() // and not meanwhile
	defer s.alone(duration)()
	p, err := s.newPhase(ctx)
	if err != nil {
		return nil, err
	}
	if c.lossy() && c.Test.Latency {
		if count == nil {
			count = new(atomic.Int64)
		}
		defer p.watchdog(count, c.Transport)()
	}
	w, release, err := s.newWait(p)
	if err != nil {
		p.end(ctx, s.link, r.mine, err)
		return nil, err
	}
	before, cerr := cputime.Process()
	switch {
	case !c.sends() && !c.receives():
		err = p.idle()
	case c.Test.Latency:
		g := s.newGame(w, s.link, n, duration, r.times)
		g.count = count
		err = g.play(word, shift, &s.mem.Bytes()[s.out(0)+s.current-1])
		r.mine = result{Sent: g.posted, Received: g.received, Nsec: int64(g.stretch.duration), Latency: r.times.latency(s.parts()), Spread: r.times.histogram(s.parts())}
		if c.Test.answers() {
			r.mine.Sent = g.sent
		}
	default:
		st := s.newStream(w, s.link, n, duration)
		st.count, st.peaks = count, peaks
		err = st.run()
		r.mine = result{Sent: st.sent, Received: st.received, Nsec: st.took()}
		if peaks != nil {
			r.mine.Peak = peaks.best() * 1e9 / st.nsec()
		}
	}
	r.own = r.mine.Sent + r.mine.Received
	after, cerr2 := cputime.Process()
	release()
	if cerr == nil && cerr2 == nil {
		user, system := after.Since(before)
		r.cpu = &CPU{UserSec: user.Seconds(), SystemSec: system.Seconds()}
	}
	r.theirs, err = p.end(ctx, s.link, r.mine, present.Explain(s.dev, err))
	return r, err
}

// parts is how many latencies a round is.
func (s *Side) parts() int {
	if s.cfg.Test.alternates() {
		return 2
	}
	return 1
}

// idle waits on a side that has nothing to do until the other one is done.
func (p *phase) idle() error {
	select {
	case <-p.heard:
		return nil // with what end finds
	case <-p.hard.Done():
		return context.Cause(p.hard)
	}
}

// report makes the report of a run.
func (r *run) report(s *Side, size int, partial bool) *Report {
	c := &s.cfg
	rep := &Report{
		Test: c.Test.String(), Role: c.Role(), Transport: c.Transport, Device: s.dev.Name(), PeerDevice: printable.Short(s.peer.Device),
		Bytes: size, QPs: c.QPs, PostList: c.PostList, SignalEvery: c.SignalEvery, SendDepth: c.SendDepth, RecvDepth: c.RecvDepth,
		Inline: s.inline, MTU: s.mtu, ReadDepth: s.reads, Bidirectional: c.Bidirectional, Wait: c.Wait, Partial: partial, CPU: r.cpu,
	}
	if c.Together {
		rep.Role = "both"
	}
	if c.Test.Verb == Atomic {
		rep.Atomic = c.Atomic
	}
	// A side that does nothing has its figures from the other one.
	fig := r.mine
	if !c.sends() && !c.receives() && r.theirs != nil {
		fig = *r.theirs
	}
	rep.Iterations = fig.Sent
	if !c.sends() && c.receives() {
		rep.Iterations = fig.Received
	}
	rep.figures(fig, size)
	if r.theirs != nil && c.Bidirectional {
		other := &Report{Iterations: r.theirs.Sent}
		other.figures(*r.theirs, size)
		rep.MessagesPerSec += other.MessagesPerSec
		rep.BandwidthMBps += other.BandwidthMBps
		rep.PeakBandwidthMBps += other.PeakBandwidthMBps
	}
	if c.lossy() && c.Test == (Test{Verb: Send}) && r.theirs != nil && !partial {
		rep.Lost = max(0, r.theirs.Sent-r.mine.Received)
		if !c.receives() {
			rep.Lost = 0
		}
		if c.sends() {
			rep.Lost += max(0, r.mine.Sent-r.theirs.Received)
		}
	}
	if rep.CPU != nil && r.own > 0 {
		rep.CPU.NsecPerMessage = (rep.CPU.UserSec + rep.CPU.SystemSec) * 1e9 / float64(r.own)
	}
	rep.times = r.times
	rep.parts = s.parts()
	return rep
}

// figures fills in what follows from what a side has said.
func (r *Report) figures(f result, size int) {
	r.Seconds = float64(max(f.Nsec, 1)) / 1e9
	r.MessagesPerSec = float64(r.Iterations) / r.Seconds
	r.BandwidthMBps = r.MessagesPerSec * float64(size) / 1e6
	r.PeakBandwidthMBps = f.Peak * float64(size) / 1e6
	r.Latency, r.Histogram = f.Latency, f.Spread
}
