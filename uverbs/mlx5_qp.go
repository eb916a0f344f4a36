package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// mlx5QP is ConnectX's half of a queue pair.
type mlx5QP struct {
	p      *mlx5Provider
	qp     *QP
	size   mlx5.QueuePairSize
	memory *queueMemory
	bell   *mlx5.Doorbell
	resp   abi.MLX5IBCreateQPResp
}

func (p *mlx5Provider) newQP(qp *QP) qpHalf { return &mlx5QP{p: p, qp: qp} }

func (h *mlx5QP) create(r *request) error {
	const op = "create QP"
	p, l := h.p, &h.qp.limits
	var err error
	h.size.Send, err = mlx5.SizeSend(p.ctx.Limits, transport(h.qp.typ), uint32(l.SendDepth), uint32(l.SendSGE), uint32(l.Inline), 0)
	if err != nil {
		return fmt.Errorf("goverbs: %s: %s: %w: %w", p.dev.info.Name, op, ErrInvalid, err)
	}
	if h.qp.srq == nil {
		h.size.Recv, err = mlx5.SizeRecv(p.ctx.Limits, uint32(l.RecvDepth), uint32(l.RecvSGE))
		if err != nil {
			return fmt.Errorf("goverbs: %s: %s: %w: %w", p.dev.info.Name, op, ErrInvalid, err)
		}
	}
	if h.memory, err = p.newMemory(h.size.Bytes(), 0); err != nil {
		return p.failed(op, err)
	}
	c := mlx5.CreateQP{
		Buffer: address(h.memory.mapping.Bytes()), Record: address(h.memory.record), Size: h.size,
		UserIndex: h.qp.index.n, DynamicUAR: p.ctx.Dynamic(),
	}
	if c.DynamicUAR {
		if own := p.uars.take(p); own != nil {
			h.memory.slot.register = own
			c.UAR = own.page.PageID + own.UAR
			h.bell, err = own.blueFlame()
		} else {
			h.bell, c.UAR, err = p.uars.sharedBell(p)
		}
		if err != nil {
			return p.failed(op, err)
		}
	}
	in, err := c.Encode(p.ctx.CQEVersion)
	if err != nil {
		return p.failed(op, err)
	}
	r.in(abi.UVERBS_ATTR_UHW_IN, in)
	r.out(abi.UVERBS_ATTR_UHW_OUT, h.resp.Bytes())
	return nil
}

func (h *mlx5QP) made(op string, _ *abi.UverbsQPCap, sends, receives *cq.Requests) (cq.SendRing, cq.RecvRing, error) {
	p, l := h.p, &h.qp.limits
	fail := func(err error) (cq.SendRing, cq.RecvRing, error) { return nil, nil, p.failed(op, err) }
	result, err := mlx5.ParseCreateQP(h.resp.Bytes())
	if err != nil {
		return fail(err)
	}
	if h.bell == nil {
		if h.bell, err = p.uars.staticBell(p, result.Register); err != nil {
			return fail(err)
		}
	}
	l.SendSGE, l.Inline = int(h.size.Send.MaxSGE), int(h.size.Send.MaxInline)
	ring := h.memory.ring(h.size.Bytes())
	c := mlx5.SQConfig{
		Memory: ring[h.size.SendOffset():], Record: h.memory.record, Doorbell: h.bell, QPN: h.qp.qpn,
		Size: h.size.Send, Requests: sends,
	}
	if h.qp.typ == UD {
		c.Addresses = &p.vectors
	}
	sq, err := mlx5.NewSQ(c)
	if err != nil {
		return fail(err)
	}
	if receives == nil {
		return sq, noRing{}, nil
	}
	l.RecvSGE = int(h.size.Recv.MaxSGE)
	rq, err := mlx5.NewRQ(mlx5.RQConfig{
		Memory: ring[:h.size.Recv.Bytes:h.size.Recv.Bytes], Record: h.memory.record, Size: h.size.Recv, Requests: receives,
	})
	if err != nil {
		return fail(err)
	}
	return sq, rq, nil
}

// wasReset makes the device begin at 0, whoever posts first afterwards.
func (h *mlx5QP) wasReset() {
	atomicWord(h.memory.record).Store(0)
}

func (*mlx5QP) keep() {} // the memory is the program's

func (h *mlx5QP) detach(destroyed bool) {
	if h.memory != nil {
		h.memory.detach(destroyed)
	}
}
