package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/rxe"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// rxeQP is soft-RoCE's half of a queue pair.
type rxeQP struct {
	qp         *QP
	resp       abi.RxeCreateQPResp
	recv, send *kernel.Mapping
}

func (*rxeProvider) newQP(qp *QP) qpHalf { return &rxeQP{qp: qp} }

func (p *rxeQP) create(r *request) error {
	r.out(abi.UVERBS_ATTR_UHW_OUT, p.resp.Bytes())
	return nil
}

// made maps both rings and makes the queues that write to them.
func (p *rxeQP) made(op string, granted *abi.UverbsQPCap, _, receives *cq.Requests) (cq.SendRing, cq.RecvRing, error) {
	qp, d, l := p.qp, p.qp.dev, &p.qp.limits
	fail := func(err error) (cq.SendRing, cq.RecvRing, error) {
		p.detach(false)
		return nil, nil, err
	}
	broken := func(err error) (cq.SendRing, cq.RecvRing, error) {
		return fail(&Error{Op: op, Device: d.info.Name, Err: err})
	}
	// What the kernel says it grants is hostile input too: the rings check it.
	l.SendSGE = max(l.SendSGE, int(granted.MaxSendSGE))
	l.Inline = max(l.Inline, int(granted.MaxInlineData))
	var err error
	var rq cq.RecvRing = noRing{}
	if receives != nil {
		if p.recv, err = d.mapRing(op, p.resp.RQMI); err != nil {
			return fail(err)
		}
		l.RecvSGE = max(l.RecvSGE, int(granted.MaxRecvSGE))
		ring, err := rxe.NewRQ(p.recv.Bytes(), l.RecvSGE)
		if err != nil {
			return broken(err)
		}
		if ring.Capacity() < l.RecvDepth {
			return broken(fmt.Errorf("a ring for %d receives where %d were asked", ring.Capacity(), l.RecvDepth))
		}
		rq = ring
	}
	if p.send, err = d.mapRing(op, p.resp.SQMI); err != nil {
		return fail(err)
	}
	sq, err := rxe.NewSQ(p.send.Bytes(), l.SendSGE, l.Inline)
	if err != nil {
		return broken(err)
	}
	if sq.Capacity() < l.SendDepth {
		return broken(fmt.Errorf("a ring for %d sends where %d were asked", sq.Capacity(), l.SendDepth))
	}
	qp.sq.bell = newDoorbell(qp)
	return sq, rq, nil
}

// wasReset has nothing to do: the kernel wipes the rings.
func (*rxeQP) wasReset() {}

// keep: nobody wants to know what is in the rings, and to copy them takes long.
func (p *rxeQP) keep() { p.detach(true) }

func (p *rxeQP) detach(bool) {
	for _, m := range []*kernel.Mapping{p.recv, p.send} {
		if m != nil {
			m.Detach()
		}
	}
}

// noRing is the receive ring of a queue pair that has an SRQ.
type noRing struct{}

func (noRing) Put(uint64, []cq.SGE) {}
func (noRing) Publish()             {}
func (noRing) Rollback(uint32)      {}
func (noRing) Empty() bool          { return true }
