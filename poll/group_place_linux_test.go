package poll

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cq"
)

// affinity is that of a thread, 0 being the caller's.
func affinity(t *testing.T, thread int) []int {
	t.Helper()
	set := unix.NewCPUSet(maxCPUs)
	if err := unix.SchedGetaffinityDynamic(thread, set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for c := range maxCPUs {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus
}

// Handlers run where their poller is bound, and no thread that others get is.
func TestGroupPins(t *testing.T) {
	allowed, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 10 { // so that some poller would get the main thread
		type place struct {
			cpus   []int
			thread int
		}
		places := make(chan place, 2)
		g, err := NewGroup(func(cq.Queue, []cq.WC) { places <- place{affinity(t, 0), unix.Gettid()} }, &GroupOptions{Pollers: 2, CPUs: allowed})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			q := &fakeQueue{}
			if round%2 == 0 {
				withPipe(t, q)
			}
			if err := g.AddTo(i, q); err != nil {
				t.Fatal(err)
			}
			q.add(1)
		}
		wait := running(t, g, t.Context())
		var seen [][]int
		for range 2 {
			p := <-places
			if p.thread == unix.Getpid() {
				t.Error("the main thread is bound")
			}
			seen = append(seen, p.cpus)
		}
		want := [][]int{{allowed[0]}, {allowed[1%len(allowed)]}}
		slices.SortFunc(seen, slices.Compare)
		if !slices.EqualFunc(seen, want, slices.Equal) {
			t.Errorf("handlers ran on %v, want %v", seen, want)
		}
		s := g.Stats()
		for i := range want {
			if !slices.Equal(s.Pollers[i].CPUs, want[i]) {
				t.Errorf("poller %d says %v, want %v", i, s.Pollers[i].CPUs, want[i])
			}
		}
		if now, err := allowedCPUs(); err != nil || !slices.Equal(now, allowed) {
			t.Errorf("the process may use %v, was %v: %v", now, allowed, err)
		}
		if err := errors.Join(g.Close(), wait()); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan []int)
	for range 50 {
		go func() { done <- affinity(t, 0) }()
	}
	for range 50 {
		if cpus := <-done; !slices.Equal(cpus, allowed) {
			t.Errorf("a goroutine runs on a thread that is bound to %v", cpus)
		}
	}
}

type nearQueue struct {
	fakeQueue
	cpus []int
}

func (q *nearQueue) LocalCPUs() []int { return q.cpus }

// Without being told, a poller stays on the node of its queues, from when it has some;
// where the node is all that there is, or unknown, it is not bound.
func TestGroupFollowsItsDevice(t *testing.T) {
	allowed, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	first := allowed[:1]
	for _, c := range []struct {
		name     string
		near     []int
		unpinned bool
		want     []int
	}{
		{"one of the node", append([]int{maxCPUs - 1}, first...), false, first},
		{"all", allowed, false, nil},
		{"none that may be used", []int{maxCPUs - 1}, false, nil},
		{"unknown", nil, false, nil},
		{"not wanted", first, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if len(allowed) == 1 {
				want = nil // there is no choice
			}
			places := make(chan []int, 1)
			g, err := NewGroup(func(cq.Queue, []cq.WC) { places <- affinity(t, 0) }, &GroupOptions{Unpinned: c.unpinned})
			if err != nil {
				t.Fatal(err)
			}
			wait := running(t, g, t.Context())
			q := &nearQueue{cpus: c.near}
			if err := g.Add(q); err != nil {
				t.Fatal(err)
			}
			q.add(1)
			cpus := <-places
			if want == nil && !slices.Equal(cpus, allowed) || want != nil && !slices.Equal(cpus, want) {
				t.Errorf("the handler ran on %v, want %v", cpus, want)
			}
			if bound := g.Stats().Pollers[0].CPUs; !slices.Equal(bound, want) {
				t.Errorf("bound to %v, want %v", bound, want)
			}
			if err := errors.Join(g.Close(), wait()); err != nil {
				t.Error(err)
			}
		})
	}
}
