package uverbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// busyRig is a rig with one of everything that the library lets go of, and with requests
// that wait for their ends.
type busyRig struct {
	*rig
	channel *Channel
	q       *CQ // of the queue pairs below
	srq     *SRQ
	rc, ud  *QP // they receive from srq
	ah      *AH
	mw      *MW
	posted  map[*CQ]int // the ends to come

	// refused says that the kernel failed to destroy something. What stands on that it
	// refuses to destroy then, so the ring of a queue that exists may be copied. It goes
	// with the file.
	refused bool
}

// newBusyRig makes one on a kernel that nobody fails yet. The end of the test closes the
// device and looks for leaks.
func newBusyRig(t *testing.T) *busyRig {
	t.Helper()
	b := &busyRig{rig: &rig{k: fakekernel.New(fakekernel.Device{})}}
	t.Cleanup(func() {
		b.close(t)
		for _, l := range b.k.Leaks() {
			t.Errorf("leaked: %s", l)
		}
		for _, v := range b.k.Violations() {
			if !b.refused || v != "the ring of a CQ that exists was copied" {
				t.Errorf("violation: %s", v)
			}
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.open(true))
	var err error
	b.channel, err = b.dev.NewChannel()
	must(err)
	b.q, err = b.dev.NewCQ(64, &CQOptions{Channel: b.channel})
	must(err)
	b.srq, err = b.pd.NewSRQ(&SRQOptions{Depth: 8})
	must(err)
	b.rc, err = b.pd.NewQP(RC, &QPOptions{CQ: b.q, SRQ: b.srq})
	must(err)
	b.ud, err = b.pd.NewQP(UD, &QPOptions{CQ: b.q, SRQ: b.srq})
	must(err)
	must(b.ud.AttachMulticast(GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}))
	b.ah, err = b.pd.NewAH(b.ud.Endpoint(), nil)
	must(err)
	b.mw, err = b.pd.NewMW()
	must(err)
	const sends, receives, shared = 5, 4, 3
	for i := range uint64(sends) { // these the device does
		b.a.SendQueue().Write(i, b.peer.Regions[0].At(0), b.mr.Span(0, 8))
	}
	for i := range uint64(receives) {
		b.a.RecvQueue().Recv(100+i, b.mr.Span(0, 8))
	}
	for i := range uint64(shared) {
		b.srq.RecvQueue().Recv(200+i, b.mr.Span(0, 8))
	}
	must(errors.Join(b.a.SendQueue().Flush(), b.a.RecvQueue().Flush(), b.srq.RecvQueue().Flush()))
	b.posted = map[*CQ]int{b.sendQ: sends, b.recvQ: receives, b.q: shared}
	return b
}

// lastEnds polls q until it is dead and checks that no request ends twice, nor with another
// failure than a flush or one of those named. It returns how many ended, and why the queue
// is dead.
func lastEnds(t *testing.T, q *CQ, failures ...Status) (n int, why error) {
	t.Helper()
	seen := make(map[uint64]bool)
	var wcs [2]WC
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		n, err := q.Poll(wcs[:])
		for _, w := range wcs[:n] {
			if seen[w.ID] || w.Status != StatusSuccess && w.Status != StatusFlushed && !slices.Contains(failures, w.Status) {
				t.Errorf("one end too many, or a wrong one: %+v", w)
			}
			seen[w.ID] = true
		}
		if err != nil {
			return len(seen), err
		}
		if time.Now().After(end) {
			t.Error("the queue does not die")
			return len(seen), nil
		}
	}
}

// An error at every call to the kernel that the library makes while it lets go of a
// device, one by one. Whatever was not given back for it goes with the file of the device;
// but the file stays for a ring that could not be replaced by a copy, until Close.
func TestUnplugWithAFailureAtEveryCall(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EBUSY, syscall.EIO} {
		for n, more := 1, true; more; n++ {
			t.Run(fmt.Sprintf("%v at call %d", errno, n), func(t *testing.T) {
				r := newBusyRig(t)
				var calls atomic.Int32
				var failed fakekernel.Call
				r.k.Fail(func(c fakekernel.Call) error {
					if int(calls.Add(1)) != n {
						return nil
					}
					failed = c
					return errno
				})
				removed := r.k.Unplug("rxe0")
				r.k.Tell("rxe0")
				lastEvents(t, r.dev)
				letGone(t, r.dev)
				r.k.Fail(nil)
				r.refused = failed.Op == fakekernel.Ioctl
				more = int(calls.Load()) >= n
				if !more && n < 10 {
					t.Errorf("only %d calls", n-1)
				}
				for q, want := range r.posted {
					if n, err := lastEnds(t, q); n != want || !errors.Is(err, ErrDeviceGone) {
						t.Errorf("%v failed: %d requests ended, want %d; %v", failed, n, want, err)
					}
				}
				if failed.Op != fakekernel.Detach {
					isOver(t, removed)
				}
				for _, c := range []interface{ Close() error }{r.mw, r.a, r.b, r.rc, r.ud, r.srq, r.ah, r.sendQ, r.recvQ, r.q, r.channel, r.mr, r.pd, r.dev, r.mem} {
					if err := c.Close(); err != nil {
						t.Errorf("%v failed: close %T: %v", failed, c, err)
					}
				}
				isOver(t, removed)
			})
			if t.Failed() {
				return
			}
		}
	}
}

// Close comes beside the removal, of every object twice, from several goroutines and from
// who reads the events, while others poll and post.
func TestCloseBesideUnplug(t *testing.T) {
	for range roundsOr(t, 20) {
		t.Run("", func(t *testing.T) { // whose end looks for leaks
			r := newBusyRig(t)
			var all sync.WaitGroup
			start := make(chan struct{})
			beside := func(f func()) {
				all.Go(func() {
					<-start
					f()
				})
			}
			beside(func() {
				for range r.dev.Events() {
					if err := r.dev.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
						t.Error(err)
					}
				}
			})
			for q, want := range r.posted {
				beside(func() {
					// Close discards what nobody has polled. Requests name a region that
					// is closed beside them: the device then finds no memory for them.
					n, err := lastEnds(t, q, cq.StatusLocalQPOperation, cq.StatusLocalProtection)
					if q != r.sendQ && n > want || !errors.Is(err, ErrDeviceGone) && !errors.Is(err, os.ErrClosed) {
						t.Errorf("%d requests of %d ended, then %v", n, want, err)
					}
				})
			}
			beside(func() {
				for id := uint64(1 << 32); ; {
					sq := r.b.SendQueue()
					for range sq.Room() {
						id++
						sq.Write(id, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
					}
					if err := errors.Join(sq.Flush(), sq.WaitRoom(t.Context(), 1)); err != nil {
						if !errors.Is(err, ErrDeviceGone) && !errors.Is(err, os.ErrClosed) {
							t.Errorf("the poster: %v", err)
						}
						return
					}
				}
			})
			for range 2 {
				for _, c := range []interface{ Close() error }{r.mw, r.a, r.b, r.rc, r.ud, r.srq, r.ah, r.sendQ, r.recvQ, r.q, r.channel, r.mr, r.pd, r.dev} {
					beside(func() {
						if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, ErrInUse) {
							t.Errorf("close %T: %v", c, err)
						}
					})
				}
			}
			removed := r.k.Unplug("rxe0")
			beside(func() { r.k.Tell("rxe0") })
			close(start)
			within(t, "closing", all.Wait)
			isOver(t, removed)
		})
		if t.Failed() {
			return
		}
	}
}
