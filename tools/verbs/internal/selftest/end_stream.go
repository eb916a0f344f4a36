package selftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs"
)

// Streams have sends in the first half of the memory and receives in the second: a slot
// for each request that the queue holds.

// numberBytes is how many bytes of a message are its number.
const numberBytes = 8

// slotBytes is the distance of two slots.
func (s *Stream) slotBytes() int { return (s.Bytes + uverbs.GRHLen + 63) / 64 * 64 }

// length is how long a message is.
func (s *Stream) length(n int) int {
	if !s.Vary {
		return s.Bytes
	}
	return numberBytes + n*37%(s.Bytes-numberBytes+1)
}

// op is what a message is sent by.
func (s *Stream) op(n int) cq.Opcode {
	if len(s.Ops) == 0 {
		return cq.OpSendImm
	}
	return s.Ops[n%len(s.Ops)]
}

// receives is how many receives stand at an end.
func (e *end) receives() int {
	if e.srq != nil {
		return e.spec.SRQ
	}
	return e.spec.RecvDepth
}

// ready posts the receives of a stream: of messages, or of credits, which have no data.
func (e *end) ready(s *Stream) error {
	if s == nil {
		return errors.New("no stream")
	}
	if err := e.fits(s); err != nil {
		return err
	}
	for i := range e.receives() {
		e.offer(s, uint64(i))
	}
	return e.recvQueue().Flush()
}

// fits says whether there is memory for all slots of a stream.
func (e *end) fits(s *Stream) error {
	if most, slot := max(e.spec.SendDepth, e.receives()), s.slotBytes(); most*slot > e.mem.Len()/2 {
		return fmt.Errorf("%d slots of %d bytes do not fit into %d", most, slot, e.mem.Len()/2)
	}
	return nil
}

// offer stages the receive of a slot.
func (e *end) offer(s *Stream, slot uint64) {
	e.recvQueue().Recv(slot, e.mr.Span(e.mem.Len()/2+int(slot)*s.slotBytes(), s.slotBytes()))
}

// stream is one end of a stream. Both are ready.
func (e *end) stream(ctx context.Context, s *Stream) error {
	if s == nil {
		return errors.New("no stream")
	}
	// Who gives orders may have made ready for another one.
	if err := e.fits(s); err != nil {
		return err
	}
	e.stall = time.Duration(s.Stall * float64(time.Second))
	defer func() { e.stall = 0 }()
	t := &traffic{end: e, Stream: s}
	if e.spec.Type == uverbs.UD {
		t.grh = uverbs.GRHLen
	}
	var err error
	if s.Send {
		err = t.source(ctx)
	} else {
		err = t.sink(ctx)
	}
	if errors.Is(err, errImpatient) {
		err = fmt.Errorf("of %d messages %d were sent, %d sends ended, %d arrived, %d credits came, and then nothing any more", s.Messages, t.sent, t.ended, t.arrived, t.credits)
	}
	if err != nil {
		return fmt.Errorf("end %s: %w", e.name, err)
	}
	return nil
}

// traffic is how far a stream is.
type traffic struct {
	*end
	*Stream
	grh int

	sent    int // sends posted, credits on the other side
	ended   int // and ended
	arrived int // receives that ended
	credits int // messages that the other end has taken
}

// source sends the messages.
func (t *traffic) source(ctx context.Context) error {
	for t.ended < t.Messages || t.credits < t.Messages {
		staged := t.sent
		for t.sent < t.Messages && t.sent-t.credits < t.Credit && t.qp.SendQueue().Room() > 0 {
			if err := t.stage(t.sent); err != nil {
				return err
			}
			t.sent++
		}
		if t.sent > staged {
			if err := t.qp.SendQueue().Flush(); err != nil {
				return err
			}
		}
		w, err := t.next(ctx)
		if err != nil {
			return err
		}
		if err := w.Err(); err != nil {
			return fmt.Errorf("after %s: %w", plural.Of(t.ended, "message"), err)
		}
		if w.Side == cq.SendSide {
			if err := t.endOf(w); err != nil {
				return err
			}
			continue
		}
		if err := t.credit(w); err != nil {
			return err
		}
	}
	return t.quiet()
}

// quietly says whether message n is to end without a completion.
func (t *traffic) quietly(n int) bool { return t.Quiet > 1 && (n+1)%t.Quiet != 0 && n+1 != t.Messages }

// stage stages message n.
func (t *traffic) stage(n int) error {
	b := t.mem.Bytes()[n%t.spec.SendDepth*t.slotBytes():][:t.length(n)]
	binary.BigEndian.PutUint64(b, uint64(n))
	fill(b[numberBytes:], uint64(n), t.marker)
	w := Work{Op: t.op(n), ID: uint64(n), Imm: uint32(n), Pieces: []Piece{{n % t.spec.SendDepth * t.slotBytes(), len(b)}}}
	if w.Inline = t.Inline && len(b) <= t.qp.Limits().Inline; w.Inline {
		w.Op = cq.OpSend
	}
	if t.quietly(n) {
		w.Flags |= cq.Unsignaled
	}
	return t.send(&w)
}

// endOf books the completion of a send, which come in their order.
func (t *traffic) endOf(w uverbs.WC) error {
	want := t.ended
	for t.quietly(want) {
		want++
	}
	if w.ID != uint64(want) {
		return fmt.Errorf("the completion of send %d came, and that of %d is next", w.ID, want)
	}
	t.ended = want + 1
	return nil
}

// credit books a credit.
func (t *traffic) credit(w uverbs.WC) error {
	imm, ok := w.Imm()
	if want := uint64(t.arrived % t.receives()); w.ID != want {
		return fmt.Errorf("the completion of receive %d came, and that of %d is next", w.ID, want)
	}
	if t.arrived++; !ok || int(imm) <= t.credits || int(imm) > t.sent {
		return fmt.Errorf("a credit for %d messages came, of %d that were sent, behind one for %d", imm, t.sent, t.credits)
	}
	t.credits = int(imm)
	t.offer(t.Stream, w.ID)
	return t.recvQueue().Flush()
}

// sink takes the messages.
func (t *traffic) sink(ctx context.Context) error {
	each, credited := max(1, t.Credit/2), 0
	for credited < t.Messages || t.ended < t.sent {
		w, err := t.next(ctx)
		if err != nil {
			return err
		}
		if err := w.Err(); err != nil {
			return fmt.Errorf("after %s: %w", plural.Of(t.arrived, "message"), err)
		}
		if w.Side == cq.SendSide {
			if w.ID != uint64(t.ended) {
				return fmt.Errorf("the completion of credit %d came, and that of %d is next", w.ID, t.ended)
			}
			t.ended++
		} else if err := t.took(w); err != nil {
			return err
		}
		// A credit may have been due before there was room for it.
		due := t.arrived-credited >= each || t.arrived == t.Messages && credited < t.Messages
		if !due || t.qp.SendQueue().Room() == 0 {
			continue
		}
		if err := t.send(&Work{Op: cq.OpSendImm, ID: uint64(t.sent), Imm: uint32(t.arrived)}); err != nil {
			return err
		}
		if err := t.qp.SendQueue().Flush(); err != nil {
			return err
		}
		t.sent++
		credited = t.arrived
	}
	return t.quiet()
}

// took checks a message and offers its receive again.
func (t *traffic) took(w uverbs.WC) error {
	if err := t.message(w); err != nil {
		return err
	}
	t.offer(t.Stream, w.ID)
	return t.recvQueue().Flush()
}

// message checks a message: that it is the next one, and what it is to be.
func (t *traffic) message(w uverbs.WC) error {
	n := t.arrived
	if want := uint64(n % t.receives()); w.ID != want {
		return fmt.Errorf("the completion of receive %d came, and that of %d is next: message %d", w.ID, want, n)
	}
	if got, want := int(w.Bytes), t.length(n)+t.grh; got != want {
		return fmt.Errorf("message %d has %d bytes and not %d: one was lost, doubled or overtaken, or its length is wrong", n, got, want)
	}
	b := t.mem.Bytes()[t.mem.Len()/2+int(w.ID)*t.slotBytes()+t.grh:][:t.length(n)]
	if got := binary.BigEndian.Uint64(b); got != uint64(n) {
		return fmt.Errorf("message %d came, and %d is next: one was lost, doubled or overtaken", got, n)
	}
	if imm, ok := w.Imm(); ok && imm != uint32(n) {
		return fmt.Errorf("message %d came with the immediate data %d", n, imm)
	}
	if err := differ(b[numberBytes:], uint64(n), t.marker); err != nil {
		return fmt.Errorf("message %d: %w", n, err)
	}
	t.arrived++
	return nil
}
