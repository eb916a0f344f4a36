package mlx5

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// Another core writes completions as fast as they are polled; every field of each is
// a function of its number, so that one with fields of two moments is noticed. This
// is what stands in for the proof that no fence is needed between the owner word and
// the rest: see package mmio.
func TestTorn(t *testing.T) {
	rounds := 1_000_000
	if raced {
		rounds = 10_000
	}
	for _, size := range []int{64, 128} {
		testTorn(t, size, uint32(roundsOr(rounds)))
	}
}

const tornPrime = 0x9e3779b97f4a7c15

func testTorn(t *testing.T, size int, rounds uint32) {
	const entries = 64
	var eps cq.Endpoints
	var state cq.State
	mem, record := guarded(t, entries*size, true), guarded(t, 8, true)
	q, d, err := newTestCQ(mem, record, size, 0, func(c *CQConfig) {
		c.Endpoints, c.State, c.Timestamps = &eps, &state, true
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newParty(&eps, &state, 0xabcdef, 2*entries)
	var posted atomic.Uint32
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Far from the end of what is posted and of what is free, so that the
		// words of the other side are seldom looked at.
		var ready uint32
		for i := uint32(0); i != rounds; i++ {
			for i == ready {
				used, err := d.used()
				if err != nil {
					t.Error(err)
					return
				}
				if ready = min(posted.Load(), i+entries-used); ready == i {
					if stop.Load() {
						return
					}
					spin(true)
				}
			}
			b := d.entry(i)[size-64:]
			stamp := uint64(i) * tornPrime
			binary.BigEndian.PutUint32(b[32:], p.index)
			binary.BigEndian.PutUint32(b[36:], uint32(stamp>>13))
			binary.BigEndian.PutUint32(b[44:], uint32(stamp>>40))
			binary.BigEndian.PutUint64(b[48:], stamp)
			binary.BigEndian.PutUint32(b[56:], 0xabcdef)
			var last [4]byte
			binary.BigEndian.PutUint16(last[:], uint16(i))
			last[3] = 3<<4 | d.owner(i)
			store32(b, 60, binary.NativeEndian.Uint32(last[:]))
			d.producer = i + 1
		}
	}()
	defer func() {
		stop.Store(true)
		<-done
	}()
	wcs := make([]cq.WC, 48)
	for i, n := uint32(0), uint32(0); i != rounds; {
		for p.recv.Room() > 0 && n != rounds {
			p.postRecv(uint64(n), 1<<31)
			n++
		}
		posted.Store(n)
		got, _ := q.Poll(wcs)
		if got == 0 {
			spin(true)
		}
		for k := range wcs[:got] {
			w := &wcs[k]
			stamp := uint64(i) * tornPrime
			imm, ok := w.Imm()
			if w.ID != uint64(i) || w.Timestamp != stamp || imm != uint32(stamp>>13) || !ok || w.Bytes != uint32(stamp>>40) || w.QPN != 0xabcdef || w.Opcode != cq.OpRecv || w.Side != cq.RecvSide {
				t.Fatalf("completion %d is %+v", i, *w)
			}
			i++
		}
	}
	if s := state.Stray.Load() + state.Late.Load(); s != 0 {
		t.Errorf("%d dropped", s)
	}
}
