package uverbs

import (
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/rxe"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// rxeCQ is soft-RoCE's half of a CQ.
type rxeCQ struct {
	q       *CQ
	resp    abi.RxeCreateCQResp
	mapping *kernel.Mapping
	arms    [2]*request // prebuilt: any completion, solicited ones
}

func (*rxeProvider) newCQ(q *CQ) cqHalf { return &rxeCQ{q: q} }

func (c *rxeCQ) create(r *request, depth int, flags uint32, entry, node int) error {
	if option := deviceOption(flags, entry, node); option != "" {
		return c.q.dev.lacks(option, noneOfThat)
	}
	r.in32(abi.UVERBS_ATTR_CREATE_CQ_CQE, uint32(depth))
	r.out(abi.UVERBS_ATTR_UHW_OUT, c.resp.Bytes())
	return nil
}

func (c *rxeCQ) made(op string) (cq.CompletionRing, error) {
	d := c.q.dev
	mapping, err := d.mapRing(op, c.resp.MI)
	if err != nil {
		return nil, err
	}
	ring, err := rxe.NewCQ(mapping.Bytes(), &d.endpoints, &c.q.state)
	if err != nil {
		mapping.Detach()
		return nil, &Error{Op: op, Device: d.info.Name, Err: err}
	}
	c.mapping = mapping
	if c.q.channel == nil {
		return ring, nil // nobody arms it
	}
	for solicited := range c.arms {
		in := &abi.UverbsReqNotifyCQ{CQHandle: c.q.handle, SolicitedOnly: uint32(solicited)}
		c.arms[solicited] = newCommand(d.driver, abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, in.Bytes(), nil)
	}
	return ring, nil
}

func (c *rxeCQ) arm(solicitedOnly bool) error {
	r := c.arms[0]
	if solicitedOnly {
		r = c.arms[1]
	}
	r.rearm()
	return c.q.dev.call("arm CQ", r)
}

func (*rxeCQ) eventTaken() {}

func (*rxeCQ) moderated() {}

func (c *rxeCQ) resize(op string, depth int) (cq.CompletionRing, int, bool, error) {
	d := c.q.dev
	in, out, rings := new(abi.UverbsResizeCQ), new(abi.UverbsResizeCQResp), new(abi.RxeResizeCQResp)
	in.CQHandle, in.CQE = c.q.handle, uint32(depth)
	r := newCommand(d.driver, abi.IB_USER_VERBS_CMD_RESIZE_CQ, in.Bytes(), out.Bytes())
	r.out(abi.UVERBS_ATTR_UHW_OUT, rings.Bytes())
	if err := d.call(op, r); err != nil {
		return nil, 0, false, err
	}
	// The kernel has moved what was in the old ring to a new one. From here
	// on the old one is dead, so that a failure leaves a queue without any.
	mapping, err := d.mapRing(op, rings.MI)
	if err != nil {
		return nil, 0, true, err
	}
	ring, err := rxe.NewCQ(mapping.Bytes(), &d.endpoints, &c.q.state)
	if err != nil {
		mapping.Detach()
		return nil, 0, true, &Error{Op: op, Device: d.info.Name, Err: err}
	}
	ring.Continue(c.q.ring.Consumed())
	old := c.mapping
	c.mapping = mapping
	// The queue has its new ring, whatever becomes of the old one: the collector
	// unmaps it.
	old.Detach()
	return ring, int(out.CQE), false, nil
}

func (*rxeCQ) memory() *kernel.Mapping { return nil }

func (c *rxeCQ) keep() { c.mapping.Keep() }

func (c *rxeCQ) detach(bool) error {
	if c.mapping == nil {
		return nil
	}
	return c.mapping.Detach()
}
