package pingpong

import (
	"context"
	"sync/atomic"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// queueLink is a link on the queues of a device. Nothing in it allocates.
type queueLink struct {
	cq         *uverbs.CQ
	sq         *uverbs.SendQueue
	rq         *uverbs.RecvQueue
	from, into uverbs.Span
	inline     []byte // the message, if it fits into the request

	ctx    context.Context
	waiter *poll.Waiter // nil: poll
	stop   atomic.Bool  // ctx has ended
}

// The ids of requests. Completions say themselves of which side they are.
const (
	recvID = 1
	sendID = 2
)

// spin makes the link ready to wait by polling. The end of ctx ends a wait.
func (l *queueLink) spin(ctx context.Context) (release func()) {
	l.ctx = ctx
	unwatch := context.AfterFunc(ctx, func() { l.stop.Store(true) })
	return func() { unwatch() }
}

// sleep makes the link ready to wait for events. The end of ctx ends a wait.
func (l *queueLink) sleep(ctx context.Context, how poll.Event) (release func(), err error) {
	l.ctx = ctx
	if l.waiter, err = poll.NewWaiter(how, l.cq); err != nil {
		return nil, err
	}
	return func() { l.waiter.Close() }, nil
}

// looks is how many polls go by between two looks at the context.
const looks = 256

func (l *queueLink) wait(wcs []uverbs.WC) (int, error) {
	if l.waiter != nil {
		n, err := l.waiter.Wait(l.ctx, wcs)
		if err != nil && l.ctx.Err() != nil {
			err = context.Cause(l.ctx)
		}
		return n, err
	}
	// Not poll.Busy, which refuses to spin where there is no other processor.
	// A ping-pong may: nothing else in this program waits to be run.
	for !l.stop.Load() {
		for range looks {
			if n, err := l.cq.Poll(wcs); n > 0 || err != nil {
				return n, err
			}
		}
	}
	return 0, context.Cause(l.ctx)
}

func (l *queueLink) recv(n int) error {
	for range n {
		l.rq.Recv(recvID, l.into)
	}
	return l.rq.Flush()
}

func (l *queueLink) send() error {
	if l.inline != nil {
		l.sq.SendInline(sendID, l.inline)
	} else {
		l.sq.Send(sendID, l.from)
	}
	return l.sq.Flush()
}
