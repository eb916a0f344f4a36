package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// DefaultQKey is the Q_Key of a UD queue pair that was not given one.
const DefaultQKey = 0x11111111

// privilegedQKey marks Q_Keys that only privileged programs may give to a queue
// pair. In a request it stands for the sender's own.
const privilegedQKey = 1 << 31

// Dest is where a datagram goes.
type Dest struct {
	// AH is the way to the port, or the multicast group.
	AH *AH
	// QPN is the number of the queue pair there, 24 bits. Multicast takes
	// MulticastQPN.
	QPN uint32
	// QKey is the Q_Key of that queue pair: it drops datagrams with another
	// one. 0 means the sender's own.
	QKey uint32
}

// MulticastQPN is the queue pair number of datagrams to a group.
const MulticastQPN = 0xffffff

// SendTo sends a datagram from a span. A datagram is one packet, so it holds at
// most QP.MaxDatagram bytes. Nobody says whether it arrived: it completes when
// it has left, and is dropped where the Q_Key differs or no receive is posted.
// Receives need room for GRHLen bytes before it: see there.
func (q *SendQueue) SendTo(id uint64, to Dest, from Span, flags ...SendFlags) {
	q.begin(cq.OpSend, flags)
	q.span(from)
	q.dest(to)
	q.stage(id)
}

// SendToV sends a datagram gathered from several spans.
func (q *SendQueue) SendToV(id uint64, to Dest, from []Span, flags ...SendFlags) {
	q.begin(cq.OpSend, flags)
	q.spans(from)
	q.dest(to)
	q.stage(id)
}

// SendToImm sends a datagram with 32 bits of immediate data in host byte order.
func (q *SendQueue) SendToImm(id uint64, imm uint32, to Dest, from Span, flags ...SendFlags) {
	q.begin(cq.OpSendImm, flags)
	q.wr.Imm = imm
	q.span(from)
	q.dest(to)
	q.stage(id)
}

// SendToInline sends a datagram that is copied into the request: data may be
// reused at once and need not be registered.
func (q *SendQueue) SendToInline(id uint64, to Dest, data []byte, flags ...SendFlags) {
	q.begin(cq.OpSend, flags)
	q.inline(data)
	q.dest(to)
	q.stage(id)
}

// dest checks and enters where a datagram goes. It comes after its data.
func (q *SendQueue) dest(to Dest) {
	qp := q.qp
	if qp.typ != UD {
		q.fail(fmt.Errorf("a datagram on a queue pair of type %v: it sends to its peer alone: %w", qp.typ, ErrInvalid))
		return
	}
	if err := to.AH.usable(qp.pd); err != nil {
		q.fail(err)
		return
	}
	if to.QPN > maxPSN {
		q.fail(fmt.Errorf("queue pair number %#x: at most 24 bits: %w", to.QPN, ErrInvalid))
		return
	}
	// The device would drop it and say that it was sent.
	if uint64(q.wr.Length) > uint64(qp.mtu) {
		q.fail(fmt.Errorf("a datagram of %d bytes: the port takes %d: %w", q.wr.Length, qp.mtu, ErrBounds))
		return
	}
	q.wr.AH, q.wr.DestQPN, q.wr.QKey = to.AH.number, to.QPN, to.QKey
	if to.QKey == 0 {
		q.wr.QKey = qp.qkey.Load()
	}
}

// MaxDatagram is how many bytes a message of a UD queue pair holds: the MTU of
// its port when it was made. Receives need GRHLen more.
func (qp *QP) MaxDatagram() int { return qp.mtu }
