package uverbs_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// pair is two connected RC queue pairs of one device and a region that each may
// read and write.
type pair struct {
	dev  *uverbs.Device
	pd   *uverbs.PD
	q    *uverbs.CQ
	mem  *uverbs.Memory
	mr   *uverbs.MR
	a, b *uverbs.QP
	peer *uverbs.Peer // as a sees b
}

const (
	pairMemory = 1 << 20
	allAccess  = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead
)

func newPair(t testing.TB, events bool) *pair {
	t.Helper()
	return newPairOn(t, guestDevice(t), events)
}

func newPairOn(t testing.TB, d *uverbs.Device, events bool) *pair {
	t.Helper()
	p := &pair{dev: d}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.pd, err = p.dev.NewPD()
	must(err)
	p.mem, err = uverbs.Alloc(pairMemory, nil)
	must(err)
	p.mr, err = p.pd.Register(p.mem.Bytes(), allAccess)
	must(err)
	p.q, err = p.dev.NewCQ(256, &uverbs.CQOptions{Events: events})
	must(err)
	opts := &uverbs.QPOptions{CQ: p.q, SendDepth: 32, RecvDepth: 32, SendSGE: 4, RecvSGE: 4, Inline: 64}
	p.a, err = p.pd.NewQP(uverbs.RC, opts)
	must(err)
	p.b, err = p.pd.NewQP(uverbs.RC, opts)
	must(err)
	p.connect(t)
	return p
}

func (p *pair) connect(t testing.TB) {
	t.Helper()
	ca, cb := net.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := p.b.Handshake(ctx, cb, p.mr.Remote())
		done <- err
	}()
	var err error
	if p.peer, err = p.a.Handshake(ctx, ca, p.mr.Remote()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// wait polls for n completions.
func (p *pair) wait(t testing.TB, n int) []uverbs.WC {
	t.Helper()
	var all []uverbs.WC
	var wcs [8]uverbs.WC
	for end := time.Now().Add(patience); len(all) < n; {
		k, err := p.q.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, wcs[:k]...)
		if time.Now().After(end) {
			t.Fatalf("%d of %d completions after 20s: %+v", len(all), n, all)
		}
	}
	return all
}

func find(t testing.TB, wcs []uverbs.WC, side uverbs.Side) uverbs.WC {
	t.Helper()
	for _, w := range wcs {
		if w.Side == side {
			return w
		}
	}
	t.Fatalf("no completion on the %v side in %+v", side, wcs)
	return uverbs.WC{}
}

// Each operation moves the right bytes, and its completion says what happened,
// field by field.
func TestGuestOperations(t *testing.T) {
	p := newPair(t, false)
	buf := p.mem.Bytes()
	sq, rq := p.a.SendQueue(), p.b.RecvQueue()
	pattern := func(seed byte, n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = seed + byte(i*7)
		}
		return b
	}
	const dst = 512 << 10
	for _, test := range []struct {
		name  string
		n     int
		recv  bool
		post  func(n int)
		into  int // where the data shows up
		send  uverbs.Opcode
		got   uverbs.Opcode
		imm   uint32
		inbuf bool
	}{
		{"send", 100, true, func(n int) { sq.Send(1, p.mr.Span(0, n)) }, dst, uverbs.OpSend, uverbs.OpRecv, 0, false},
		{"send of many packets", 70000, true, func(n int) { sq.Send(1, p.mr.Span(0, n)) }, dst, uverbs.OpSend, uverbs.OpRecv, 0, false},
		{"send of nothing", 0, true, func(n int) { sq.Send(1, p.mr.Span(0, n)) }, dst, uverbs.OpSend, uverbs.OpRecv, 0, false},
		{"send, gathered", 90, true, func(n int) {
			sq.SendV(1, []uverbs.Span{p.mr.Span(0, 1), p.mr.Span(1, 50), p.mr.Span(51, 0), p.mr.Span(51, n-51)})
		}, dst, uverbs.OpSend, uverbs.OpRecv, 0, false},
		{"send inline", 60, true, func(n int) { sq.SendInline(1, bytes.Clone(buf[:n])) }, dst, uverbs.OpSend, uverbs.OpRecv, 0, false},
		{"send with immediate", 33, true, func(n int) { sq.SendImm(1, 0xdeadbeef, p.mr.Span(0, n)) }, dst, uverbs.OpSendImm, uverbs.OpRecv, 0xdeadbeef, false},
		{"write", 4096, false, func(n int) { sq.Write(1, p.peer.Regions[0].At(dst), p.mr.Span(0, n)) }, dst, uverbs.OpWrite, 0, 0, false},
		{"write, gathered", 99, false, func(n int) {
			sq.WriteV(1, p.peer.Regions[0].At(dst), []uverbs.Span{p.mr.Span(0, 90), p.mr.Span(90, n-90)})
		}, dst, uverbs.OpWrite, 0, 0, false},
		{"write inline", 64, false, func(n int) { sq.WriteInline(1, p.peer.Regions[0].At(dst), bytes.Clone(buf[:n])) }, dst, uverbs.OpWrite, 0, 0, false},
		{"write with immediate", 5000, true, func(n int) { sq.WriteImm(1, 7, p.peer.Regions[0].At(dst+4096), p.mr.Span(0, n)) }, dst + 4096, uverbs.OpWriteImm, uverbs.OpRecvWriteImm, 7, true},
		{"read", 9000, false, func(n int) { sq.Read(1, p.mr.Span(dst, n), p.peer.Regions[0].At(0)) }, dst, uverbs.OpRead, 0, 0, false},
		{"read, scattered", 80, false, func(n int) {
			sq.ReadV(1, []uverbs.Span{p.mr.Span(dst, 30), p.mr.Span(dst+30, n-30)}, p.peer.Regions[0].At(0))
		}, dst, uverbs.OpRead, 0, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := pattern(byte(len(test.name)), test.n)
			copy(buf, want)
			clear(buf[dst : dst+100000])
			ends := 1
			if test.recv {
				ends = 2
				rq.RecvV(2, []uverbs.Span{p.mr.Span(dst, 40), p.mr.Span(dst+40, 100000)})
				if err := rq.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			test.post(test.n)
			if err := sq.Flush(); err != nil {
				t.Fatal(err)
			}
			wcs := p.wait(t, ends)
			for _, w := range wcs {
				if err := w.Err(); err != nil {
					t.Fatal(err)
				}
			}
			s := find(t, wcs, uverbs.SendSide)
			if want := (uverbs.WC{ID: 1, QPN: p.a.QPN(), Bytes: uint32(test.n), Opcode: test.send}); s != want {
				t.Errorf("send completion\n got %+v\nwant %+v", s, want)
			}
			if test.recv {
				r := find(t, wcs, uverbs.RecvSide)
				want := uverbs.WC{ID: 2, QPN: p.b.QPN(), Bytes: uint32(test.n), Opcode: test.got, Side: uverbs.RecvSide}
				if test.imm != 0 {
					want.SetImm(test.imm)
				}
				if r != want {
					t.Errorf("receive completion\n got %+v\nwant %+v", r, want)
				}
			}
			if got := buf[test.into : test.into+test.n]; !bytes.Equal(got, want) {
				t.Errorf("the data differs: %x..., want %x...", got[:min(16, len(got))], want[:min(16, len(want))])
			}
			if tail := buf[test.into+test.n]; tail != 0 {
				t.Errorf("a byte past the end was written: %#x", tail)
			}
		})
	}
	if s := p.q.Stats(); s != (uverbs.CQStats{}) {
		t.Errorf("completions were dropped: %+v", s)
	}
}

// Unsignalled requests complete nothing, over many laps of the ring, and the
// queue never fills up for lack of completions.
func TestGuestUnsignaled(t *testing.T) {
	p := newPair(t, false)
	sq := p.a.SendQueue()
	posted, ends := 0, 0
	var wcs [16]uverbs.WC
	deadline := time.Now().Add(patience)
	for posted < 500 {
		n := min(sq.Room(), 7)
		for i := range n {
			posted++
			if i == n-1 && posted%5 == 0 {
				sq.Write(uint64(posted), p.peer.Regions[0].At(4096), p.mr.Span(0, 8))
				ends++
				continue
			}
			sq.Write(uint64(posted), p.peer.Regions[0].At(4096), p.mr.Span(0, 8), uverbs.Unsignaled)
		}
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
		k, err := p.q.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wcs[:k] {
			if w.ID%5 != 0 || w.Err() != nil {
				t.Fatalf("completion %+v", w)
			}
			ends--
		}
		if time.Now().After(deadline) {
			t.Fatalf("stuck after %d requests, room %d", posted, sq.Room())
		}
	}
	for ends > 0 {
		p.wait(t, 1)
		ends--
	}
}

// A waiter sleeps until there is a completion, in both ways of sleeping.
func TestGuestEvents(t *testing.T) {
	if simulated() {
		if w, err := poll.NewWaiter(poll.Event{Thread: true}, newPair(t, true).q); err == nil {
			t.Errorf("%v waits for a descriptor that is not there", w)
		}
	}
	for name, how := range waysToWait() {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, true)
			w, err := poll.NewWaiter(how, p.q)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var wcs [4]uverbs.WC
			for i := range 50 {
				var post sync.WaitGroup
				post.Go(func() {
					time.Sleep(time.Duration(i%3) * time.Millisecond)
					p.a.SendQueue().Write(uint64(i), p.peer.Regions[0].At(0), p.mr.Span(4096, 64))
					if err := p.a.SendQueue().Flush(); err != nil {
						t.Error(err)
					}
				})
				n, err := w.Wait(ctx, wcs[:])
				post.Wait() // its Flush may not have returned yet
				if err != nil {
					t.Fatal(err)
				}
				if n != 1 || wcs[0].ID != uint64(i) || wcs[0].Err() != nil {
					t.Fatalf("round %d: %d completions, %+v", i, n, wcs[0])
				}
			}
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if n, err := w.Wait(short, wcs[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a wait without traffic: %d, %v", n, err)
			}
		})
	}
}
