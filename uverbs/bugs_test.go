package uverbs

// Faults that other projects' verbs libraries, drivers and programs had, one test
// for each kind that can occur here. The numbers are those of a collection of such
// reports; the addresses are where they are public. This file has events and
// waiting; bugs_ends_test.go has what becomes of requests, bugs_life_test.go how
// objects end, bugs_connectx_test.go what only a ConnectX has.

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// within fails the test if f takes for ever.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s blocks", what)
	}
}

// receive offers a receive to b and lets a send to it.
func (r *rig) receive(t testing.TB, id uint64, flags ...SendFlags) {
	t.Helper()
	r.b.RecvQueue().Recv(id, r.mr.Span(4096, 8))
	r.a.SendQueue().Send(id, r.mr.Span(0, 8), flags...)
	if err := errors.Join(r.b.RecvQueue().Flush(), r.a.SendQueue().Flush()); err != nil {
		t.Fatal(err)
	}
}

// takeAll consumes the events of a queue and counts them.
func takeAll(t testing.TB, q *CQ) (n int) {
	t.Helper()
	for {
		ok, err := q.TakeEvent()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return n
		}
		n++
	}
}

// A queue that is armed before its consumer index is in memory may find the device
// sure that it is still full, and silent. https://github.com/Mellanox/libvma/pull/812
func TestBug05ConsumerIndexBeforeArm(t *testing.T) {
	r := newRig(t, true)
	w, err := poll.NewWaiter(poll.Event{}, r.sendQ)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	polled, arms := uint32(0), 0
	ring := r.sendQ.half.(*rxeCQ).mapping.Bytes()
	r.k.Fail(func(c fakekernel.Call) error {
		if c.Command == abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ {
			arms++
			if got := native.Uint32(ring[256:]); got != polled&native.Uint32(ring[4:]) {
				t.Errorf("armed after %d completions with consumer index %d", polled, got)
			}
		}
		return nil
	})
	var wcs [3]WC
	for round := range 100 {
		for range 1 + round%5 {
			r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		}
		var post sync.WaitGroup
		post.Go(func() {
			if err := r.a.SendQueue().Flush(); err != nil {
				t.Error(err)
			}
		})
		for seen := 0; seen < 1+round%5; {
			n, err := w.Wait(t.Context(), wcs[:])
			if err != nil {
				t.Fatal(err)
			}
			seen += n
			polled += uint32(n)
		}
		post.Wait()
	}
	r.k.Fail(nil)
	if arms == 0 {
		t.Error("the queue was never armed")
	}
}

// Arming again, for more or for less, before an event came lost the event, or made
// two of one. (Fixed in irdma by remembering what is armed.)
func TestBug06ArmedMoreThanOnce(t *testing.T) {
	const solicited, any = true, false
	r := newRig(t, true)
	for _, test := range []struct {
		name string
		arms []bool
		flag []SendFlags // of the message that comes then
		want int
	}{
		{"solicited, any, any", []bool{solicited, any, any}, nil, 1},
		{"any, solicited", []bool{any, solicited}, nil, 1},
		{"any, any", []bool{any, any}, nil, 1},
		{"solicited", []bool{solicited}, nil, 0},
		{"solicited, solicited", []bool{solicited, solicited}, []SendFlags{Solicited}, 1},
		{"none", nil, nil, 0},
	} {
		for _, s := range test.arms {
			if err := r.recvQ.Arm(s); err != nil {
				t.Fatal(err)
			}
		}
		r.receive(t, 1, test.flag...)
		if n := takeAll(t, r.recvQ); n != test.want {
			t.Errorf("%s: %d events, want %d", test.name, n, test.want)
		}
		r.receive(t, 2, Solicited) // ends what is armed still
		if n := takeAll(t, r.recvQ); n != 1-test.want && len(test.arms) > 0 {
			t.Errorf("%s: %d events more, want %d", test.name, n, 1-test.want)
		}
		wait(t, r.recvQ, 2)
		wait(t, r.sendQ, 2)
	}
}

// A function that is called on a completion, and polls or arms the queue that calls
// it, must not wait for a lock of the caller; nor may it run twice at a time, nor an
// event get lost for that. (rdma_rxe, from its loss of tasklets in 2023 on.) Here it
// is the function that wakes a waiter, whoever calls it.
func TestBug08WakeUsesItsQueue(t *testing.T) {
	for name, wake := range map[string]func(t *testing.T, r *rig, q, other *CQ) error{
		"event read for another queue": func(t *testing.T, r *rig, q, other *CQ) error {
			if err := q.Arm(false); err != nil {
				return err
			}
			r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
			if err := r.a.SendQueue().Flush(); err != nil {
				return err
			}
			_, err := other.TakeEvent()
			return err
		},
		"overrun":     func(t *testing.T, r *rig, q, other *CQ) error { q.mailbox.kill(q, ErrOverrun); return nil },
		"device gone": func(t *testing.T, r *rig, q, other *CQ) error { r.dev.lose(); <-r.dev.left; return nil },
		"reset": func(t *testing.T, r *rig, q, other *CQ) error {
			r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
			return errors.Join(r.a.RecvQueue().Flush(), r.a.Modify(StateReset))
		},
		"closed": func(t *testing.T, r *rig, q, other *CQ) error { return errors.Join(r.a.Close(), q.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false)
			c, err := r.dev.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			var qs [2]*CQ
			for i := range qs {
				if qs[i], err = r.dev.NewCQ(64, &CQOptions{Channel: c}); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.a.Close(); err != nil {
				t.Fatal(err)
			}
			if r.a, err = r.pd.NewQP(RC, &QPOptions{CQ: qs[0]}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(r.b.Modify(StateReset), r.b.Restart(), r.connect()); err != nil {
				t.Fatal(err)
			}
			var calls, now atomic.Int32
			_, detach, err := qs[0].Attach(func() {
				calls.Add(1)
				if now.Add(1) != 1 {
					t.Error("called twice at a time")
				}
				var wcs [4]WC
				qs[0].Poll(wcs[:])
				qs[0].Arm(false)
				qs[0].TakeEvent()
				runtime.Gosched()
				now.Add(-1)
			})
			if err != nil {
				t.Fatal(err)
			}
			within(t, name, func() {
				if err := wake(t, r, qs[0], qs[1]); err != nil {
					t.Error(err)
				}
			})
			if calls.Load() == 0 {
				t.Error("nobody was woken")
			}
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					for range 100 {
						qs[0].wakeWaiter()
					}
				})
			}
			within(t, "two at a time", both.Wait)
			detach()
		})
	}
}

// The same with two posters, whose completions each may raise the event: none of
// them is slept on.
func TestBug08NoEventIsLost(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(255, &CQOptions{Events: true})
	if err != nil {
		t.Fatal(err)
	}
	const total = 1500
	var posters sync.WaitGroup
	credit := make(chan struct{}, 40)
	for range cap(credit) {
		credit <- struct{}{}
	}
	for range 2 {
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 64})
		if err != nil {
			t.Fatal(err)
		}
		peer, err := r.pd.NewQP(RC, &QPOptions{CQ: r.recvQ, SendDepth: 1, RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := join(qp, peer); err != nil {
			t.Fatal(err)
		}
		posters.Go(func() {
			for i := range uint64(total) {
				<-credit
				qp.SendQueue().Write(i, r.mr.Remote().At(0), r.mr.Span(0, 8))
				if err := qp.SendQueue().Flush(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	w, err := poll.NewWaiter(poll.Event{}, q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wcs [4]WC
	for seen := 0; seen < 2*total; {
		n, err := w.Wait(ctx, wcs[:])
		if err != nil {
			t.Fatalf("after %d of %d: %v", seen, 2*total, err)
		}
		seen += n
		for range n {
			credit <- struct{}{}
		}
	}
	posters.Wait()
}

// A send queue whose completions are polled only when it sends again keeps buffers
// for hours when it is idle. (IPoIB, up to Linux 4.14.) Here a program can end all
// that was sent, signalled or not, without sending more.
func TestBug11DrainAnIdleQueue(t *testing.T) {
	r := newRig(t, false)
	for i := range uint64(3) { // far fewer than would make the library signal by itself
		r.a.SendQueue().Write(i, r.peer.Regions[0].At(0), r.mr.Span(0, 8), Unsignaled)
	}
	r.a.SendQueue().Write(3, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	r.a.SendQueue().Write(4, r.peer.Regions[0].At(0), r.mr.Span(0, 8), Unsignaled)
	if err := r.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var ends []WC
	if err := r.a.Drain(ctx, func(w WC) { ends = append(ends, w) }); err != nil {
		t.Fatal(err)
	}
	if len(ends) != 1 || ends[0].ID != 3 || ends[0].Status != StatusSuccess || r.a.SendQueue().Room() != 16 {
		t.Errorf("ends %+v, room %d", ends, r.a.SendQueue().Room())
	}
}

// Events that were read and not acknowledged made the destruction of their queue
// wait for ever. https://github.com/linux-rdma/rdma-core/pull/657
// Here reading is acknowledging, and what was not read is nobody's.
func TestBug14EventsNotTaken(t *testing.T) {
	for _, shared := range []bool{false, true} {
		r := newRig(t, false)
		opts := &CQOptions{Events: true}
		if shared {
			c, err := r.dev.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			opts.Channel = c
		}
		q, err := r.dev.NewCQ(64, opts)
		if err != nil {
			t.Fatal(err)
		}
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(3) {
			if err := q.Arm(false); err != nil {
				t.Fatal(err)
			}
			qp.RecvQueue().Recv(i, r.mr.Span(0, 8))
			if err := errors.Join(qp.RecvQueue().Flush(), qp.Modify(StateErr), qp.Modify(StateReset)); err != nil {
				t.Fatal(err)
			}
			wait(t, q, 1)
			if err := qp.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		if ok, err := q.TakeEvent(); !ok || err != nil {
			t.Fatalf("one of three events: %v, %v", ok, err)
		}
		within(t, "Close", func() {
			if err := errors.Join(qp.Close(), q.Close()); err != nil {
				t.Error(err)
			}
			says(t, "closed twice", q.Close(), os.ErrClosed)
		})
	}
}

// Acknowledging each event by itself is slow, and a counter of acknowledgements
// that wraps, or that nobody moves, blocks. https://github.com/pmem/rpma/issues/1697
// However many events there were, and whatever count of them the kernel reports,
// Close does not wait for one.
func TestBug15EventsNeedNoAcknowledgement(t *testing.T) {
	for _, reported := range []uint32{0, 1, 1<<32 - 1} {
		r := newRig(t, true)
		for i := range 500 {
			if err := r.sendQ.Arm(false); err != nil {
				t.Fatal(err)
			}
			r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
			if err := r.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			wait(t, r.sendQ, 1)
			if i%2 == 0 { // every other one stays
				if ok, err := r.sendQ.TakeEvent(); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		}
		r.k.Tamper(func(c fakekernel.Call, attr uint16, out []byte) []byte {
			if c.Method == (fakekernel.Method{Object: abi.UVERBS_OBJECT_CQ, Method: abi.UVERBS_METHOD_CQ_DESTROY}) && len(out) == 8 {
				native.PutUint32(out, reported)
				native.PutUint32(out[4:], reported)
			}
			return out
		})
		within(t, "Close", func() {
			if err := errors.Join(r.a.Close(), r.b.Close(), r.sendQ.Close()); err != nil {
				t.Error(err)
			}
		})
		r.k.Tamper(nil)
	}
}

// staleEvents is a channel on which records come that the kernel had queued before.
type staleEvents struct {
	kernel.EventFile
	records []uint64
}

func (f *staleEvents) Read(p []byte) (int, error) {
	if len(f.records) == 0 {
		return 0, syscall.EAGAIN
	}
	native.PutUint64(p, f.records[0])
	f.records = f.records[1:]
	return 8, nil
}

// An event of a queue that was destroyed reached what had its place by then. (Fixed
// in bnxt_re by waiting for as many events as the firmware said.) Here the name of
// an object in events is never used again.
func TestBug16EventAfterClose(t *testing.T) {
	r := newRig(t, false)
	c, err := r.dev.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[uint64]bool{}
	var old []uint64
	for range 50 {
		q, err := r.dev.NewCQ(8, &CQOptions{Channel: c})
		if err != nil {
			t.Fatal(err)
		}
		if ids[q.id] {
			t.Fatalf("name %d is used again", q.id)
		}
		ids[q.id] = true
		old = append(old, q.id)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	q, err := r.dev.NewCQ(8, &CQOptions{Channel: c})
	if err != nil {
		t.Fatal(err)
	}
	wakes := 0
	_, detach, err := q.Attach(func() { wakes++ })
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	file := c.file
	c.file = &staleEvents{file, append(old, 0, 1<<63)}
	if n := takeAll(t, q); n != 0 || wakes != 0 {
		t.Errorf("%d events and %d wakes of queues that are gone", n, wakes)
	}
	c.file = file
	for _, id := range old { // the asynchronous kind
		record := abi.UverbsAsyncEventDesc{Element: id, EventType: uint32(EventCQError)}
		e := r.dev.async.decode(record.Bytes())
		if r.dev.async.handle(e); e.CQ != nil {
			t.Errorf("%v of a queue that is gone", e)
		}
	}
	var wcs [1]WC
	if n, err := q.Poll(wcs[:]); n != 0 || err != nil || q.state.Load()&cq.Dead != 0 {
		t.Errorf("the new queue has %d, %v", n, err)
	}
}
