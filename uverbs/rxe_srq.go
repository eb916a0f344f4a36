package uverbs

import (
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/rxe"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// rxeSRQ is soft-RoCE's half of an SRQ.
type rxeSRQ struct {
	s       *SRQ
	resp    abi.RxeCreateSRQResp
	mapping *kernel.Mapping
}

func (*rxeProvider) newSRQ(s *SRQ) srqHalf { return &rxeSRQ{s: s} }

func (h *rxeSRQ) create(r *request, o *SRQOptions, _ *cq.SharedRequests) error {
	r.in32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, uint32(o.Depth))
	r.out(abi.UVERBS_ATTR_UHW_OUT, h.resp.Bytes())
	return nil
}

func (h *rxeSRQ) made(op string, depth int, sge uint32) (cq.RecvRing, error) {
	mapping, err := h.s.dev.mapRing(op, h.resp.MI)
	if err != nil {
		return nil, err
	}
	// What the kernel says it grants is hostile input too: the ring checks it.
	h.s.sge = max(h.s.sge, int(min(sge, 1<<16)))
	ring, err := h.ring(op, mapping, depth)
	if err == nil {
		h.mapping = mapping
	}
	return ring, err
}

// ring makes the ring of a mapping, which it lets go of if that fails.
func (h *rxeSRQ) ring(op string, mapping *kernel.Mapping, depth int) (*rxe.RQ, error) {
	ring, err := rxe.NewRQ(mapping.Bytes(), h.s.sge)
	if err == nil && ring.Capacity() < depth {
		err = fmt.Errorf("a ring for %d receives where %d were asked", ring.Capacity(), depth)
	}
	if err != nil {
		mapping.Detach()
		return nil, &Error{Op: op, Device: h.s.dev.info.Name, Err: err}
	}
	return ring, nil
}

// limit: soft-RoCE wants its own part, an address to describe a resized ring at,
// also where nothing is resized.
func (*rxeSRQ) limit(r *request) { r.in(abi.UVERBS_ATTR_UHW_IN, new(abi.RxeModifySRQCmd).Bytes()) }

func (h *rxeSRQ) resizable() error { return h.s.dev.exchangesRings("resize SRQ") }

// resize lets the kernel exchange the ring, and maps the new one.
func (h *rxeSRQ) resize(op string, depth int) error {
	s, d := h.s, h.s.dev
	if err := h.rehearse(depth); err != nil {
		return err
	}
	const maxWR = 1 << 0 // IB_SRQ_MAX_WR of enum ib_srq_attr_mask
	info := new(abi.MMInfo)
	in := &abi.UverbsModifySRQ{SRQHandle: s.handle, AttrMask: maxWR, MaxWR: uint32(depth)}
	r := newCommand(d.driver, abi.IB_USER_VERBS_CMD_MODIFY_SRQ, in.Bytes(), nil)
	r.keep = append(r.keep, info.Bytes())
	r.in(abi.UVERBS_ATTR_UHW_IN, (&abi.RxeModifySRQCmd{MmapInfoAddr: address(info.Bytes())}).Bytes())
	if err := d.call(op, r); err != nil {
		if !isErrno(err, syscall.EINVAL, syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP) {
			return s.lose(err)
		}
		if limit, e := s.limit(); e == nil && limit > depth {
			return invalid("%s: depth %d: the limit of the queue is %d: set a lower one first", op, depth, limit)
		}
		return err
	}
	// What was in the old ring is in a new one, and the old one is dead.
	mapping, err := d.mapRing(op, *info)
	if err != nil {
		return s.lose(err)
	}
	ring, err := h.ring(op, mapping, depth)
	if err != nil {
		return s.lose(err)
	}
	ring.TakeOver(s.rq.ring.(*rxe.RQ))
	old := h.mapping
	s.rq.ring, h.mapping = ring, mapping
	old.Unmap() // the poster alone used it; and a whole mapping can always go
	return nil
}

// rehearse makes an SRQ of the new size and destroys it, so that a kernel which has
// no memory for one says so here. Where it finds out while it resizes, soft-RoCE
// before 6.1.192 and 6.12.63 frees the ring that is in use, and the next message
// ends the machine (rxe_srq_from_attr in drivers/infiniband/sw/rxe/rxe_srq.c).
func (h *rxeSRQ) rehearse(depth int) error {
	trial, err := h.s.pd.NewSRQ(&SRQOptions{Depth: depth, SGE: h.s.sge})
	if err != nil {
		return err
	}
	return trial.Close()
}

func (h *rxeSRQ) keep() { h.detach(true) } // as of rxeQP

func (h *rxeSRQ) detach(bool) error {
	if h.mapping == nil {
		return nil
	}
	return h.mapping.Detach()
}
