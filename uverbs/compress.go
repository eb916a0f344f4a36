package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// Compression is for CQOptions: Compress makes one. The zero value asks for nothing.
type Compression struct {
	// Programs that compress nothing are spared the code.
	half func(q *CQ, flags uint32, entry int) (cqHalf, error)
}

// Compress lets the device write completions that have most in common as one that is
// whole, and eight bytes for each: it moves an eighth of the bytes over the bus where
// receives come in rows. Such a queue is for busy queue pairs: to poll it takes a lock
// and some more time, the ring cannot be resized, its entries have 64 bytes, and there
// are no time stamps, of which a row would have one.
//
// NewCQ returns ErrNotSupported if the device cannot.
func Compress() *Compression { return &Compression{half: compressed} }

// compressedCQ is ConnectX's half of a CQ whose completions may be compressed.
type compressedCQ struct {
	mlx5CQ
	reader *mlx5.CompressedCQ // in the place of ring
}

// compressed makes the driver's half of a CQ, in the place of the ordinary one. With an
// error it returns that.
func compressed(q *CQ, flags uint32, entry int) (cqHalf, error) {
	d := q.dev
	lacks := func(why string) (cqHalf, error) { return q.half, d.lacks("Compression", why) }
	p, ok := d.provider.(*mlx5Provider)
	switch {
	case !ok:
		return lacks(noneOfThat)
	case flags&cqTimestamps != 0:
		return lacks("a row of completions has one time stamp: without Timestamps it can be had")
	case entry == bigCQEBytes:
		return lacks("entries that compress have 64 bytes")
	}
	can, err := p.compression()
	if err != nil {
		return q.half, err
	}
	format := can.Formats & mlx5.MiniHash
	if format == 0 {
		format = can.Formats & mlx5.MiniChecksum
	}
	if format == 0 {
		return lacks(fmt.Sprintf("the driver, mlx5, says that the device has formats %#x, none of those in %#x that this library reads", uint32(can.Formats), uint32(mlx5.MiniHash|mlx5.MiniChecksum)))
	}
	return &compressedCQ{mlx5CQ: mlx5CQ{p: p, q: q, format: format}}, nil
}

func (c *compressedCQ) made(op string) (cq.CompletionRing, error) {
	if _, err := c.mlx5CQ.made(op); err != nil {
		return nil, err
	}
	c.reader = c.ring.Compressed()
	return c.reader, nil
}

func (c *compressedCQ) arm(solicitedOnly bool) error {
	c.reader.Arm(solicitedOnly)
	return nil
}

func (c *compressedCQ) resize(op string, depth int) (cq.CompletionRing, int, bool, error) {
	return nil, 0, false, c.p.failed(op, fmt.Errorf("%w: its completions may be compressed: make another queue", ErrNotSupported))
}

// compression asks the driver what the device can compress.
func (p *mlx5Provider) compression() (mlx5.Compression, error) {
	if !p.ctx.QueryDeviceData {
		return mlx5.Compression{}, nil
	}
	d := p.dev
	in, out, data := new(abi.UverbsExQueryDevice), new(abi.UverbsExQueryDeviceResp), new(abi.MLX5IBQueryDeviceResp)
	r := newCommand(d.driver, extended(abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE), in.Bytes(), out.Bytes())
	r.out(abi.UVERBS_ATTR_UHW_OUT, data.Bytes())
	if err := d.call("query device", r); err != nil {
		return mlx5.Compression{}, err
	}
	return mlx5.ParseCompression(data.Bytes()), nil
}
