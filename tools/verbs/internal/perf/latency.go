package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs"
)

// A game is what one side does in a phase of a test of latency: one message is under way
// at a time. Its loops allocate nothing.
type game struct {
	*stream // of one queue; what it knows of totals is not used
	times   *times
	first   bool  // this side sends first
	limit   int64 // messages of each side, or round trips
	posted  int64
}

// newGame makes a game for a phase of n messages, or of a duration.
func (s *Side) newGame(w *wait, l *link, n int64, duration time.Duration, t *times) *game {
	g := &game{stream: s.newStream(w, l, n, duration), times: t, first: s.cfg.Server != "", limit: n}
	if duration > 0 {
		g.limit = unknown
	}
	return g
}

// play plays to the end.
func (g *game) play(word *atomic.Uint64, shift int, last *byte) (err error) {
	g.start()
	g.rested = g.at
	if g.first && g.limit == unknown {
		defer time.AfterFunc(g.duration, func() { g.over.Store(true) }).Stop()
	}
	switch g.verb {
	case Send:
		err = g.pingpong()
	case Write:
		err = g.writes(word, shift, last)
	default:
		err = g.asks()
	}
	g.end()
	g.times.nsec = g.nsec()
	if err == nil && g.first {
		err = g.tell(g.posted)
	}
	return err
}

// more says whether one more message is to go out, and the time at which it does: note that
// when it is out, while there is nothing to do but wait. One does go out even where the time
// is over before it could: a machine may stand still for as long.
func (g *game) more() (at int64, ok bool) {
	at = g.now()
	if g.first && g.limit == unknown && g.posted > 0 && g.over.Load() {
		g.note(at)
		g.limit = g.posted
		return at, false
	}
	return at, true
}

// note notes that a message went out.
func (g *game) note(at int64) {
	g.times.mark(at)
	if g.count != nil {
		g.count.Store(g.posted)
	}
}

// post posts one message.
func (g *game) post() error {
	q := &g.queues[0]
	g.posted++
	g.stage(q, 0)
	return q.sq.Flush()
}

// The two ends that a side waits for before it sends again.
const (
	sendPending = 1 << iota
	recvPending
)

// pingpong sends, and waits for what comes back. The server begins with waiting.
func (g *game) pingpong() error {
	pending := recvPending
	for {
		if pending == 0 || pending == recvPending && g.posted == 0 && g.first {
			if g.posted == g.limit {
				g.finish()
				return nil
			}
			at, ok := g.more()
			if !ok {
				return nil
			}
			if err := g.post(); err != nil {
				return err
			}
			g.note(at)
			g.rest()
			pending = sendPending
			if g.first || g.posted < g.limit {
				pending |= recvPending
			}
			if err := g.replenish(); err != nil {
				return err
			}
		}
		n, err := g.next(g.wcs[:])
		if errors.Is(err, errPeerSent) {
			// Nothing more comes. The end of what was sent does.
			g.limit = g.posted
			if pending &^= recvPending; pending == 0 {
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		for i := range g.wcs[:n] {
			w := &g.wcs[i]
			if w.Status != uverbs.StatusSuccess {
				return fmt.Errorf("after %s: %w", plural.Of(g.received, "message"), w.Err())
			}
			if w.Side == uverbs.SendSide {
				pending &^= sendPending
				g.sent++
			} else {
				pending &^= recvPending
				g.received++
				g.queues[0].taken++
			}
		}
	}
}

// replenish posts receives in the place of those that ended. It comes while the other side
// is at work.
func (g *game) replenish() error {
	q := &g.queues[0]
	if q.taken < g.refills {
		return nil
	}
	n := q.taken
	q.taken = 0
	return q.refill(0, n)
}

// writes writes into the other side's memory, and looks at the last byte of its own for
// what the other side writes: the number of the message.
func (g *game) writes(word *atomic.Uint64, shift int, last *byte) error {
	q := &g.queues[0]
	for g.posted < g.limit || g.received < g.limit {
		if g.posted > 0 || !g.first {
			if err := g.until(word, shift, byte(g.received+1)); errors.Is(err, errPeerSent) {
				return nil
			} else if err != nil {
				return fmt.Errorf("after %s: %w", plural.Of(g.received, "message"), err)
			}
			g.received++
		}
		if g.posted == g.limit {
			continue
		}
		at, ok := g.more()
		if !ok {
			return nil
		}
		*last = byte(g.posted + 1)
		g.posted++
		g.stage(q, 0)
		if err := q.sq.Flush(); err != nil {
			return err
		}
		g.note(at)
		if err := g.ended(); err != nil {
			return err
		}
		g.rest()
	}
	g.finish()
	return nil
}

// asks reads, or carries out atomics, one after another.
func (g *game) asks() error {
	for g.posted < g.limit {
		at, ok := g.more()
		if !ok {
			return nil
		}
		if err := g.post(); err != nil {
			return err
		}
		g.note(at)
		if err := g.ended(); err != nil {
			return err
		}
		g.rest()
	}
	g.finish()
	return nil
}

// finish notes that the last message is over, with which its time ends.
func (g *game) finish() {
	if g.first {
		g.note(g.now())
	}
}

// ended waits for the end of the one request that is under way. The other side may have
// everything before this side's request has ended, and says so only once.
func (g *game) ended() error {
	for {
		n, err := g.next(g.wcs[:])
		if errors.Is(err, errPeerSent) {
			g.limit = g.posted
			continue
		}
		if err != nil {
			return err
		}
		if n > 0 {
			if w := &g.wcs[0]; w.Status != uverbs.StatusSuccess {
				return fmt.Errorf("after %s: %w", plural.Of(g.sent, "message"), w.Err())
			}
			g.sent++
			return nil
		}
	}
}

// lastByte is where the last byte of a message is seen to change: in a word of eight bytes
// that may be read while somebody writes there.
func lastByte(m *uverbs.Memory, at int) (word *atomic.Uint64, shift int) {
	var probe [8]byte
	probe[at%8] = 1
	v := binary.NativeEndian.Uint64(probe[:])
	for v != 1 {
		v >>= 8
		shift += 8
	}
	return m.Uint64(at &^ 7), shift
}
