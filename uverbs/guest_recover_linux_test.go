package uverbs_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// survivor is a queue pair whose peers die in the middle of traffic, one after another.
type survivor struct {
	t      *testing.T
	s      *system
	p      *pair // of which b is a peer that lives in this process
	region uverbs.Remote
	kill   func()
	rounds int
	polls  bool // this goroutine does

	mu    sync.Mutex
	next  uint64
	open  map[uint64]bool // requests under way; true for those that say nothing if they succeed
	done  int
	first uverbs.WC
}

// quickly gives up soon: the peer is dead.
var quickly = &uverbs.ConnectOptions{AckTimeout: 4 * time.Millisecond, Retries: 2}

func (v *survivor) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// see is told of every completion.
func (v *survivor) see(w uverbs.WC) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if w.QPN != v.p.a.QPN() {
		return // the peer's
	}
	if _, ok := v.open[w.ID]; !ok {
		v.t.Errorf("round %d: an end of no request that is under way: %+v", v.rounds, w)
	}
	delete(v.open, w.ID)
	switch {
	case w.Status == uverbs.StatusSuccess:
		v.done++
	case w.Status != uverbs.StatusFlushed && v.first.Status == 0:
		v.first = w
	}
}

// look polls, if this goroutine is the one that does.
func (v *survivor) look() {
	if !v.polls {
		time.Sleep(100 * time.Microsecond)
		return
	}
	var wcs [16]uverbs.WC
	n, err := v.p.q.Poll(wcs[:])
	v.must(err)
	for _, w := range wcs[:n] {
		v.see(w)
	}
}

// until looks until something is so.
func (v *survivor) until(what string, so func() bool) {
	v.t.Helper()
	for end := time.Now().Add(patience); ; v.look() {
		v.mu.Lock()
		ok := so()
		v.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("round %d: never %s: %d ended, open are %v, first failure %+v, state %v", v.rounds, what, v.done, v.open, v.first, v.p.a.State())
		}
	}
}

// post makes a request known before it is one.
func (v *survivor) post(quiet bool) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next++
	v.open[v.next] = quiet
	return v.next
}

// traffic fills the send queue.
func (v *survivor) traffic() {
	v.t.Helper()
	sq := v.p.a.SendQueue()
	for n := sq.Room(); n > 0; n-- {
		flags := []uverbs.SendFlags{uverbs.Unsignaled}[:n%3/2]
		sq.Write(v.post(len(flags) > 0), v.region.At(0), v.p.mr.Span(4096, 3000), flags...)
	}
	v.must(sq.Flush())
}

// round is a life of the queue pair with one peer, and its recovery to the next.
func (v *survivor) round(child bool) {
	v.t.Helper()
	p, before := v.p, v.done
	for range 4 {
		p.a.RecvQueue().Recv(v.post(false), p.mr.Span(64, 64))
	}
	v.must(p.a.RecvQueue().Flush())
	v.traffic()
	v.until("traffic", func() bool { return v.done > before+2 })
	v.traffic()
	v.kill()
	v.until("a failure", func() bool {
		if v.first.Status == 0 {
			v.mu.Unlock()
			if p.a.SendQueue().Room() > 8 {
				v.traffic()
			}
			v.mu.Lock()
		}
		return v.first.Status != 0
	})
	w, ok := p.a.FirstFailure()
	if !ok || w != v.first || w.Status != uverbs.StatusRetryExceeded || !errors.Is(p.a.Cause(), uverbs.StatusRetryExceeded) {
		v.t.Fatalf("round %d: first failure %+v, %v, polled was %+v; %v", v.rounds, w, ok, v.first, p.a.Cause())
	}
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	exchange := func(ctx context.Context, _ *uverbs.QP) error {
		v.mu.Lock()
		for id, quiet := range v.open {
			if quiet {
				delete(v.open, id) // before the failure, or flushed unheard of by the sweep
			}
		}
		if len(v.open) > 0 {
			v.t.Errorf("round %d: not ended: %v", v.rounds, v.open)
		}
		v.first = uverbs.WC{}
		v.mu.Unlock()
		return v.meet(ctx, child)
	}
	if v.polls {
		v.must(p.a.RecoverPolling(ctx, v.see, exchange))
	} else {
		v.must(p.a.Recover(ctx, exchange))
	}
	v.rounds++
}

// meet connects the queue pair to a new peer: another process, or another queue pair.
func (v *survivor) meet(ctx context.Context, child bool) error {
	p := v.p
	if child {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		mine, its := os.NewFile(uintptr(fds[0]), "mine"), os.NewFile(uintptr(fds[1]), "its")
		defer its.Close()
		conn, err := net.FileConn(mine)
		mine.Close()
		if err != nil {
			return err
		}
		defer conn.Close()
		cmd := exec.Command(os.Args[0], "-test.run=^TestGuestRecover$")
		cmd.Env = append(os.Environ(), "GOVERBS_TEST_PEER="+v.s.name)
		cmd.ExtraFiles = []*os.File{its}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		v.kill = func() {
			cmd.Process.Kill()
			cmd.Wait()
		}
		peer, err := p.a.HandshakeWith(ctx, conn, quickly)
		if err != nil {
			v.kill()
			return err
		}
		v.region = peer.Regions[0]
		return nil
	}
	b, err := p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: p.q, SendDepth: 32, RecvDepth: 32})
	if err != nil {
		return err
	}
	v.kill = func() { v.must(b.Close()) }
	v.region = p.mr.Remote()
	return errors.Join(p.a.Connect(ctx, b.Endpoint(), quickly), b.Connect(ctx, p.a.Endpoint(), quickly))
}

// A queue pair whose peer is killed in mid-traffic fails once, flushes the rest, and is
// recovered to another peer on the same completion queue, again and again, and nothing
// piles up. Some of the peers are processes of their own.
func TestGuestRecover(t *testing.T) {
	if name := os.Getenv("GOVERBS_TEST_PEER"); name != "" {
		mortal(t, name)
		return
	}
	s := guestSystem(t)
	// As in TestGuestLeavesNothing: collapsed pages grow the resident size.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"beside a poller", "polling"} {
		t.Run(how, func(t *testing.T) {
			d := s.device(t)
			v := &survivor{t: t, s: s, p: newPairOn(t, d, true), polls: how == "polling", open: make(map[uint64]bool)}
			v.must(v.p.b.Close())
			v.must(v.p.a.Modify(uverbs.StateReset))
			v.must(v.p.a.RecoverPolling(t.Context(), v.see, func(ctx context.Context, _ *uverbs.QP) error { return v.meet(ctx, false) }))
			ctx, stop := context.WithCancel(t.Context())
			var poller sync.WaitGroup
			if !v.polls {
				w, err := poll.NewWaiter(poll.Event{}, v.p.q)
				v.must(err)
				poller.Go(func() {
					defer w.Close()
					var wcs [16]uverbs.WC
					for {
						n, err := w.Wait(ctx, wcs[:])
						for _, w := range wcs[:n] {
							v.see(w)
						}
						if err != nil {
							if ctx.Err() == nil {
								t.Error(err)
							}
							return
						}
					}
				})
			}
			defer poller.Wait()
			defer stop()
			defer func() { v.kill() }()
			const usual = 4
			rounds, children := guestRounds(t, usual), 0
			round := func(i, every int) {
				// They take seconds each where a guest is emulated.
				child := s.fabric == nil && i%every == every-1 && (!v.polls || rounds > usual)
				if child {
					children++
				}
				v.round(child)
			}
			// The first ones leave what is kept for the next.
			for i := range 2 + rounds/5 {
				round(i, max(2, rounds/20))
			}
			v.round(false) // its peer is one of this process, as at the end
			before := measure(t, s)
			for i := range rounds {
				round(i, max(4, rounds/20))
			}
			v.round(false)
			var after usage
			clean := func() bool {
				after = measure(t, s)
				// Doorbell pages of queue pairs that the collector has not met yet.
				for _, u := range []usage{before, after} {
					if u.objects["UAR"] > uint64(32+rounds/4) {
						return false
					}
					delete(u.objects, "UAR")
				}
				same := maps.Equal(before.objects, after.objects) && after.descriptors <= before.descriptors && after.rings == before.rings &&
					after.goroutines <= before.goroutines && after.pinned == before.pinned
				if s.fabric != nil {
					// The heap is that of all tests; see leavesNothing. A queue
					// pair is more than 8 kB.
					return same && after.heap < before.heap+1<<20+8192*uint64(rounds)
				}
				return same && after.mappings < before.mappings+20 && after.rss <= before.rss+2<<20+1024*rounds
			}
			for end := time.Now().Add(patience); !clean(); {
				if time.Now().After(end) {
					t.Errorf("%d rounds have left something", rounds)
					break
				}
			}
			if st := v.p.q.Stats(); st.Stray != 0 {
				t.Errorf("dropped %+v", st)
			}
			t.Logf("%d rounds, %d peers were processes; before %+v", v.rounds, children, before)
			t.Logf("after %+v", after)
		})
	}
}

// mortal is a peer that is killed: it offers memory, and looks on.
func mortal(t *testing.T, name string) {
	conn, err := net.FileConn(os.NewFile(3, "parent"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := uverbs.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := uverbs.Alloc(1<<16, nil)
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.Register(mem.Bytes(), allAccess)
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewCQ(64, nil)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := qp.HandshakeWith(t.Context(), conn, quickly, mr.Remote()); err != nil {
		t.Fatal(err)
	}
	for {
		time.Sleep(time.Hour)
	}
}
