package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// mlx5SRQ is ConnectX's half of an SRQ.
type mlx5SRQ struct {
	p      *mlx5Provider
	s      *SRQ
	size   mlx5.SharedSize
	memory *queueMemory
	ring   *mlx5.SRQ
	resp   abi.MLX5IBCreateSRQResp
}

func (p *mlx5Provider) newSRQ(s *SRQ) srqHalf { return &mlx5SRQ{p: p, s: s} }

func (h *mlx5SRQ) create(r *request, o *SRQOptions, table *cq.SharedRequests) error {
	const op = "create SRQ"
	p := h.p
	var err error
	if h.size, err = mlx5.SizeShared(p.ctx.Limits, uint32(o.Depth), uint32(o.SGE)); err != nil {
		return fmt.Errorf("goverbs: %s: %s: %w: %w", p.dev.info.Name, op, ErrInvalid, err)
	}
	if h.memory, err = p.newMemory(h.size.Bytes, 0); err != nil {
		return p.failed(op, err)
	}
	// It links its elements, before the kernel is told where they are.
	h.ring, err = mlx5.NewSRQ(mlx5.SRQConfig{Memory: h.memory.ring(h.size.Bytes), Record: h.memory.record, Size: h.size, Requests: table})
	if err != nil {
		return p.failed(op, err)
	}
	in, err := mlx5.CreateSRQ{Buffer: address(h.memory.mapping.Bytes()), Record: address(h.memory.record)}.Encode()
	if err != nil {
		return p.failed(op, err)
	}
	r.in32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, h.size.Elements-1)
	r.in(abi.UVERBS_ATTR_UHW_IN, in)
	r.out(abi.UVERBS_ATTR_UHW_OUT, h.resp.Bytes())
	return nil
}

func (h *mlx5SRQ) made(op string, _ int, _ uint32) (cq.RecvRing, error) {
	if _, err := mlx5.ParseCreateSRQ(h.resp.Bytes()); err != nil {
		return nil, h.p.failed(op, err)
	}
	h.s.sge = int(h.size.MaxSGE)
	return h.ring, nil
}

func (*mlx5SRQ) limit(*request) {}

func (h *mlx5SRQ) resizable() error {
	return fmt.Errorf("goverbs: %s: resize SRQ: %w by the driver of ConnectX: make another", h.p.dev.info.Name, ErrNotSupported)
}

func (h *mlx5SRQ) resize(string, int) error { return h.resizable() }

func (*mlx5SRQ) keep() {} // the memory is the program's

func (h *mlx5SRQ) detach(destroyed bool) error {
	if h.memory == nil {
		return nil
	}
	return h.memory.detach(destroyed)
}
