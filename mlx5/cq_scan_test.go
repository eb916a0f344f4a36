package mlx5

import (
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// Entries are looked at four at a time where they can be: it comes to the same as one
// at a time, wherever the first is that is not software's, and whether failures, which
// are looked at singly, stand before it.
func TestScan(t *testing.T) {
	const entries = 32
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{64, 128} {
		mem := guarded(t, entries*size, true)
		ring, err := newCQRing(mem, size)
		if err != nil {
			t.Fatal(err)
		}
		c := consumer{ring: ring}
		stops := 0
		for range roundsOr(20_000) {
			lap := byte(rng.UintN(2))
			start := uint32(lap) * entries
			for i := range uint32(entries) {
				last := byte(rng.UintN(5))<<4 | lap // a success
				switch rng.UintN(20) {
				case 0:
					last ^= 1
				case 1:
					last |= cqeInvalid << 4
				case 2:
					last = cqeResponderError<<4 | lap
				case 3:
					last = cqeRequesterError<<4 | lap
				}
				ring.entry(i).opcodeAndMore = last
				ring.entry(i).signature = byte(rng.Uint32()) // beside it, and means nothing
			}
			from := rng.Uint32N(entries)
			n := rng.Uint32N(entries - from + 1)
			want := uint32(0)
			for want < n && c.owned(start+from+want) {
				want++
			}
			if want < n {
				stops++
			}
			if got := c.scan(start+from, n); got != want {
				t.Fatalf("lap %d: of %d entries of %d bytes from %d on, %d are software's, want %d", lap, n, size, from, got, want)
			}
		}
		if stops == 0 {
			t.Error("no scan ended before the last entry")
		}
	}
}

// The byte above the user index has another use with other kinds of queues, and says
// nothing about the queue pair.
func TestByteAboveUserIndex(t *testing.T) {
	const entries, each = 16, 5
	var eps cq.Endpoints
	var state cq.State
	mem, record := guarded(t, entries*64, true), guarded(t, 8, true)
	q, d, err := newTestCQ(mem, record, 64, 0, func(c *CQConfig) { c.Endpoints, c.State = &eps, &state })
	if err != nil {
		t.Fatal(err)
	}
	p := newParty(&eps, &state, 0x1234, 64)
	for i := range uint64(each) {
		// A request that completes, after one that does not.
		p.postSend(100+i, cq.OpWrite, 1, true, 1)
		pos, _ := p.postSend(200+i, cq.OpWrite, 1, false, 1)
		d.add(&completion{uidx: p.index | 0xa5<<24, qpn: p.ep.QPN, counter: pos, sendOpcode: 8})
		d.add(&completion{opcode: cqeSend, uidx: p.index | uint32(i)<<24, qpn: p.ep.QPN, counter: p.postRecv(300+i, 64), bytes: uint32(i)})
	}
	wcs := make([]cq.WC, entries)
	n, drained := q.Poll(wcs)
	if n != 2*each || !drained || state.Stray.Load() != 0 {
		t.Fatalf("%d of %d completions, %d stray, drained: %v", n, 2*each, state.Stray.Load(), drained)
	}
	for i, w := range wcs[:n] {
		if want := uint64(200+i/2) + uint64(i%2)*100; w.ID != want || w.Status != cq.StatusSuccess || w.QPN != p.ep.QPN {
			t.Errorf("completion %d is %+v, want that of request %d", i, w, want)
		}
	}
}
