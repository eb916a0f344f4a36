package model

import "fmt"

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
// holds: one of each queue pair in turn, without carrying them out. It stops when n completions are
// written, or no request is left, and returns how many are. Nobody has to have rung for the requests,
// their doorbell records suffice. The queue pairs stay in their state. Polling programs
// see the completions in the order in which they are written, while it works.
func (d *Device) Fill(qpn uint32, n int, o FillOptions) (int, error) {
	d.m.enter()
	defer d.m.leave()
	q := d.qps[qpn]
	if q == nil || !q.stuck {
		return 0, fmt.Errorf("model: fill: device %s holds no QP %#x", d.cfg.Name, qpn)
	}
	var list []*qp
	for _, p := range d.pairs() {
		if p.sendCQ == q.sendCQ && p.stuck && p.posted(o.Recv) {
			list = append(list, p)
		}
	}
	done := 0
	for len(list) > 0 && done < n {
		left := list[:0]
		for _, p := range list {
			if done == n {
				break
			}
			more, err := p.fill(o)
			if err != nil {
				return done, err
			}
			if more {
				done++
				left = append(left, p)
			}
		}
		list = left
	}
	return done, nil
}

// posted says whether anything is posted to one of its queues.
func (q *qp) posted(recv bool) bool {
	if recv {
		return q.srq == nil && q.receives > 0 && q.loadReceives() && q.recvCI != q.recvPI
	}
	return q.loadSends() && q.sendCI != q.sendPI
}

// fill completes the next request that is to be completed, and says whether there was one.
func (q *qp) fill(o FillOptions) (bool, error) {
	c, to := completion{}, q.sendCQ
	var w wqe
	switch {
	case o.Recv:
		if q.recvCI == q.recvPI {
			return false, nil
		}
		c, to = q.received(opSend, q.recvCI), q.recvCQ
		if o.Flush {
			c.opcode = opRespErr
		}
		q.recvCI++
	default:
		for more := true; more; more = !o.Flush && w.ce&ceSignal == 0 {
			if q.sendCI == q.sendPI {
				return false, nil
			}
			if vendor := q.fetch(&w); vendor != 0 {
				return false, fmt.Errorf("model: fill: QP %#x, request at block %#x: vendor syndrome %#x", q.qpn, q.sendCI, vendor)
			}
			q.sendCI += w.blocks
		}
		c = completion{opcode: opRequester, sendOp: w.opcode, qpn: q.qpn, uidx: q.uidx, counter: w.index}
		if o.Flush {
			c.opcode = opReqErr
		}
	}
	if o.Flush {
		c.syndrome, c.vendor = syndFlushed, vendFlushed
	}
	if !to.add(&c) {
		return false, fmt.Errorf("model: fill: CQ %#x has room for no more completions", to.cqn)
	}
	return true, nil
}
