package rxe

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

func TestSmoke(t *testing.T) {
	mem := make([]byte, 384+4*128)
	mem[0], mem[4] = 7, 3
	var eps cq.Endpoints
	var st cq.State
	q, err := NewCQ(mem, &eps, &st)
	if err != nil {
		t.Fatal(err)
	}
	i, _ := eps.Reserve()
	r := cq.NewRequests(4, cq.RecvSide, 17, &st)
	eps.Set(i, &cq.Endpoint{QPN: 17, Recv: r})
	r.Stage(99, cq.OpRecv, 10, false)
	r.Commit()
	mem[384+7] = 1
	mem[384+12] = 128
	mem[384+20] = 5
	mem[384+28] = 17
	mem[128] = 1
	var wcs [2]cq.WC
	n, d := q.Poll(wcs[:])
	if n != 1 || !d || wcs[0].ID != 99 || wcs[0].Bytes != 5 {
		t.Fatal(n, d, wcs[0])
	}
}
