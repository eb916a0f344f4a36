package mlx5

import "github.com/goverbs/goverbs/cq"

// Sweep drops the completions of queue pair qpn that are in the queue and were not
// polled, returns their receives to the shared queues that they came from, and
// closes the gaps. It returns how many there were, which the State counts as late.
//
// It is for a queue pair that goes back to RESET, after the kernel has put it
// there: its work queues begin anew, and what completed before must not be taken
// for what is posted next. Poller's side.
func (q *CQ) Sweep(qpn uint32) (dropped int) {
	next := q.next
	d := &q.decode
	var gap uint32
	for i := q.end(next); i != next; {
		i--
		*d.own.bytes() = *q.ring.entry(i).bytes()
		if d.own.endsRequest() && d.own.opcodeQPN.Uint32()&low24 == qpn {
			d.returnOwn(i - q.skew)
			d.drop(true)
			gap++
		} else if gap > 0 {
			q.ring.move(i+gap, i)
		}
	}
	if gap > 0 {
		q.give(next + gap)
	}
	return int(gap)
}

// endsRequest says whether the entry is the completion of a request.
func (e *cqe) endsRequest() bool {
	switch e.opcodeAndMore >> 4 {
	case cqeRequester, cqeRequesterError:
		return true
	}
	return e.endsReceive()
}

// endsReceive says whether the entry is the completion of a receive.
func (e *cqe) endsReceive() bool {
	switch e.opcodeAndMore >> 4 {
	case cqeWriteImm, cqeSend, cqeSendImm, cqeSendInvalidate, cqeResponderError:
		return true
	}
	return false
}

// ReturnShared ends the receives of shared queues whose completions are in the
// ring, so that their slots are not lost with it. The queue is closed, so that
// the device adds no more. Any goroutine may call it, also beside Poll.
func (q *CQ) ReturnShared() {
	first := q.loadGiven()
	// The poller works on what is in q.decode.
	d := decoder{endpoints: q.decode.endpoints, numbers: q.decode.numbers, state: q.state}
	for i, end := first, q.end(first); i != end; i++ {
		*d.own.bytes() = *q.ring.entry(i).bytes()
		d.returnOwn(i - q.skew)
	}
}

// returnOwn ends the receive of a shared queue that d.own, which is completion
// number at, is the completion of, if it is, and its queue pair takes its receives
// from one.
func (d *decoder) returnOwn(at uint32) {
	e := &d.own
	if !e.endsReceive() {
		return
	}
	ep, _ := d.endpoint(at)
	if ep == nil || ep.Shared == nil || ep.QPN != e.opcodeQPN.Uint32()&low24 {
		return
	}
	if seq, ok := ep.Shared.At(e.counter.Uint16()); ok {
		var w cq.WC
		ep.Shared.End(ep.QPN, seq, cq.StatusFlushed, &w)
	}
}
