package model_test

import (
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

// A query tells of the receive queue that was made, which may hold more than was asked for:
// rdma-core's own tests fill it so far.
func TestQueryReceiveQueue(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	q := c.cq(64, cqOptions{})
	for asked, o := range map[uint32]qpOptions{3: {blocks: 16, receives: 4, shift: 4, asked: 3}, 9: {blocks: 16, receives: 16, shift: 6, asked: 9}} {
		r := c.qp(rc, q, q, o).query()
		if r.MaxRecvWR != o.receives || r.MaxRecvSGE != 1<<o.shift/16 {
			t.Errorf("%d asked for: the query says %d of %d elements", asked, r.MaxRecvWR, r.MaxRecvSGE)
		}
	}
	noViolations(t, m)
}
