package rxe

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// Nothing on the hot path allocates, whichever way a completion goes.
func TestNoAllocations(t *testing.T) {
	mem := make([]byte, ringBytes(64, 128))
	wcs := make([]cq.WC, 64)
	s := newScene(t, mem, 64, 128, 0)
	p := newParty(&s.eps, &s.state, 30, 4)
	if n := testing.AllocsPerRun(1000, func() {
		for i := range cqeCases {
			s.driver.post(&cqeCases[i].c)
		}
		// And requests that end in the ordinary way, each time.
		s.driver.post(&cqe{wrid: p.postRecv(1, 8), qpn: 30, flags: 3})
		wrid, _ := p.postSend(2, cq.OpSend, 8, false)
		s.driver.post(&cqe{wrid: wrid, qpn: 30})
		s.driver.publish()
		s.q.Poll(wcs)
		s.q.Poll(wcs)
		s.q.Empty()
	}); n != 0 {
		t.Errorf("Poll allocates %v times", n)
	}
	if p.recv.Outstanding()+p.send.Outstanding() != 0 {
		t.Error("the ordinary requests did not end")
	}
	sq, err := NewSQ(heapRing(16, 256, 0), 2, 32)
	if err != nil {
		t.Fatal(err)
	}
	rq, err := NewRQ(heapRing(16, 128, 0), 2)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		for i := range sendGolden {
			sq.Put(&sendGolden[i].req)
		}
		sq.Publish()
		sq.Rollback(2)
		for i := range recvGolden {
			rq.Put(7, recvGolden[i].sges)
		}
		rq.Publish()
		rq.Rollback(2)
		if sq.Space()+rq.Space() < 0 {
			t.Error("negative space")
		}
	}); n != 0 {
		t.Errorf("posting allocates %v times", n)
	}
}
