package uverbs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Up and down, with receives posted and staged at the time, over many laps of the
// rings: receives are taken in order, with their own ids and memory, and there is
// room for as many as was asked for, and no more.
func TestSRQResize(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	rq := p.srq.RecvQueue()
	next, heard := uint64(0), uint64(0)
	stage := func(n int) {
		for range n {
			rq.Recv(next, p.mr.Span(int(next%500)*64, 64))
			next++
		}
	}
	hear := func(n int) {
		t.Helper()
		for range n {
			from, text := int(heard%2), fmt.Sprintf("message %d", heard)
			p.send(t, from, text)
			want := WC{ID: heard, QPN: p.server[from].QPN(), Bytes: uint32(len(text)), Opcode: OpRecv, Side: RecvSide}
			if w := wait(t, p.cqs[from], 1)[0]; w != want {
				t.Fatalf("received %+v, want %+v", w, want)
			}
			if got := p.mem.Bytes()[int(heard%500)*64:][:len(text)]; string(got) != text {
				t.Fatalf("receive %d has %q, want %q", heard, got, text)
			}
			heard++
		}
	}
	for _, q := range p.cqs {
		if err := q.ResizeOwned(400); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(3, 5))
	for range 300 {
		stage(rng.IntN(rq.Room() + 1))
		if err := rq.Flush(); err != nil {
			t.Fatal(err)
		}
		hear(rng.IntN(int(next-heard) + 1))
		stage(rng.IntN(rq.Room() + 1))
		used, was, depth := int(next-heard), p.srq.Depth(), 1+rng.IntN(200)
		err := p.srq.Resize(depth)
		if depth < used {
			says(t, "below what is in use", err, ErrQueueFull, fmt.Sprintf("resize SRQ to %d", depth), plural(used, "receive"))
			depth = was
		} else if err != nil {
			t.Fatalf("from %d to %d with %d in use: %v", was, depth, used, err)
		}
		if p.srq.Depth() != depth || rq.Room() != depth-used {
			t.Fatalf("depth %d, room %d, want %d, %d", p.srq.Depth(), rq.Room(), depth, depth-used)
		}
		stage(rq.Room())
		if err := rq.Flush(); err != nil {
			t.Fatal(err)
		}
		rq.Recv(1, p.mr.Span(0, 1))
		says(t, "one more", rq.Flush(), ErrQueueFull, plural(depth, "receive"))
		hear(int(next - heard))
	}
	for _, q := range p.cqs {
		if s := q.Stats(); s != (CQStats{}) {
			t.Errorf("completions were dropped: %+v", s)
		}
	}
}

// The poster resizes beside two pollers and in the middle of traffic: every receive
// ends once.
func TestSRQResizeBesidePollers(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	for _, q := range p.cqs {
		if err := q.ResizeOwned(100); err != nil {
			t.Fatal(err)
		}
	}
	total := uint64(roundsOr(t, 4000))
	var all sync.WaitGroup
	var heard [2][]uint64
	for i := range 2 {
		all.Go(func() {
			wcs := make([]WC, 4)
			for {
				n, err := p.cqs[i].Poll(wcs)
				if err != nil {
					if !isClosed(err) {
						t.Error(err)
					}
					return
				}
				if n == 0 {
					runtime.Gosched()
				}
				for _, w := range wcs[:n] {
					if w.Side == RecvSide {
						heard[i] = append(heard[i], w.ID)
					}
					if w.Err() != nil {
						t.Errorf("%+v", w)
					}
				}
			}
		})
	}
	rq, clients := p.srq.RecvQueue(), p.client[0].sendCQ
	rng := rand.New(rand.NewPCG(1, 2))
	posted, sent, resized := uint64(0), uint64(0), 0
	for sent < total {
		for n := rng.IntN(rq.Room() + 1); n > 0 && posted < total; n-- {
			rq.Recv(posted, p.mr.Span(0, 8))
			posted++
		}
		switch err := p.srq.Resize(1 + rng.IntN(64)); {
		case err == nil:
			resized++
		case !errors.Is(err, ErrQueueFull):
			t.Fatal(err)
		}
		if err := rq.Flush(); err != nil {
			t.Fatal(err)
		}
		for n := rng.Uint64N(posted - sent + 1); n > 0; n-- {
			sq := p.client[rng.IntN(2)].SendQueue()
			sq.SendInline(1, []byte("x"), Unsignaled)
			if err := sq.Flush(); err != nil {
				t.Fatal(err)
			}
			sent++
			var wcs [4]WC
			if _, err := clients.Poll(wcs[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for rq.Room() != p.srq.Depth() {
		runtime.Gosched()
	}
	for i, qp := range p.server {
		if err := errors.Join(qp.Close(), p.cqs[i].Close()); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	ends := map[uint64]int{}
	for _, h := range heard {
		for _, id := range h {
			ends[id]++
		}
	}
	for id := range total {
		if ends[id] != 1 {
			t.Fatalf("receive %d of %d ended %d times", id, total, ends[id])
		}
	}
	if resized == 0 {
		t.Error("the depth never changed")
	}
	t.Logf("%d receives, %d changes of depth", total, resized)
}

// What Resize refuses it says, and changes nothing.
func TestSRQResizeRefused(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	p.post(t, 1, 2, 3)
	p.srq.RecvQueue().Recv(4, p.mr.Span(256, 64))
	if err := p.srq.SetLimit(7); err != nil {
		t.Fatal(err)
	}
	committed := p.cqs[0].committed
	calls := 0
	p.k.Fail(func(c fakekernel.Call) error {
		if c.Command == abi.IB_USER_VERBS_CMD_MODIFY_SRQ {
			calls++
		}
		return nil
	})
	for name, test := range map[string]struct {
		depth int
		is    error
		parts []string
	}{
		"nothing":         {0, ErrInvalid, []string{"depth 0", "1 to 1048576"}},
		"negative":        {-1, ErrInvalid, []string{"depth -1"}},
		"too deep":        {1<<20 + 1, ErrInvalid, []string{"depth 1048577"}},
		"below use":       {3, ErrQueueFull, []string{"resize SRQ to 3", "4 receives outstanding or staged"}},
		"the CQs":         {48, ErrCQFull, []string{"resize SRQ to 48", "40 completions more", "24 of a CQ's 63", "resize the CQ"}},
		"below the limit": {6, ErrInvalid, []string{"depth 6", "limit of the queue is 7"}},
	} {
		says(t, name, p.srq.Resize(test.depth), test.is, test.parts...)
		if p.srq.Depth() != 8 || p.srq.RecvQueue().Room() != 4 || p.cqs[0].committed != committed {
			t.Errorf("%s: depth %d, room %d, %d committed, want 8, 4, %d", name, p.srq.Depth(), p.srq.RecvQueue().Room(), p.cqs[0].committed, committed)
		}
	}
	if calls != 1 {
		t.Errorf("the kernel was asked %d times, want one, which is for its limit", calls)
	}
	p.k.Fail(nil)
	for version, ok := range map[string]bool{
		"5.10.0-46-amd64": true, "5.13.19": true, "5.14": false, "5.15.0-91-generic": false, "6.0.0-6-amd64": false, "6.0.2": false,
		"6.0.3": true, "6.1.0-57-amd64": true, "6.12.118+deb13-amd64": true, "10.0": true, "": true, "5.15.999999999999": false,
	} {
		p.k.SetRelease(version)
		for name, err := range map[string]error{"SRQ": p.srq.Resize(8), "CQ": p.cqs[0].ResizeOwned(63)} {
			if ok && err != nil {
				t.Errorf("Linux %q: %s: %v", version, name, err)
			} else if !ok {
				says(t, name+" of Linux "+version, err, ErrNotSupported, version, "6.0.3", "hangs")
			}
		}
	}
	p.k.SetRelease("6.1")
	lacking := newPool(t, fakekernel.Device{LacksCommands: []uint32{abi.IB_USER_VERBS_CMD_MODIFY_SRQ}})
	says(t, "a driver without", lacking.srq.Resize(9), ErrNotSupported)
	lacking.post(t, 1)
	lacking.dev.attr.Caps &^= DeviceCaps(abi.IB_UVERBS_DEVICE_SRQ_RESIZE)
	says(t, "a device that says it cannot", lacking.srq.Resize(9), ErrNotSupported, "resize SRQ")
	if err := errors.Join(p.server[0].Close(), p.server[1].Close(), p.srq.Close()); err != nil {
		t.Fatal(err)
	}
	says(t, "closed", p.srq.Resize(9), os.ErrClosed)
}

// A depth counts against every CQ that the SRQ completes on, from before the resize
// that makes it greater to after the one that makes it less.
func TestSRQResizeCredits(t *testing.T) {
	r := newRig(t, false)
	srq, err := r.pd.NewSRQ(&SRQOptions{Depth: 10})
	if err != nil {
		t.Fatal(err)
	}
	var qs [2]*CQ
	var qps [3]*QP
	for i := range qps {
		if i < 2 {
			if qs[i], err = r.dev.NewCQ(63, nil); err != nil {
				t.Fatal(err)
			}
		}
		if qps[i], err = r.pd.NewQP(RC, &QPOptions{CQ: qs[i%2], SRQ: srq, SendDepth: 1}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(depth int) {
		t.Helper()
		if qs[0].committed != depth+2 || qs[1].committed != depth+1 {
			t.Errorf("%d and %d are claimed, want %d and %d", qs[0].committed, qs[1].committed, depth+2, depth+1)
		}
	}
	want(10)
	for _, depth := range []int{60, 5, 61} {
		if err := srq.Resize(depth); err != nil {
			t.Fatal(err)
		}
		want(depth)
	}
	says(t, "62 and two sends", srq.Resize(62), ErrCQFull, "1 completions more", "63 of a CQ's 63")
	want(61)
	r.k.FailAt(fakekernel.Ioctl, 3, syscall.EINVAL) // after the rehearsal
	says(t, "the kernel", srq.Resize(20), syscall.EINVAL)
	r.k.Fail(nil)
	want(61)
	for _, qp := range qps {
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if qs[0].committed != 0 || qs[1].committed != 0 || len(srq.claims) != 0 {
		t.Errorf("%d and %d are claimed by %v after all is closed", qs[0].committed, qs[1].committed, srq.claims)
	}
}

// The kernel fails at each call of a resize. Before the one that matters nothing
// has changed; from it on the queue takes nothing more, and says why. What was
// posted completes either way.
func TestSRQResizeFails(t *testing.T) {
	// Create, map and destroy the rehearsal, modify, map.
	const modify, calls = 4, 5
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.EFAULT} {
		for n := 1; n <= calls; n++ {
			p := newPool(t, fakekernel.Device{})
			p.post(t, 1)
			p.srq.RecvQueue().Recv(2, p.mr.Span(128, 64))
			i := 0
			p.k.Fail(func(c fakekernel.Call) error {
				if c.Op == fakekernel.Detach {
					return nil
				}
				if i++; i == n {
					return errno
				}
				return nil
			})
			err := p.srq.Resize(12)
			p.k.Fail(nil)
			if err == nil {
				t.Fatalf("%v at call %d: no error", errno, n)
			}
			lost := n > modify || n == modify && (errno == syscall.ENOMEM || errno == syscall.EFAULT)
			flush := p.srq.RecvQueue().Flush()
			if lost {
				says(t, "flush", flush, errno, "lost in a resize", "close it", "flush of an SRQ")
				says(t, "another resize", p.srq.Resize(12), errno, "lost in a resize")
			} else if flush != nil || p.srq.Depth() != 8 || p.cqs[0].committed != 24 {
				t.Errorf("%v at call %d: flush: %v; depth %d, %d committed", errno, n, flush, p.srq.Depth(), p.cqs[0].committed)
			}
			p.send(t, 0, "first")
			if w := wait(t, p.cqs[0], 1)[0]; w.ID != 1 || w.Bytes != 5 {
				t.Errorf("%v at call %d: received %+v", errno, n, w)
			}
			if !lost {
				p.send(t, 1, "second")
				if w := wait(t, p.cqs[1], 1)[0]; w.ID != 2 || string(p.mem.Bytes()[128:134]) != "second" {
					t.Errorf("%v at call %d: received %+v", errno, n, w)
				}
				if err := p.srq.Resize(12); err != nil {
					t.Errorf("%v at call %d: again: %v", errno, n, err)
				}
			}
			if err := errors.Join(p.server[0].Close(), p.server[1].Close(), p.srq.Close()); err != nil {
				t.Errorf("%v at call %d: close: %v", errno, n, err)
			}
		}
	}
}

// remapped is a file that lets a test change the memory that was mapped.
type remapped struct {
	kernel.File
	change func(ring []byte)
}

func (f *remapped) Map(offset int64, n int) (*kernel.Mapping, error) {
	m, err := f.File.Map(offset, n)
	if err == nil {
		f.change(m.Bytes())
	}
	return m, err
}

// A ring that is not what was asked for is not used.
func TestSRQResizeHostile(t *testing.T) {
	for name, test := range map[string]struct {
		change func(ring []byte)
		says   string
	}{
		"too small": {func(b []byte) { native.PutUint32(b[4:], 7) }, "a ring for 7 receives where 12 were asked"},
		"no ring":   {func(b []byte) { native.PutUint32(b[4:], 6) }, "index mask 0x6"},
		"narrow":    {func(b []byte) { native.PutUint32(b, 4) }, "elements of 16 bytes"},
	} {
		p := newPool(t, fakekernel.Device{})
		p.post(t, 1)
		maps := 0
		p.dev.file = &remapped{p.dev.file, func(ring []byte) {
			if maps++; maps == 2 { // the first is the rehearsal's
				test.change(ring)
			}
		}}
		if err := p.srq.Resize(12); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
		p.srq.RecvQueue().Recv(2, p.mr.Span(0, 8))
		if err := p.srq.RecvQueue().Flush(); err == nil || !strings.Contains(err.Error(), "lost in a resize") {
			t.Errorf("%s: flush: %v", name, err)
		}
	}
}

// The queue is closed beside a poster that resizes it.
func TestSRQResizeBesideClose(t *testing.T) {
	for range 200 {
		r := newRig(t, false)
		srq, err := r.pd.NewSRQ(nil)
		if err != nil {
			t.Fatal(err)
		}
		start := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-start
			for i := 0; ; i++ {
				srq.RecvQueue().Recv(1, r.mr.Span(0, 8))
				err := srq.Resize(1 + i%20)
				if err == nil || errors.Is(err, ErrQueueFull) {
					err = srq.RecvQueue().Flush()
				}
				if errors.Is(err, ErrQueueFull) {
					continue
				}
				if err != nil {
					if !errors.Is(err, os.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
		both.Go(func() {
			<-start
			if err := srq.Close(); err != nil {
				t.Error(err)
			}
		})
		close(start)
		both.Wait()
		r.close(t)
		if t.Failed() {
			return
		}
	}
}
