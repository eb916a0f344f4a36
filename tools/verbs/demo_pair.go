package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	pairDepth   = 16   // requests on each queue
	messageSize = 64   // bytes of a ping
	readSize    = 4096 // bytes of a READ
	readAt      = 4096 // where they lie in the memory of a side
)

// pair is two queue pairs that are connected.
type pair struct {
	a, b        *end
	completions atomic.Int64 // of both
}

// end is one of them, with all that it needs.
type end struct {
	completions *atomic.Int64 // the pair's

	dev *uverbs.Device
	cq  *uverbs.CQ
	qp  *uverbs.QP
	mem *uverbs.Memory
	mr  *uverbs.MR

	message [messageSize]byte // to send
	sent    int               // sends that were posted
	ended   int               // and those of them that completed
	arrived int               // messages of the other side
	wcs     [2 * pairDepth]uverbs.WC
}

// newPair makes and connects two queue pairs on the stage. It returns a pair to
// close also with an error.
func newPair(ctx context.Context, st *stage) (*pair, error) {
	p := new(pair)
	p.a, p.b = &end{completions: &p.completions}, &end{completions: &p.completions}
	if err := errors.Join(p.a.open(st, st.names[0]), p.b.open(st, st.names[1])); err != nil {
		return p, err
	}
	// On a busy machine soft-RoCE may take longer than half a second to answer, after
	// which a connection gives up by default: this one does after seven.
	opts := &uverbs.ConnectOptions{AckTimeout: time.Second}
	if err := p.a.qp.Connect(ctx, p.b.qp.Endpoint(), opts); err != nil {
		return p, err
	}
	return p, p.b.qp.Connect(ctx, p.a.qp.Endpoint(), opts)
}

func (e *end) open(st *stage, name string) (err error) {
	if e.dev, err = st.from.open(name); err != nil {
		return err
	}
	pd, err := e.dev.NewPD()
	if err != nil {
		return err
	}
	if e.mem, err = uverbs.Alloc(readAt+pairDepth*readSize, nil); err != nil {
		return err
	}
	if e.mr, err = pd.Register(e.mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteRead); err != nil {
		return err
	}
	if e.cq, err = e.dev.NewCQ(2*pairDepth, &uverbs.CQOptions{Events: true}); err != nil {
		return err
	}
	e.qp, err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: e.cq, SendDepth: pairDepth, RecvDepth: pairDepth, Inline: messageSize})
	if err != nil {
		return err
	}
	for id := range uint64(pairDepth) {
		e.offer(id)
	}
	return e.qp.RecvQueue().Flush() // before the peer can send
}

// offer stages the receive of one message.
func (e *end) offer(id uint64) {
	e.qp.RecvQueue().Recv(id, e.mr.Span(int(id)*messageSize, messageSize))
}

// ping fills the message of a round, another one in each direction.
func ping(message *[messageSize]byte, round int, back bool) {
	for i := range message {
		message[i] = byte(round>>(i%4*8)) ^ byte(i)
		if back {
			message[i] = ^message[i]
		}
	}
}

// send sends the message of a round.
func (e *end) send(round int, back bool) error {
	ping(&e.message, round, back)
	e.qp.SendQueue().SendInline(uint64(round), e.message[:])
	e.sent++
	return e.qp.SendQueue().Flush()
}

// take books n completions, checks the messages and offers their receives again.
func (e *end) take(n int, back bool) error {
	e.completions.Add(int64(n))
	for i := range e.wcs[:n] {
		w := &e.wcs[i]
		if err := w.Err(); err != nil {
			return err
		}
		if w.Side == uverbs.SendSide {
			e.ended++
			continue
		}
		var want [messageSize]byte
		ping(&want, e.arrived, back)
		got := e.mem.Bytes()[w.ID*messageSize:][:messageSize]
		if w.Bytes != messageSize || string(got) != string(want[:]) {
			return fmt.Errorf("message %d is %d bytes %x, and not %x", e.arrived, w.Bytes, got, want)
		}
		e.arrived++
		e.offer(w.ID)
	}
	return e.qp.RecvQueue().Flush()
}

// looks is how many polls find nothing before a look at the context.
const looks = 256

// spin polls until there are completions.
func (e *end) spin(ctx context.Context) (int, error) {
	for {
		for range looks {
			if n, err := e.cq.Poll(e.wcs[:]); n > 0 || err != nil {
				e.completions.Add(int64(n))
				return n, err
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		runtime.Gosched() // whoever ends the context may need this processor
	}
}

// close gives back everything.
func (p *pair) close() error { return errors.Join(p.a.close(), p.b.close()) }

func (e *end) close() (err error) {
	if e.dev != nil {
		err = e.dev.Close()
	}
	if e.mem != nil {
		err = errors.Join(err, e.mem.Close())
	}
	return err
}
