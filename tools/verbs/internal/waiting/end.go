package waiting

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// messageBytes is the length of a message. Its first eight bytes are its number.
const messageBytes = 64

// end is one end of the connection.
type end struct {
	dev *uverbs.Device
	mem *uverbs.Memory
	mr  *uverbs.MR
	cq  *uverbs.CQ
	qp  *uverbs.QP
	sq  *uverbs.SendQueue
	rq  *uverbs.RecvQueue

	peer    uverbs.RemoteAddr // where writes go
	sent    uint64            // messages that were staged
	arrived uint64            // messages that came, in the order of their numbers
	message [messageBytes]byte
	wcs     [mostBatch]uverbs.WC
}

// mostBatch is how many completions a poll takes at most.
const mostBatch = 128

// receives are how many messages may come before the end looks.
const receives = 32

// openEnd makes an end on a device, which belongs to it from then on, with receives posted. depth
// is how many writes it can have under way, besides messages.
func openEnd(dev *uverbs.Device, depth int, events bool) (*end, error) {
	e := &end{dev: dev}
	if err := e.open(depth+receives, events); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *end) open(depth int, events bool) (err error) {
	pd, err := e.dev.NewPD()
	if err != nil {
		return err
	}
	if e.mem, err = uverbs.Alloc((receives+1)*messageBytes, nil); err != nil {
		return err
	}
	if e.mr, err = pd.Register(e.mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite); err != nil {
		return err
	}
	if e.cq, err = e.dev.NewCQ(depth+receives, &uverbs.CQOptions{Events: events}); err != nil {
		return err
	}
	e.qp, err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: e.cq, SendDepth: depth, RecvDepth: receives, Inline: messageBytes})
	if err != nil {
		return err
	}
	e.sq, e.rq = e.qp.SendQueue(), e.qp.RecvQueue()
	for id := range uint64(receives) {
		e.offer(id)
	}
	return e.rq.Flush()
}

// connect connects the end. A busy machine may need a second to acknowledge.
func (e *end) connect(ctx context.Context, peer address) error {
	e.peer = peer.Region.At(receives * messageBytes)
	return e.qp.Connect(ctx, peer.Endpoint, &uverbs.ConnectOptions{AckTimeout: time.Second})
}

// address is where the end connects to, and writes go.
type address struct {
	Endpoint uverbs.Endpoint
	Region   uverbs.Remote
}

func (e *end) address() address { return address{e.qp.Endpoint(), e.mr.Remote()} }

// offer stages the receive of a message.
func (e *end) offer(id uint64) {
	e.rq.Recv(id, e.mr.Span(int(id)*messageBytes, messageBytes))
}

// send stages the next message.
func (e *end) send() {
	binary.NativeEndian.PutUint64(e.message[:], e.sent)
	e.sq.SendInline(e.sent, e.message[:])
	e.sent++
}

// take books completions, checks that the messages come in order, and offers their receives
// again. It returns how many messages came.
func (e *end) take(wcs []uverbs.WC) (messages int, err error) {
	for i := range wcs {
		w := &wcs[i]
		if err := w.Err(); err != nil {
			return 0, err
		}
		if w.Side == uverbs.SendSide {
			continue
		}
		at := e.mem.Bytes()[w.ID*messageBytes:]
		if got := binary.NativeEndian.Uint64(at); got != e.arrived || w.Bytes != messageBytes {
			return 0, fmt.Errorf("message %d came as number %d with %d bytes", e.arrived, got, w.Bytes)
		}
		e.arrived++
		messages++
		e.offer(w.ID)
	}
	if messages > 0 {
		err = e.rq.Flush()
	}
	return messages, err
}

// close gives back everything.
func (e *end) close() error {
	err := e.dev.Close()
	if e.mem != nil {
		err = errors.Join(err, e.mem.Close())
	}
	return err
}
