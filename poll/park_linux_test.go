package poll

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cq"
)

// withPipe gives the queue a descriptor.
func withPipe(t testing.TB, q *fakeQueue) bool {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	q.r, q.w = os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	t.Cleanup(func() { q.r.Close(); q.w.Close() })
	return true
}

// A parked wait with an unchanged context allocates nothing, and neither does
// one that finds a completion at once.
func TestWaitAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("declared skip: the race detector itself allocates")
	}
	for name, e := range map[string]Strategy{"goroutine": Event{}, "thread": Event{Thread: true}, "adaptive": Adaptive{}, "adaptive thread": Adaptive{Thread: true}} {
		t.Run(name, func(t *testing.T) {
			q := &fakeQueue{}
			withPipe(t, q)
			q.ready = make([]cq.WC, 0, 1<<16)
			w, err := NewWaiter(e, q)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			next := make(chan struct{})
			defer close(next)
			one := [8]byte{}
			go func() {
				for range next {
					time.Sleep(200 * time.Microsecond)
					q.mu.Lock()
					q.ready = append(q.ready, cq.WC{ID: 1})
					q.armed = false
					q.events++
					q.mu.Unlock()
					q.w.Write(one[:])
				}
			}()
			var wcs [4]cq.WC
			parked := testing.AllocsPerRun(200, func() {
				next <- struct{}{}
				if n, err := w.Wait(ctx, wcs[:]); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			})
			if parked != 0 {
				t.Errorf("a parked wait allocates %v times", parked)
			}
			ready := testing.AllocsPerRun(200, func() {
				q.ready = append(q.ready, cq.WC{ID: 1})
				if n, err := w.Wait(ctx, wcs[:]); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			})
			if ready != 0 {
				t.Errorf("a ready wait allocates %v times", ready)
			}
		})
	}
}

// Wakes, events and cancellations from other goroutines at random times: every
// completion arrives, and no wait hangs.
//
// All the while the process gets SIGURG, with which the runtime preempts goroutines: it
// ends system calls early.
func TestParkersUnderFire(t *testing.T) {
	defer storm(t)()
	for name, e := range map[string]Strategy{"goroutine": Event{}, "thread": Event{Thread: true}, "adaptive": Adaptive{}, "adaptive thread": Adaptive{Thread: true}} {
		t.Run(name, func(t *testing.T) {
			q := &fakeQueue{}
			withPipe(t, q)
			w, err := NewWaiter(e, q)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			const total = 2000
			done := make(chan struct{})
			defer func() { <-done }()
			go func() {
				defer close(done)
				for i := range uint64(total) {
					q.add(i)
					if i%7 == 0 {
						q.poke()
					}
					if i%50 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			}()
			var wcs [3]cq.WC
			next := uint64(0)
			deadline := time.Now().Add(time.Minute)
			for next < total {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(5))*100*time.Microsecond)
				n, err := w.Wait(ctx, wcs[:])
				cancel()
				if err != nil && ctx.Err() == nil {
					t.Fatal(err)
				}
				for _, c := range wcs[:n] {
					if c.ID != next {
						t.Fatalf("completion %d, want %d", c.ID, next)
					}
					next++
				}
				if time.Now().After(deadline) {
					t.Fatalf("stuck after %d completions", next)
				}
			}
		})
	}
}

// Waiters leave no descriptor behind.
func TestWaitersCloseTheirDescriptors(t *testing.T) {
	q := &fakeQueue{}
	withPipe(t, q)
	left := leftOpen(t)
	for range 100 {
		for _, e := range []Strategy{Event{}, Event{Thread: true}, Adaptive{}, Adaptive{Thread: true}} {
			w, err := NewWaiter(e, q)
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
	}
	if open := left(); len(open) != 0 {
		t.Errorf("left open: %q", open)
	}
}

// leftOpen notes the open descriptors. The function that it returns names those
// opened since then: a count would also move when an earlier test's descriptor
// closes late.
func leftOpen(t *testing.T) func() []string {
	t.Helper()
	// The runtime opens two of its own for the first file that it polls.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	before := descriptors(t)
	return func() []string {
		return slices.DeleteFunc(descriptors(t), func(d string) bool { return slices.Contains(before, d) })
	}
}

// descriptors lists the open descriptors, each with what it is open on.
func descriptors(t *testing.T) []string {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, n := range names {
		// That of the reading itself is closed by now.
		if target, err := os.Readlink("/proc/self/fd/" + n.Name()); err == nil {
			open = append(open, n.Name()+" "+target)
		}
	}
	return open
}

// storm sends the process SIGURG until it is told to stop.
func storm(t testing.TB) (stop func()) {
	var over atomic.Bool
	var sender sync.WaitGroup
	sender.Go(func() {
		for !over.Load() {
			if err := unix.Kill(os.Getpid(), unix.SIGURG); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Microsecond) // or one processor does nothing else
		}
	})
	return func() {
		over.Store(true)
		sender.Wait()
	}
}
