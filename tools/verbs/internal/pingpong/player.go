package pingpong

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs"
)

// link is the queue pair as the game sees it.
type link interface {
	// wait returns the completions that there are, at least one, or an error.
	wait(wcs []uverbs.WC) (int, error)
	// recv posts n receives.
	recv(n int) error
	// send posts the message.
	send() error
}

// The two ends that a side waits for before it sends again.
const (
	sendPending = 1 << iota
	recvPending
)

// player plays one side.
type player struct {
	link  link
	size  int
	iters int
	depth int
	check *checker      // nil: do not look at messages
	count *atomic.Int64 // nil: nobody looks at the number of messages that came

	posted         int // receives
	sent, received int // completed
	pending        uint8
	wcs            [2]uverbs.WC
}

// prepare posts the receives. It comes before the peer can send.
func (p *player) prepare() error {
	if err := p.link.recv(p.depth); err != nil {
		return err
	}
	p.posted = p.depth
	return nil
}

// play plays to the end. first is whether this side sends first.
func (p *player) play(first bool) error {
	if err := p.start(first); err != nil {
		return err
	}
	for !p.over() {
		n, err := p.link.wait(p.wcs[:])
		if err != nil {
			return err
		}
		if err := p.take(n); err != nil {
			return err
		}
	}
	return nil
}

// start sends the first message, if this side does.
func (p *player) start(first bool) error {
	p.pending = recvPending
	if first {
		p.pending |= sendPending
		return p.link.send()
	}
	return nil
}

// over says whether everything was sent and received.
func (p *player) over() bool { return p.sent >= p.iters && p.received >= p.iters }

// take takes n completions.
func (p *player) take(n int) error {
	for i := range p.wcs[:n] {
		if err := p.ended(&p.wcs[i]); err != nil {
			return err
		}
	}
	return nil
}

// ended takes a completion, and sends when it was the last that was missing.
func (p *player) ended(w *uverbs.WC) error {
	if err := w.Err(); err != nil {
		return fmt.Errorf("after %s: %w", plural.Of(p.received, "message"), err)
	}
	switch w.Side {
	case uverbs.SendSide:
		p.sent++
		p.pending &^= sendPending
	case uverbs.RecvSide:
		if err := p.arrived(int(w.Bytes)); err != nil {
			return err
		}
		p.pending &^= recvPending
	}
	if p.pending != 0 || p.sent >= p.iters {
		return nil
	}
	if p.check != nil {
		p.check.next()
	}
	p.pending = sendPending | recvPending
	return p.link.send()
}

// arrived takes the message that has come.
func (p *player) arrived(size int) error {
	p.received++
	if size != p.size {
		return fmt.Errorf("message %d has %d bytes, and this side has -s %d: both sides need the same size", p.received, size, p.size)
	}
	if p.check != nil {
		if err := p.check.received(); err != nil {
			return err
		}
	}
	if p.count != nil {
		p.count.Store(int64(p.received))
	}
	// ibv_rc_pingpong keeps one in reserve, too.
	if p.posted--; p.posted > 1 {
		return nil
	}
	if err := p.link.recv(p.depth - p.posted); err != nil {
		return err
	}
	p.posted = p.depth
	return nil
}
