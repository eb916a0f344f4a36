package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// Nothing on the way of a completion allocates, whichever way it goes.
func TestNoAllocations(t *testing.T) {
	for _, v := range []variant{{64, 1, false, true, true}, {128, 0, true, false, false}} {
		const entries = 128
		s := newScene(t, v, aligned(entries*v.size), aligned(8), 0)
		s.q.decode.scatter = func(*cq.Endpoint, cq.Side, uint16, []byte) cq.Status { return cq.StatusSuccess }
		s.q.decode.signature = func(*[64]byte) {}
		p := newParty(&s.eps, &s.state, 0x777, 4)
		s.numbers.Join(p.ep, &s.state, 0)
		wcs := make([]cq.WC, entries)
		if n := testing.AllocsPerRun(500, func() {
			s.keys = s.keys[:0]
			s.reposted = s.reposted[:0]
			for i := range cqeCases {
				if c := &cqeCases[i].c; c.opcode != 15 {
					s.device.add(c)
				}
			}
			// And requests that end in the ordinary way, each time.
			pos, _ := p.postSend(2, cq.OpSend, 8, false, 3)
			s.device.add(&completion{uidx: p.index, qpn: 0x777, counter: pos})
			for _, opcode := range []byte{1, 2, 3, 4} {
				s.device.add(&completion{opcode: opcode, uidx: p.index, qpn: 0x777, counter: p.postRecv(1, 8)})
			}
			s.q.Poll(wcs)
			s.q.Poll(wcs)
			s.q.Empty()
			s.q.Produced()
			s.q.Sweep(0x777)
		}); n != 0 {
			t.Errorf("%v: %v allocations", v, n)
		}
		if p.recv.Outstanding()+p.send.Outstanding() != 0 {
			t.Errorf("%v: the ordinary requests did not end", v)
		}
	}
}
