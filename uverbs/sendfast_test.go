package uverbs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/rxe"
)

// plainQP is a connected queue pair of ConnectX's form on plain memory, at which no
// device looks.
type plainQP struct {
	*QP
	mr  *MR
	mem []byte // ring, then a page with the record, then one with the register
}

func newPlainQP(tb testing.TB, depth, inline uint32) *plainQP {
	tb.Helper()
	size, err := mlx5.SizeSend(mlx5.Limits{SendBytes: 1024, RecvBytes: 512, SendBlocks: 32768, RecvRequests: 32768}, mlx5.RC, depth, 1, inline, 0)
	if err != nil {
		tb.Fatal(err)
	}
	b := plainMemory(tb, size.Bytes+8192)
	bell, err := mlx5.BlueFlame(b[size.Bytes+4096:][:512])
	if err != nil {
		tb.Fatal(err)
	}
	table := cq.NewRequests(size.Requests, cq.SendSide, 7, new(cq.State))
	ring, err := mlx5.NewSQ(mlx5.SQConfig{Memory: b[:size.Bytes], Record: b[size.Bytes:][:8], Doorbell: bell, QPN: 7, Size: size, Requests: table})
	if err != nil {
		tb.Fatal(err)
	}
	return plain(new(mlx5Provider), ring, table, b, int(size.MaxInline))
}

// newPlainSoftQP is the same in soft-RoCE's form, without a doorbell.
func newPlainSoftQP(tb testing.TB, depth, inline uint32) *plainQP {
	tb.Helper()
	slots := uint32(2)
	for slots <= depth {
		slots *= 2
	}
	b := plainMemory(tb, abi.OffRxeQueueBufData+int(slots)*512)
	copy(b, (&abi.RxeQueueBuf{Log2ElemSize: 9, IndexMask: slots - 1, ProducerIndex: slots - 1, ConsumerIndex: slots - 1}).Bytes())
	ring, err := rxe.NewSQ(b, 1, int(inline))
	if err != nil {
		tb.Fatal(err)
	}
	return plain(new(rxeProvider), ring, cq.NewRequests(depth, cq.SendSide, 7, new(cq.State)), b, int(inline))
}

func plainMemory(tb testing.TB, n int) []byte {
	tb.Helper()
	mem, err := Alloc(n, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := mem.Close(); err != nil {
			tb.Error(err)
		}
	})
	return mem.Bytes()
}

func plain(p provider, ring cq.SendRing, table *cq.Requests, b []byte, inline int) *plainQP {
	qp := &QP{modify: newGate(), object: object{dev: &Device{provider: p}}, typ: RC, qpn: 7, index: &userIndex{n: 1}, limits: QPLimits{SendSGE: 1, Inline: inline}}
	qp.state.Store(uint32(StateRTS))
	qp.sq.init(qp, ring, table)
	mr := new(MR)
	mr.now.Store(&region{addr: 0x10000, length: 4096, usable: 4096, access: LocalWrite, lkey: 3})
	return &plainQP{qp, mr, b}
}

// The fast way is the general way: of the same calls, whatever they are and whatever
// comes in between, the same is in ring, record and register, the same fails, and the
// same comes to its end.
func TestFastWay(t *testing.T) {
	t.Run("mlx5", func(t *testing.T) { testFastWay(t, newPlainQP) })
	t.Run("rxe", func(t *testing.T) { testFastWay(t, newPlainSoftQP) })
}

func testFastWay(t *testing.T, newQP func(tb testing.TB, depth, inline uint32) *plainQP) {
	const inline = 100 // at least
	rng := rand.New(rand.NewPCG(8, 6))
	data := make([]byte, 256)
	for i := range data {
		data[i] = byte(i + 1)
	}
	short := 0
	for range 40 {
		depth := uint32(1 + rng.IntN(20))
		fast, general := newQP(t, depth, inline), newQP(t, depth, inline)
		general.sq.fast, general.sq.soft = nil, nil
		both := [2]*plainQP{fast, general}
		for id := range uint64(1500) {
			kind, n, off, extra := rng.IntN(100), 1+rng.IntN(70), rng.IntN(4096-70), rng.IntN(40)
			var flags []SendFlags
			for rng.IntN(3) == 0 {
				flags = append(flags, SendFlags(1<<rng.IntN(3)))
			}
			switch { // what does not fit, now and then
			case extra == 0:
				n = 0
			case extra == 1:
				n = fast.limits.Inline + 1 + rng.IntN(50)
			case extra == 2:
				off = 4090
			case extra == 3:
				flags = append(flags, cq.Inline)
			case extra < 8:
				n = 65 + rng.IntN(fast.limits.Inline-64)
			}
			var errs [2]error
			var wcs [2][8]WC
			var slots [2]cq.Slot
			for i, p := range both {
				sq, to := p.SendQueue(), Remote{Addr: 1 << 40, Length: 5000, RKey: 9}.At(uint64(off))
				span := Span{p.mr, off, n}
				next := sq.requests.Next()
				sq.wr.WRID = 0 // the general way leaves there what it has staged
				switch {
				case kind < 20:
					sq.SendInline(id, data[:n], flags...)
				case kind < 35:
					sq.WriteInline(id, to, data[:n], flags...)
				case kind < 45:
					sq.Send(id, span, flags...)
				case kind < 55:
					sq.Write(id, to, span, flags...)
				case kind < 62:
					sq.Read(id, span, to, flags...)
				case kind < 65:
					sq.SendImm(id, 77, span, flags...)
				case kind < 67: // as BindMW leaves it: the next request waits
					sq.begin(cq.OpLocalInvalidate, flags)
					sq.wr.InvalidateRKey = 5
					sq.stage(id)
				case kind < 68: // as a reset leaves it
					p.resets.Add(2)
				case kind < 69:
					p.ending.Store(true)
					sq.SendInline(id, data[:n])
					p.ending.Store(false)
				case kind < 70:
					access := *p.mr.now.Load()
					access.access ^= LocalWrite
					p.mr.now.Store(&access)
				case kind < 80:
					errs[i] = sq.Flush()
				case kind < 90:
					sq.requests.Abandon(wcs[i][:], sq.requests.Tail(), true)
				case !sq.requests.Idle():
					slots[i] = *sq.requests.Front(sq.requests.Head())
					sq.requests.Complete(sq.requests.Head(), cq.StatusSuccess, &wcs[i][0])
				}
				if p == fast && sq.requests.Next() == next+1 && sq.wr.WRID == 0 {
					short++
				}
			}
			if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) || fmt.Sprint(fast.sq.err) != fmt.Sprint(general.sq.err) {
				t.Fatalf("%v, %v; in the general way %v, %v", errs[0], fast.sq.err, errs[1], general.sq.err)
			}
			if wcs[0] != wcs[1] || slots[0] != slots[1] {
				t.Fatalf("%+v, %v\n%+v, %v", wcs[0], slots[0], wcs[1], slots[1])
			}
			if a, b := fast.sq.Room(), general.sq.Room(); a != b || fast.sq.requests.Staged() != general.sq.requests.Staged() || fast.sq.requests.Quiet() != general.sq.requests.Quiet() {
				t.Fatalf("request %d: room %d, %d", id, a, b)
			}
			if fast.sq.requests.Staged() == 0 && !bytes.Equal(fast.mem, general.mem) {
				t.Fatalf("request %d, a call of kind %d, %v: memory differs", id, kind, flags)
			}
			if fast.flushes() {
				t.Fatal("a call left the queue as if it were writing")
			}
		}
	}
	if short < 4000 {
		t.Errorf("%d requests went the fast way", short)
	}
}
