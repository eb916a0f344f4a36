package model

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Completing on request is for who measures how a program posts and polls: the device does
// nothing of itself, and then many completions are there at once.

// FillOptions are the choices of [Device.Fill]. The zero value completes sends with success.
type FillOptions struct {
	// Recv completes receives, as messages of no bytes do, instead of sends. They are those of
	// the queue pairs' own queues.
	Recv bool
	// Flush ends them with the error that requests end with in a queue pair in error.
	Flush bool
}

// Hold has the device leave alone what is posted to queue pair qpn and to all that complete
// sends to the same completion queue: requests wait until [Device.Fill] completes them. It holds until
// a queue pair changes its state.
func (d *Device) Hold(qpn uint32) error {
	d.m.enter()
	defer d.m.leave()
	q := d.qps[qpn]
	if q == nil {
		return fmt.Errorf("model: hold: device %s has no QP %#x", d.cfg.Name, qpn)
	}
	for _, p := range d.pairs() {
		if p.sendCQ != q.sendCQ {
			continue
		}
		if p.state != stateRTS {
			return fmt.Errorf("model: hold: QP %#x is in state %d: only what is in RTS can be held", p.qpn, p.state)
		}
		p.stuck = true
	}
	return nil
}

// Fill completes the next requests, oldest first, of the queue pairs that [Device.Hold] of qpn
// holds and that complete to the same queue: one of each queue pair in turn, without carrying
// them out. It stops when n completions are written, or no request is left, and returns how many
// are. Nobody has to have rung for the requests, their doorbell records suffice. The queue
// pairs stay in their state, faults have no part in it, and nothing is compressed. Entries are
// written many at a time, so the program must not poll meanwhile.
func (d *Device) Fill(qpn uint32, n int, o FillOptions) (int, error) {
	d.m.enter()
	defer d.m.leave()
	q := d.qps[qpn]
	if q == nil || !q.stuck {
		return 0, fmt.Errorf("model: fill: device %s holds no QP %#x", d.cfg.Name, qpn)
	}
	f := filling{FillOptions: o, to: q.completesTo(o.Recv)}
	var list []*filled
	for _, p := range d.pairs() {
		if p.sendCQ != q.sendCQ || !p.stuck || p.completesTo(o.Recv) != f.to {
			continue
		}
		e, err := f.begin(p)
		if err != nil {
			return 0, err
		}
		list = append(list, e)
	}
	err := f.turns(list, n)
	if e := f.flush(); err == nil {
		err = e
	}
	return f.done, err
}

func (q *qp) completesTo(recv bool) *cq {
	if recv {
		return q.recvCQ
	}
	return q.sendCQ
}

// filling is a Fill that is under way.
type filling struct {
	FillOptions
	to        *cq
	done      int    // completions
	n         uint32 // of them in Model.chunk, not in the ring yet
	solicited bool   // one of these is
}

// filled is a queue pair whose requests are completed.
type filled struct {
	*qp
	wqes []byte // the requests that are left
}

// begin reads what is posted to a queue pair.
func (f *filling) begin(q *qp) (*filled, error) {
	e := &filled{qp: q}
	if f.Recv {
		if q.srq != nil || q.receives == 0 || !q.loadReceives() {
			e.recvPI = e.recvCI
		}
		return e, nil
	}
	if !q.loadSends() || q.blocks == 0 {
		return e, nil
	}
	// The memory is kept, so that a program whose collector is measured meanwhile meets no
	// allocation here.
	n := int(q.sendPI-q.sendCI) * blockBytes
	q.filled = slices.Grow(q.filled[:0], n)[:n]
	e.wqes = q.filled
	at := uint32(q.sendCI) & (q.blocks - 1) * blockBytes
	first := min(uint32(len(e.wqes)), q.blocks*blockBytes-at)
	if q.f.mem.Read(q.sendBuf+uint64(at), e.wqes[:first]) != nil || q.f.mem.Read(q.sendBuf, e.wqes[first:]) != nil {
		return nil, fmt.Errorf("model: fill: the send queue of QP %#x cannot be read", q.qpn)
	}
	return e, nil
}

// turns completes n requests at most, one of each queue pair in turn.
func (f *filling) turns(list []*filled, n int) error {
	for len(list) > 0 {
		left := list[:0]
		for _, e := range list {
			if f.done == n {
				return nil
			}
			c, ok, err := f.next(e)
			if err == nil && ok {
				left = append(left, e)
				err = f.add(&c)
			}
			if err != nil {
				return err
			}
		}
		list = left
	}
	return nil
}

// next ends the next request that is to be told of, if there is one.
func (f *filling) next(e *filled) (c completion, ok bool, err error) {
	if f.Recv {
		if e.recvCI == e.recvPI {
			return c, false, nil
		}
		c = e.received(opSend, e.recvCI)
		e.recvCI++
		if f.Flush {
			c.opcode, c.syndrome, c.vendor = opRespErr, syndFlushed, vendFlushed
		}
		return c, true, nil
	}
	for len(e.wqes) > 0 {
		be := binary.BigEndian
		word, second, ce := be.Uint32(e.wqes), be.Uint32(e.wqes[4:]), e.wqes[11]&ceMask
		n := int(second&0x3f+3) / 4
		if uint16(word>>8) != e.sendCI || second>>8 != e.qpn || n == 0 || n*blockBytes > len(e.wqes) || !e.may(uint8(word)) {
			return c, false, fmt.Errorf("model: fill: QP %#x: what is posted at block %#x is no request", e.qpn, e.sendCI)
		}
		c = completion{opcode: opRequester, sendOp: uint8(word), qpn: e.qpn, uidx: e.uidx, counter: e.sendCI, solicited: ce == ceEvent}
		e.wqes, e.sendCI = e.wqes[n*blockBytes:], e.sendCI+uint16(n)
		if f.Flush {
			c.opcode, c.syndrome, c.vendor = opReqErr, syndFlushed, vendFlushed
		}
		if f.Flush || ce&ceSignal != 0 {
			return c, true, nil
		}
	}
	return c, false, nil
}

// add puts a completion behind those that are to be written.
func (f *filling) add(c *completion) error {
	q, b := f.to, f.to.d.m.chunk[:]
	if !q.room(1) {
		return fmt.Errorf("model: fill: CQ %#x has room for no more completions", q.cqn)
	}
	c.cq, c.stamp = q, q.stamp()
	entry := b[f.n*q.size:][:q.size]
	cqe := entry[q.size-cqeBytes:]
	clear(entry[:q.size-cqeBytes])
	c.encode(cqe, q.f.ctx.version)
	cqe[63] |= q.owner(q.producer)
	if q.d.m.observe != nil {
		q.tell(c, q.producer, false)
	}
	q.producer++
	f.n++
	f.done++
	f.solicited = f.solicited || c.solicited || c.failed()
	if (f.n+1)*q.size > uint32(len(b)) || q.producer&(q.entries-1) == 0 {
		return f.flush()
	}
	return nil
}

// flush writes the completions that are not in the ring yet, which follow one another there.
func (f *filling) flush() error {
	if f.n == 0 {
		return nil
	}
	q, n, solicited := f.to, f.n, f.solicited
	f.n, f.solicited = 0, false
	if q.f.mem.Write(q.slot(q.producer-n), q.d.m.chunk[:n*q.size]) != nil {
		return fmt.Errorf("model: fill: the ring of CQ %#x cannot be written", q.cqn)
	}
	q.produced(n, solicited)
	return nil
}
