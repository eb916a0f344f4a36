package uverbs

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// Close of a queue pair, a CQ, a device beside a poller, a poster and a waiter:
// no fault, and the documented errors only.
func TestCloseBesideUse(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	for name, shut := range map[string]func(r *rig) error{
		"QP": func(r *rig) error { return r.a.Close() },
		"CQ": func(r *rig) error {
			return errors.Join(r.a.Close(), r.b.Close(), r.sendQ.Close(), r.recvQ.Close())
		},
		"device": func(r *rig) error { return r.dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				r := newRig(t, true)
				w, err := poll.NewWaiter(poll.Event{}, r.recvQ)
				if err != nil {
					t.Fatal(err)
				}
				start := make(chan struct{})
				var wg sync.WaitGroup
				run := func(f func() error) {
					wg.Go(func() {
						<-start
						for range 1000 {
							if err := f(); err != nil {
								if !errors.Is(err, os.ErrClosed) {
									t.Error(err)
								}
								return
							}
						}
					})
				}
				var sent, received [8]WC
				run(func() error {
					n, err := r.sendQ.Poll(sent[:])
					if n > 0 && err != nil {
						t.Errorf("%d completions with %v", n, err)
					}
					return err
				})
				run(func() error {
					r.a.SendQueue().SendInline(1, []byte("x"))
					if err := r.a.SendQueue().Flush(); !errors.Is(err, ErrQueueFull) {
						return err
					}
					return nil
				})
				run(func() error {
					r.b.RecvQueue().Recv(1, r.mr.Span(0, 8))
					if err := r.b.RecvQueue().Flush(); !errors.Is(err, ErrQueueFull) {
						return err
					}
					return nil
				})
				waiting := make(chan error, 1)
				go func() {
					<-start
					for {
						if _, err := w.Wait(t.Context(), received[:]); err != nil {
							waiting <- err
							return
						}
					}
				}()
				run(func() error { return shut(r) })
				close(start)
				wg.Wait()
				if name == "QP" {
					w.Close()
				}
				if err := <-waiting; !errors.Is(err, os.ErrClosed) {
					t.Errorf("the wait ended with %v", err)
				}
				w.Close()
				r.close(t)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// A queue pair that takes the user index of a closed one gets none of its
// completions.
func TestNoCompletionForAnotherQP(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(1024, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 4}
	indices := map[uint32]int{}
	var wcs [64]WC
	for i := range uint64(2000) {
		qp, err := r.pd.NewQP(RC, opts)
		if err != nil {
			t.Fatal(err)
		}
		indices[qp.index.n]++
		for k := range uint64(3) {
			qp.RecvQueue().Recv(i*10+k, r.mr.Span(0, 1))
		}
		if err := qp.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if err := qp.Modify(StateErr); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 { // its completions stay in the ring and become late
			if err := qp.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want := map[uint64]bool{i * 10: i%3 != 0, i*10 + 1: i%3 != 0, i*10 + 2: i%3 != 0}
		n, err := q.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wcs[:n] {
			if !want[w.ID] {
				t.Fatalf("round %d: completion %+v", i, w)
			}
			delete(want, w.ID)
		}
		for id, missing := range want {
			if missing {
				t.Fatalf("round %d: request %d did not end", i, id)
			}
		}
		if i%3 != 0 {
			if err := qp.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(indices) > 10 {
		t.Errorf("2000 queue pairs, one at a time, took %d user indices", len(indices))
	}
	if s := q.Stats(); s.Stray != 0 || s.Late != 3*667 {
		t.Errorf("%+v", s)
	}
}

// A queue pair that could not be made takes no user index and no credits.
func TestFailedQPsLeaveNothing(t *testing.T) {
	r := newRig(t, false)
	for name, failing := range map[string]func(fakekernel.Call) bool{
		"create": func(c fakekernel.Call) bool {
			return c.Method == fakekernel.Method{Object: abi.UVERBS_OBJECT_QP, Method: abi.UVERBS_METHOD_QP_CREATE}
		},
		"map":    func(c fakekernel.Call) bool { return c.Op == fakekernel.Map },
		"modify": func(c fakekernel.Call) bool { return c.Command == abi.IB_USER_VERBS_CMD_MODIFY_QP },
	} {
		r.k.Fail(func(c fakekernel.Call) error {
			if failing(c) {
				return syscall.ENOMEM
			}
			return nil
		})
		committed := r.sendQ.committed
		for range 20 {
			_, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 1, RecvDepth: 1})
			says(t, name, err, syscall.ENOMEM)
		}
		r.k.Fail(nil)
		if r.sendQ.committed != committed {
			t.Errorf("%s: %d credits, want %d", name, r.sendQ.committed, committed)
		}
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 1, RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		if qp.index.n > 5 {
			t.Errorf("%s: the user index after 20 failures is %d", name, qp.index.n)
		}
		qp.Close()
	}
}
