package rxe

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// What was put is read back, whatever it is, until its slot is used again.
func TestPosted(t *testing.T) {
	q, err := NewSQ(heapRing(4, 512, 2), 8, 256)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range sendGolden {
		req := g.req
		req.WRID = 1000 + uint64(i)
		q.Put(&req)
		q.Publish()
		got, ok := q.Posted(req.WRID)
		want := cq.SendRequest{
			WRID: req.WRID, Op: req.Op, Flags: req.Flags & (cq.Unsignaled | cq.Inline), Length: req.Length, RemoteAddr: req.RemoteAddr, RKey: req.RKey, SGEs: req.SGEs,
			InvalidateRKey: req.InvalidateRKey, AH: req.AH, DestQPN: req.DestQPN, QKey: req.QKey, WindowBytes: req.WindowBytes, WindowLKey: req.WindowLKey,
		}
		op := sendOps[req.Op]
		if op.arm == armNone {
			want.RemoteAddr, want.RKey = 0, 0 // the request has no place for them
		}
		if op.arm != armWindow {
			want.WindowBytes, want.WindowLKey = 0, 0
		}
		if !op.invalidate {
			want.InvalidateRKey = 0
		}
		if want.Flags&cq.Inline != 0 || op.arm == armAtomicWrite {
			want.SGEs = nil
		}
		if len(want.SGEs) == 0 {
			want.SGEs, got.SGEs = nil, got.SGEs[:0:0]
			got.SGEs = nil
		}
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", g.name, ok, got, want)
		}
		if i >= 4 {
			if r, ok := q.Posted(1000 + uint64(i) - 4); ok {
				t.Errorf("%s: still there: %+v", g.name, r)
			}
		}
	}
	rq, err := NewRQ(heapRing(4, 128, 0), 3)
	if err != nil {
		t.Fatal(err)
	}
	rq.Put(7, sges)
	rq.Put(8, nil)
	if got, ok := rq.Posted(7); !ok || !reflect.DeepEqual(got, sges) {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, ok := rq.Posted(8); !ok || len(got) != 0 {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, ok := rq.Posted(9); ok {
		t.Errorf("%+v", got)
	}
}

// Whatever stands in the ring, reading it back stays in it.
func TestPostedHostile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, high := range []bool{false, true} {
		send, recv := guarded(t, 384+4*512, high), guarded(t, 384+4*64, high)
		copy(send, heapRing(4, 512, 0)[:384])
		copy(recv, heapRing(4, 64, 0)[:384])
		sq, err := NewSQ(send, 8, 256)
		if err != nil {
			t.Fatal(err)
		}
		rq, err := NewRQ(recv, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			for _, b := range [][]byte{send[384:], recv[384:]} {
				for i := range b {
					b[i] = byte(rng.Uint32())
					if rng.IntN(2) == 0 {
						b[i] = byte(rng.IntN(3))
					}
				}
			}
			wrid := native.Uint64(send[384+512*rng.IntN(4):])
			if r, ok := sq.Posted(wrid); ok && (len(r.SGEs) > 8 || r.WRID != wrid) {
				t.Fatalf("%+v", r)
			}
			if sges, ok := rq.Posted(native.Uint64(recv[384+64*rng.IntN(4):])); ok && len(sges) > 1 {
				t.Fatalf("%+v", sges)
			}
		}
	}
}
