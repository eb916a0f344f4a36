package model

import (
	"math/bits"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// resizeCQ gives a completion queue a new ring. The last entry of the old one is a
// completion of its own kind, which takes an index; what stands before it the program
// moves over.
func (c *call) resizeCQ(cmd *abi.Command, in []byte) error {
	var r abi.UverbsResizeCQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	var u abi.MLX5IBResizeCQ
	q, err := lookupWrite[*cq](c, r.CQHandle)
	switch {
	case err != nil:
		return err
	case r.CQE == 0 || r.CQE > c.f.dev.cfg.MaxCQE:
		return refuse(request.EINVAL, "no entries, or more than max_cqe")
	}
	entries := uint32(1) << bits.Len32(r.CQE)
	if entries == q.entries {
		return c.reply((&abi.UverbsResizeCQResp{CQE: entries - 1}).Bytes())
	}
	if copy(u.Bytes(), c.UHWIn()) < abi.SizeofMLX5IBResizeCQ {
		return refuse(request.EINVAL, "the driver's part of the request is too short")
	}
	switch {
	case u.Reserved0 != 0 || u.Reserved1 != 0:
		return refuse(request.EINVAL, "reserved fields are not zero")
	case uint32(u.CQESize) != q.size:
		return refuse(request.EINVAL, "entries keep their size")
	case q.dead:
		return refuse(request.EINVAL, "the queue is in error")
	}
	if err := c.f.checkRing(u.BufAddr, uint64(entries)*uint64(q.size), q.db); err != nil {
		return err
	}
	q.endSession()
	// The entry for the resize itself needs a place in both rings. Who promised that
	// nothing overruns has not said how far the program is.
	if !q.ignoreOverrun {
		q.loadConsumer()
		if left := q.producer - q.consumer; left+1 > q.entries || left+1 > entries {
			return refuse(request.EINVAL, "the completions that were not polled yet do not fit")
		}
	}
	q.put(&completion{opcode: opResize, cq: q})
	q.buf, q.entries = u.BufAddr, entries
	q.checkOwners()
	return c.reply((&abi.UverbsResizeCQResp{CQE: entries - 1}).Bytes())
}
