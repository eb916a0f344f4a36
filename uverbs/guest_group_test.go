package uverbs_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// A group serves queues with a channel of their own, one that has a channel with another,
// and queue pairs spread over them. Its pollers are goroutines, or threads that are bound
// to a processor.
func TestGuestGroup(t *testing.T) {
	d := guestDevice(t)
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.Register(make([]byte, 4096), uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]poll.GroupOptions{
		"goroutines": {Pollers: 2},
		"threads":    {Pollers: 2, Locked: true},
		"adaptive":   {Pollers: 2, Strategy: poll.Adaptive{}},
		"moderated":  {Moderation: &poll.Moderation{Profiles: []poll.Profile{{Count: 4, Period: time.Millisecond}}, Events: 1, Every: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			const queues, rounds = 4, 50
			var handled atomic.Int64
			failed := make(chan error, queues)
			o.Budget = 3
			o.Failed = func(_ poll.Queue, err error) { failed <- err }
			g, err := poll.NewGroup(func(_ poll.Queue, wcs []uverbs.WC) {
				for i := range wcs {
					if err := wcs[i].Err(); err != nil {
						t.Error(err)
					}
				}
				handled.Add(int64(len(wcs)))
			}, &o)
			if err != nil {
				t.Fatal(err)
			}
			channel, err := d.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			defer channel.Close()
			var all []*uverbs.CQ
			for i := range queues {
				opts := &uverbs.CQOptions{Events: true, Vector: i % d.CompletionVectors()}
				if i > 1 {
					opts.Channel = channel
				}
				q, err := d.NewCQ(256, opts)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, q)
				if err := g.Add(q); err != nil {
					t.Fatal(err)
				}
			}
			var qps [2 * queues]*uverbs.QP
			on := make(map[poll.Queue]int)
			for i := range qps {
				q, back, err := g.Pick()
				if err != nil {
					t.Fatal(err)
				}
				defer back()
				if on[q]++; on[q] > 2 {
					t.Error("queue pairs do not spread over the queues")
				}
				if qps[i], err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q.(*uverbs.CQ)}); err != nil {
					t.Fatal(err)
				}
			}
			for i, qp := range qps {
				if err := qp.Connect(t.Context(), qps[i^1].Endpoint(), nil); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- g.Run(ctx) }()
			await := func(n int64) {
				t.Helper()
				for deadline := time.Now().Add(patience); handled.Load() < n; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%d of %d completions came", handled.Load(), n)
					}
				}
			}
			total := int64(0)
			for k := range rounds {
				for _, qp := range qps {
					for id := range uint64(5) {
						qp.SendQueue().Write(id, mr.Remote().At(2048), mr.Span(0, 8))
					}
					if err := qp.SendQueue().Flush(); err != nil {
						t.Fatal(err)
					}
					total += 5
				}
				if k%2 == 0 {
					runtime.Gosched()
				} else {
					await(total)
				}
			}
			await(total)
			if n := g.Stats().Completions(); n != uint64(total) {
				t.Errorf("%d completions are counted of %d", n, total)
			}
			// A queue that is closed leaves; another is taken out, and is its
			// owner's.
			for _, qp := range qps {
				if err := qp.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := all[0].Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-failed; !errors.Is(err, os.ErrClosed) {
				t.Errorf("a queue that was closed failed with %v", err)
			}
			if err := g.Remove(t.Context(), all[2]); err != nil {
				t.Fatal(err)
			}
			w, err := poll.NewWaiter(poll.Event{}, all[2])
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
			for _, q := range all[1:] {
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// What the system says of a device's completion vectors can be read, and soft-RoCE has no
// interrupts.
func TestGuestVectors(t *testing.T) {
	d := guestDevice(t)
	guestSystem(t).onMachine(t, "it reads what the machine says of its devices")
	v, err := poll.ReadVectors(d.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(v.Unknown, poll.ErrVectors) || len(v.Vectors) != 0 || len(v.Others) != 0 {
		t.Errorf("%+v", v)
	}
	if node, ok := d.NUMANode().Number(); !ok && v.Node != -1 && len(v.Near) > 0 {
		t.Errorf("node %d, near %v: the device says %d, %v", v.Node, v.Near, node, ok)
	}
	t.Logf("%s: %v, node %d, near %v", d.Name(), v.Unknown, v.Node, v.Near)
}
