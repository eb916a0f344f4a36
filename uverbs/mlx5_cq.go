package uverbs

import (
	"errors"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// The sizes of entries of completion queues.
const (
	cqeBytes    = 64
	bigCQEBytes = 128
)

// mlx5CQ is ConnectX's half of a CQ.
type mlx5CQ struct {
	p      *mlx5Provider
	q      *CQ
	mem    *queueMemory
	node   int             // that was asked for, a NUMANode's next
	entry  int             // bytes
	format mlx5.MiniFormat // of compressed completions, see compressedCQ
	first  *mlx5.CQ        // the ring that the queue was made with: it counts events for its successors
	ring   *mlx5.CQ
	resp   abi.MLX5IBCreateCQResp
}

func (p *mlx5Provider) newCQ(q *CQ) cqHalf { return &mlx5CQ{p: p, q: q} }

func (c *mlx5CQ) create(r *request, depth int, flags uint32, entry, node int) error {
	const op = "create CQ"
	p := c.p
	c.node, c.entry = node, entry
	if entry == 0 {
		c.entry = cqeBytes
	}
	stamps := flags&cqTimestamps != 0
	switch {
	case c.entry != cqeBytes && c.entry != bigCQEBytes:
		return invalid("%s: entries of %d bytes: 64 or 128", op, entry)
	case stamps && p.dev.attr.TimestampMask == 0:
		return p.dev.lacks("Timestamps", "the device has no clock")
	}
	entries := mlx5.CQEntries(depth)
	var err error
	if c.mem, err = p.newMemory(entries*c.entry, c.node); err != nil {
		return p.failed(op, err)
	}
	uar := p.uars.shared
	config := mlx5.CQConfig{
		Buffer: c.mem.ring(entries * c.entry), Record: c.mem.record,
		UAR: uar.mapping.Bytes(), Tell: uar.mapping.Tell,
		EntrySize: c.entry, Endpoints: &p.dev.endpoints, State: &c.q.state, Ethernet: p.ethernet,
		Timestamps: stamps, IgnoreOverrun: flags&cqIgnoreOverrun != 0,
	}
	if c.ring, err = mlx5.NewCQ(config); err != nil {
		return p.failed(op, err)
	}
	c.first = c.ring
	in, inAttribute, err := mlx5.CreateCQ{
		Buffer: address(config.Buffer), Record: address(config.Record), EntryBytes: c.entry,
		UAR: uar.PageID, DynamicUAR: p.ctx.Dynamic(), Compress: c.format,
	}.Encode()
	if err != nil {
		return p.failed(op, err)
	}
	if flags != 0 {
		r.in32(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, flags)
	}
	r.in32(abi.UVERBS_ATTR_CREATE_CQ_CQE, uint32(entries-1))
	r.in(abi.UVERBS_ATTR_UHW_IN, in)
	r.out(abi.UVERBS_ATTR_UHW_OUT, c.resp.Bytes())
	if inAttribute {
		r.in32(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, uar.PageID)
	}
	return nil
}

func (c *mlx5CQ) made(op string) (cq.CompletionRing, error) {
	cqn, err := mlx5.ParseCreateCQ(c.resp.Bytes())
	if err != nil {
		return nil, c.p.failed(op, err)
	}
	c.ring.SetNumber(cqn)
	return c.ring, nil
}

func (c *mlx5CQ) arm(solicitedOnly bool) error {
	c.ring.Arm(solicitedOnly)
	return nil
}

func (c *mlx5CQ) eventTaken() { c.first.EventTaken() }

func (c *mlx5CQ) moderated() { c.first.Moderated() }

func (c *mlx5CQ) resize(op string, depth int) (cq.CompletionRing, int, bool, error) {
	p, d := c.p, c.p.dev
	entries := mlx5.CQEntries(depth)
	if uint32(entries) == c.ring.Capacity() {
		// The kernel does nothing then: no completion would end the old ring.
		return c.ring, entries - 1, false, nil
	}
	bytes := entries * c.entry
	mapping, err := p.alloc(bytes, c.node)
	if err != nil {
		return nil, 0, false, p.failed(op, err)
	}
	uhw, err := mlx5.ResizeCQ{Buffer: address(mapping.Bytes()), EntryBytes: c.entry}.Encode()
	if err != nil {
		return nil, 0, false, p.failed(op, err)
	}
	in, out := &abi.UverbsResizeCQ{CQHandle: c.q.handle, CQE: uint32(entries - 1)}, new(abi.UverbsResizeCQResp)
	r := newCommand(d.driver, abi.IB_USER_VERBS_CMD_RESIZE_CQ, in.Bytes(), out.Bytes())
	r.in(abi.UVERBS_ATTR_UHW_IN, uhw)
	ring, err := c.ring.Resize(mapping.Bytes()[:bytes:bytes], func() error { return d.call(op, r) })
	if ring == nil {
		mapping.Detach()
		return nil, 0, false, err
	}
	old := c.mem.mapping
	c.ring, c.mem.mapping = ring, mapping
	old.Detach() // the device writes to the new one
	if errors.Is(err, mlx5.ErrResize) {
		return nil, 0, true, p.failed(op, err)
	}
	return ring, int(out.CQE), false, nil
}

func (c *mlx5CQ) memory() *kernel.Mapping { return c.mem.mapping }

func (*mlx5CQ) keep() {} // the memory is the program's

func (c *mlx5CQ) detach(destroyed bool) error {
	if c.mem == nil {
		return nil
	}
	return c.mem.detach(destroyed)
}
