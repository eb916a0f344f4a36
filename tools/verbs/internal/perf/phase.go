package perf

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
)

// A phase is one run of the loops on both sides: of the warm-up, or of what is measured.
// While the loops run a goroutine hears what the other side says.
type phase struct {
	// hard ends where the phase has to: on an interrupt, or when the other side has
	// failed. soft ends besides when the other side has sent all that it will, for
	// which a loop that does not know how much that is would wait for ever.
	hard, soft     context.Context
	endHard        context.CancelCauseFunc
	endSoft        context.CancelCauseFunc
	unwatch        [2]func() bool
	hardly, softly atomic.Bool // the same, for loops that look often

	told   atomic.Int64 // how many messages the other side has sent; -1: not known
	heard  chan struct{}
	result *result // of the other side, or nil; to be read when heard is closed
}

// errPeerSent is why a soft context ends.
var errPeerSent = errors.New("the other side has sent everything")

// A stoppedError is that the other side has ended before its time.
type stoppedError struct{ text string }

func (e *stoppedError) Error() string { return e.text }

// Stopped says whether an error is that the other side has ended before its time, and so
// tells less than its own error.
func Stopped(err error) bool {
	stop := (*stoppedError)(nil)
	return errors.As(err, &stop) || errors.Is(err, errHungUp)
}

// newPhase agrees with the other side that both are ready, and begins to listen.
func (s *Side) newPhase(ctx context.Context) (*phase, error) {
	s.phase++
	if err := s.link.send(message{Ready: &ready{s.phase}}); err != nil {
		return nil, err
	}
	m, err := s.link.next(ctx)
	switch {
	case err != nil:
		return nil, err
	case m.Result != nil && (m.Result.Error != "" || m.Result.Partial):
		return nil, stopped(m.Result)
	case m.Ready == nil || m.Ready.Phase != s.phase:
		return nil, errOutOfTurn
	}
	p := &phase{heard: make(chan struct{})}
	p.told.Store(-1)
	p.hard, p.endHard = context.WithCancelCause(ctx)
	p.soft, p.endSoft = context.WithCancelCause(p.hard)
	p.unwatch[0] = context.AfterFunc(p.hard, func() { p.hardly.Store(true) })
	p.unwatch[1] = context.AfterFunc(p.soft, func() { p.softly.Store(true) })
	go p.listen(s.link)
	return p, nil
}

// stopped is the error of a result that tells of one.
func stopped(r *result) error {
	if r.Error != "" {
		return &stoppedError{"the other side has failed: " + printable.Short(r.Error)}
	}
	return &stoppedError{"the other side was interrupted"}
}

// listen hears the other side to its result.
func (p *phase) listen(l *link) {
	defer close(p.heard)
	for {
		m, err := l.next(context.Background()) // Close ends it
		switch {
		case err != nil:
			p.endHard(&stoppedError{err.Error()})
			return
		case m.Sent != nil && p.told.Load() < 0 && m.Sent.Messages >= 0:
			p.told.Store(m.Sent.Messages)
			p.endSoft(errPeerSent)
		case m.Result != nil:
			m.Result.clean()
			p.result = m.Result
			if m.Result.Error != "" || m.Result.Partial {
				p.endHard(stopped(m.Result))
			}
			return
		default:
			p.endHard(errOutOfTurn)
			return
		}
	}
}

// patience is how long a side that has stopped waits for what the other one has to say.
const patience = 5 * time.Second

// end tells the other side what this one came to, and waits for its result, which is nil
// if none came. err is why the loop ended before its time, or nil.
func (p *phase) end(ctx context.Context, l *link, mine result, err error) (*result, error) {
	defer func() {
		p.unwatch[0]()
		p.unwatch[1]()
		p.endSoft(nil)
		p.endHard(nil)
	}()
	if err != nil {
		mine.Partial = true
		if !Stopped(err) && ctx.Err() == nil {
			mine.Error = err.Error()
		}
	}
	serr := l.send(message{Result: &mine})
	if err == nil {
		// As long as the other side needs: it may be slower.
		select {
		case <-p.heard:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch {
		case p.result == nil:
			return nil, context.Cause(p.hard)
		case p.result.Error != "" || p.result.Partial:
			return p.result, stopped(p.result)
		}
		return p.result, serr
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-p.heard:
		// Requests fail, too, when the other side is killed, and may be the first to
		// tell.
		if cause := context.Cause(p.hard); p.result == nil && !Stopped(err) && Stopped(cause) {
			err = fmt.Errorf("%w; so here: %w", cause, err)
		}
		return p.result, err
	case <-limit.C:
		return nil, err
	}
}

// tell tells the other side that everything was sent.
func (l *link) tell(n int64) error { return l.send(message{Sent: &sent{n}}) }

// silence is how long nothing may come where messages may get lost, before a test of
// latency is over. It is counted in looks, since a machine that stands still does not look:
// that is no silence of the other side's.
const (
	silence     = 30 * time.Second
	silentLooks = 20
	lookEvery   = silence / silentLooks
)

// watchdog ends a phase in which count has not changed for long. Stop it when done.
func (p *phase) watchdog(count *atomic.Int64, transport string) (stop func()) {
	quit := make(chan struct{})
	go func() {
		last, same := count.Load(), 0
		for tick := time.NewTicker(lookEvery); ; {
			select {
			case <-quit:
				tick.Stop()
				return
			case <-tick.C:
				if n := count.Load(); n != last {
					last, same = n, 0
				} else if same++; same > silentLooks {
					p.endHard(fmt.Errorf("nothing has come for %v: a message got lost, as %s may lose them, and nobody sends it again", silence, transport))
					return
				}
			}
		}
	}()
	return func() { close(quit) }
}
