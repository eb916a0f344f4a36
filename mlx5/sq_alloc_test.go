package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// Nothing on the way to the device allocates, whatever the request.
func TestPostingAllocatesNothing(t *testing.T) {
	for name, bell := range map[string]func([]byte) (*Doorbell, error){"uncached": UncachedDoorbell, "combining": CombiningDoorbell, "BlueFlame": BlueFlame} {
		for _, tr := range []Transport{RC, UD} {
			q := newTestQueue(t, tr, 64, bell)
			if tr == UD {
				addTestAddresses(t, q)
			}
			if n := testing.AllocsPerRun(200, func() {
				for i := range sendGolden {
					if r := &sendGolden[i].req; sendGolden[i].tr == tr {
						r.WRID = cq.MakeWRID(1, cq.SendSide, uint32(i))
						q.Put(r)
					}
				}
				q.Rollback(2)
				q.Publish()
				q.Empty()
			}); n != 0 {
				t.Errorf("%v, %s: posting sends allocates %v times", tr, name, n)
			}
		}
	}
	r := newTestReceiver(t, 64, 4)
	s := newTestShared(t, testLimits, 8, 4)
	if n := testing.AllocsPerRun(200, func() {
		for i := range recvGolden {
			r.Put(uint64(i), recvGolden[i].sges)
			s.Put(uint64(i), recvGolden[i].sges)
		}
		r.Rollback(2)
		s.Rollback(2)
		r.Publish()
		s.Publish()
	}); n != 0 {
		t.Errorf("posting receives allocates %v times", n)
	}
}
