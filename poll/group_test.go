package poll

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// strategies are those that a group can wait by on queues without a descriptor.
var groupStrategies = map[string]Strategy{"busy": Busy{}, "event": Event{}, "adaptive": Adaptive{}, "default": nil}

// roomFor lets n goroutines spin.
func roomFor(t *testing.T, n int) {
	t.Helper()
	if was := runtime.GOMAXPROCS(0); was <= n {
		runtime.GOMAXPROCS(n + 1)
		t.Cleanup(func() { runtime.GOMAXPROCS(was) })
	}
}

// running starts a group and returns what waits for its end.
func running(t *testing.T, g *Group, ctx context.Context) (wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	return func() error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			t.Fatal("Run does not return")
			return nil
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within a minute", what)
		}
	}
}

// journal is a handler that notes what it gets.
type journal struct {
	mu  sync.Mutex
	got map[cq.Queue][]uint64
	n   atomic.Int64
}

func (j *journal) handle(q cq.Queue, wcs []cq.WC) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.got == nil {
		j.got = make(map[cq.Queue][]uint64)
	}
	for _, w := range wcs {
		j.got[q] = append(j.got[q], w.ID)
	}
	j.n.Add(int64(len(wcs)))
}

// whole checks that of each queue 0 to n-1 came, each once and in order.
func (j *journal) whole(t *testing.T, queues []*fakeQueue, n int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, q := range queues {
		ids := j.got[q]
		if len(ids) != n {
			t.Errorf("queue %d: %d completions of %d", i, len(ids), n)
			continue
		}
		for k, id := range ids {
			if id != uint64(k) {
				t.Errorf("queue %d: completion %d is number %d", i, k, id)
				break
			}
		}
	}
}

func TestNewGroupRefuses(t *testing.T) {
	handler := func(cq.Queue, []cq.WC) {}
	for name, make := range map[string]func() (*Group, error){
		"no handler":   func() (*Group, error) { return NewGroup(nil, nil) },
		"pollers":      func() (*Group, error) { return NewGroup(handler, &GroupOptions{Pollers: -1}) },
		"budget":       func() (*Group, error) { return NewGroup(handler, &GroupOptions{Budget: -1}) },
		"large budget": func() (*Group, error) { return NewGroup(handler, &GroupOptions{Budget: math.MaxInt}) },
		"strategy":     func() (*Group, error) { return NewGroup(handler, &GroupOptions{Strategy: Adaptive{Spin: -1}}) },
		"no such CPU":  func() (*Group, error) { return NewGroup(handler, &GroupOptions{CPUs: []int{maxCPUs - 1}}) },
		"negative CPU": func() (*Group, error) { return NewGroup(handler, &GroupOptions{CPUs: []int{-1}}) },
		"long moderation": func() (*Group, error) {
			return NewGroup(handler, &GroupOptions{Moderation: &Moderation{Profiles: []Profile{{1, time.Second}}}})
		},
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	g, err := NewGroup(handler, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := &fakeQueue{}
	if g.Add(nil) == nil || g.AddTo(1, q) == nil || g.AddTo(-1, q) == nil {
		t.Error("a nil queue, or one for a poller that is not there, was accepted")
	}
	if err := g.Add(q); err != nil {
		t.Fatal(err)
	}
	if g.Add(q) == nil {
		t.Error("a queue was accepted twice")
	}
	if g.RemoveOwned(&fakeQueue{}) == nil || g.Remove(t.Context(), &fakeQueue{}) == nil {
		t.Error("a queue was removed that is not in the group")
	}
	if err := g.Remove(t.Context(), q); err != nil {
		t.Error(err)
	}
	if _, _, err := g.Pick(); err == nil {
		t.Error("a queue was picked of a group without one")
	}
}

func TestGroupHandlesEverythingOnce(t *testing.T) {
	for name, s := range groupStrategies {
		t.Run(name, func(t *testing.T) {
			roomFor(t, 3)
			var j journal
			g, err := NewGroup(j.handle, &GroupOptions{Name: "g", Pollers: 3, Strategy: s, Budget: 4, MeasureGaps: true})
			if err != nil {
				t.Fatal(err)
			}
			const each = 500
			queues := make([]*fakeQueue, 7)
			for i := range queues {
				queues[i] = &fakeQueue{}
				if err := g.Add(queues[i]); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			wait := running(t, g, ctx)
			var devices sync.WaitGroup
			for _, q := range queues {
				devices.Go(func() {
					for i := range uint64(each) {
						q.add(i)
						if i%17 == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			devices.Wait()
			eventually(t, "end of the completions", func() bool { return j.n.Load() == int64(each*len(queues)) })
			var text bytes.Buffer
			if err := cq.WriteOpenMetrics(&text, g); err != nil || !strings.Contains(text.String(), `goverbs_group_completions_total{group="g",poller="1",queue="4"} 500`) {
				t.Errorf("%v\n%s", err, &text)
			}
			s := g.Stats()
			if s.Completions() != each*uint64(len(queues)) {
				t.Errorf("%d completions counted of %d", s.Completions(), each*len(queues))
			}
			if a, b, c := len(s.Pollers[0].Queues), len(s.Pollers[1].Queues), len(s.Pollers[2].Queues); a != 3 || b != 2 || c != 2 {
				t.Errorf("queues are spread %d, %d, %d", a, b, c)
			}
			cancel()
			if err := wait(); !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
			j.whole(t, queues, each)
			for i, q := range queues {
				if q.attached != 0 {
					t.Errorf("queue %d still has a waiter", i)
				}
			}
			if err := g.Add(&fakeQueue{}); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Add after Run: %v", err)
			}
			if err := g.Run(t.Context()); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a second Run: %v", err)
			}
			if err := g.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Close after Run: %v", err)
			}
		})
	}
}

// A flooded queue gets one budget a round and no more, wherever it stands.
func TestGroupBudget(t *testing.T) {
	for name, s := range groupStrategies {
		t.Run(name, func(t *testing.T) {
			roomFor(t, 1)
			const budget = 5
			flooded, quiet := &fakeQueue{}, &fakeQueue{}
			var g *Group
			since, most, seen := 0, 0, 0 // completions of the flooded queue since one was there for the quiet one
			there := false
			handler := func(q cq.Queue, wcs []cq.WC) {
				if len(wcs) > budget {
					t.Errorf("%d completions at once", len(wcs))
				}
				if q == quiet {
					there = false
					most = max(most, since)
					if seen++; seen == 200 {
						g.Close()
					}
					return
				}
				since += len(wcs)
				for range wcs {
					flooded.add(0)
				}
				if !there {
					there, since = true, 0
					quiet.add(1)
				}
			}
			g, err := NewGroup(handler, &GroupOptions{Strategy: s, Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []*fakeQueue{flooded, quiet} {
				if err := g.Add(q); err != nil {
					t.Fatal(err)
				}
			}
			for range 10 * budget {
				flooded.add(0)
			}
			if err := running(t, g, t.Context())(); err != nil {
				t.Errorf("Run after Close: %v", err)
			}
			if most > budget {
				t.Errorf("%d completions of the flooded queue were handled before one that waited, more than a budget of %d", most, budget)
			}
		})
	}
}

// Queues come and go while there is traffic, and none of their completions is lost: what
// the group did not handle is in the queue.
func TestGroupChangesUnderLoad(t *testing.T) {
	for name, s := range groupStrategies {
		t.Run(name, func(t *testing.T) {
			roomFor(t, 2)
			var j journal
			g, err := NewGroup(j.handle, &GroupOptions{Pollers: 2, Strategy: s, Budget: 3})
			if err != nil {
				t.Fatal(err)
			}
			wait := running(t, g, t.Context())
			const each = 300
			queues := make([]*fakeQueue, 6)
			var all sync.WaitGroup
			for i := range queues {
				q := &fakeQueue{}
				queues[i] = q
				all.Go(func() {
					for i := range uint64(each) {
						q.add(i)
						if i%29 == 0 {
							runtime.Gosched()
						}
					}
				})
				all.Go(func() {
					for range 40 {
						if err := g.Add(q); err != nil {
							t.Error(err)
							return
						}
						runtime.Gosched()
						if err := g.Remove(t.Context(), q); err != nil {
							t.Error(err)
							return
						}
						// It is ours now.
						var wcs [2]cq.WC
						n, err := q.Poll(wcs[:])
						if err != nil {
							t.Error(err)
						}
						if n > 0 {
							j.handle(q, wcs[:n])
						}
					}
					if err := g.Add(q); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			eventually(t, "end of the completions", func() bool { return j.n.Load() == int64(each*len(queues)) })
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			if err := wait(); err != nil {
				t.Error(err)
			}
			j.whole(t, queues, each)
		})
	}
}

// A queue that fails leaves after its last completion, and the others go on.
func TestGroupFailure(t *testing.T) {
	broken := errors.New("broken")
	for name, s := range groupStrategies {
		t.Run(name, func(t *testing.T) {
			roomFor(t, 1)
			var j journal
			bad, good := &fakeQueue{}, &fakeQueue{}
			failed := make(chan error, 2)
			var g *Group
			g, err := NewGroup(j.handle, &GroupOptions{Strategy: s, Budget: 2, Failed: func(q cq.Queue, err error) {
				if q != bad {
					t.Error("of another queue")
				}
				if g.Add(q) != nil || g.RemoveOwned(q) != nil {
					t.Error("the queue has not left the group")
				}
				failed <- err
			}})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []*fakeQueue{bad, good} {
				if err := g.Add(q); err != nil {
					t.Fatal(err)
				}
			}
			wait := running(t, g, t.Context())
			bad.mu.Lock()
			for i := range uint64(9) {
				bad.ready = append(bad.ready, cq.WC{ID: i})
			}
			bad.err = broken
			bad.mu.Unlock()
			bad.poke()
			if err := <-failed; err != broken {
				t.Errorf("failed with %v", err)
			}
			j.whole(t, []*fakeQueue{bad}, 9)
			for i := range uint64(9) {
				good.add(i)
			}
			eventually(t, "completions of the other queue", func() bool { return j.n.Load() == 18 })
			if n := len(g.Stats().Pollers[0].Queues); n != 1 {
				t.Errorf("%d queues are left", n)
			}
			if err := errors.Join(g.Close(), wait()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Without a callback the first failure ends the group, on whatever call it shows, once what
// is in the queue is handled.
func TestGroupEndsWithAFailure(t *testing.T) {
	broken := errors.New("broken")
	for name, spoil := range map[string]func(q *brokenQueue){
		"poll":  func(q *brokenQueue) { q.err = broken },
		"arm":   func(q *brokenQueue) { q.armErr = broken },
		"event": func(q *brokenQueue) { q.takeErr = broken },
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			g, err := NewGroup(j.handle, &GroupOptions{Budget: 2})
			if err != nil {
				t.Fatal(err)
			}
			q := &brokenQueue{late: []uint64{8, 9, 10, 11, 12, 13, 14}}
			for i := range uint64(7) {
				q.ready = append(q.ready, cq.WC{ID: i})
			}
			spoil(q)
			if err := g.Add(q); err != nil {
				t.Fatal(err)
			}
			wait := running(t, g, t.Context())
			n := 7
			if name == "event" {
				eventually(t, "arm", func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.arms > 0 })
				q.add(7)
				n += 1 + len(q.late)
			}
			if err := wait(); !errors.Is(err, broken) {
				t.Errorf("Run: %v", err)
			}
			want := make([]uint64, n)
			for i := range want {
				want[i] = uint64(i)
			}
			if got := j.got[q]; !slices.Equal(got, want) {
				t.Errorf("handled %v, want %v", got, want)
			}
		})
	}
}

// brokenQueue is a queue with completions in it when an event cannot be taken: more than are
// handled on the way out.
type brokenQueue struct {
	fakeQueue
	late []uint64
	once sync.Once
}

func (q *brokenQueue) TakeEvent() (bool, error) {
	q.once.Do(func() { q.add(q.late...) })
	return q.fakeQueue.TakeEvent()
}

// A queue that cannot be attached is the one that fails.
func TestGroupAttach(t *testing.T) {
	refused := errors.New("refused")
	failed := make(chan cq.Queue, 1)
	var j journal
	g, err := NewGroup(j.handle, &GroupOptions{Failed: func(q cq.Queue, err error) {
		if !errors.Is(err, refused) {
			t.Error(err)
		}
		failed <- q
	}})
	if err != nil {
		t.Fatal(err)
	}
	good, bad := &fakeQueue{}, &unattachable{err: refused}
	if err := errors.Join(g.Add(good), g.Add(bad)); err != nil {
		t.Fatal(err)
	}
	wait := running(t, g, t.Context())
	if q := <-failed; q != cq.Queue(bad) {
		t.Error("the other queue failed")
	}
	good.add(0)
	eventually(t, "completion", func() bool { return j.n.Load() == 1 })
	if err := errors.Join(g.Close(), wait()); err != nil {
		t.Error(err)
	}
}

type unattachable struct {
	fakeQueue
	err error
}

func (q *unattachable) Attach(func()) (int, func(), error) { return -1, nil, q.err }

// A handler may do what a program does with a group.
func TestGroupHandlerOwns(t *testing.T) {
	var g *Group
	first, second, beside := &fakeQueue{}, &fakeQueue{}, &fakeQueue{}
	seen := 0
	g, err := NewGroup(func(q cq.Queue, wcs []cq.WC) {
		seen++
		if q == second {
			g.Close()
			return
		}
		if err := errors.Join(g.RemoveOwned(q), g.RemoveOwned(beside), g.Add(second)); err != nil {
			t.Error(err)
		}
		first.add(2) // which nobody is to see
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first.add(1)
	beside.add(4) // which is nobody's either: it would be next
	second.add(3)
	if err := errors.Join(g.Add(first), g.Add(beside)); err != nil {
		t.Fatal(err)
	}
	if err := running(t, g, t.Context())(); err != nil {
		t.Error(err)
	}
	if seen != 2 || len(first.ready) != 1 || len(beside.ready) != 1 {
		t.Errorf("the handler was called %d times, %d and %d completions are left", seen, len(first.ready), len(beside.ready))
	}
}

// A queue that leaves and comes back has one poller at a time, whoever brings it back.
func TestGroupTakesBack(t *testing.T) {
	for name, s := range groupStrategies {
		t.Run(name, func(t *testing.T) {
			roomFor(t, 2)
			broken := errors.New("broken")
			var g *Group
			q := &onlyOnce{}
			n := 0
			done := make(chan bool)
			g, err := NewGroup(func(_ cq.Queue, wcs []cq.WC) {
				switch n++; {
				case n == 100:
					q.fail(broken)
				case n == 200:
					close(done)
				case n < 200:
					if err := g.RemoveOwned(q); err != nil {
						t.Error(err)
					}
					if g.AddTo(0, q) == nil {
						t.Error("a queue has two pollers")
					}
					if err := g.Add(q); err != nil {
						t.Error(err)
					}
					q.add(1)
				}
			}, &GroupOptions{Pollers: 2, Strategy: s, Failed: func(_ cq.Queue, err error) {
				if err != broken {
					t.Errorf("failed with %v", err)
				}
				q.fail(nil)
				q.add(1)
				if err := g.AddTo(1, q); err != nil {
					t.Error(err)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			q.add(1)
			if err := g.AddTo(1, q); err != nil {
				t.Fatal(err)
			}
			wait := running(t, g, t.Context())
			<-done
			if err := errors.Join(g.Close(), wait()); err != nil {
				t.Error(err)
			}
			if q.attached != 0 {
				t.Error("the queue still has a waiter")
			}
		})
	}
}

// onlyOnce is a queue that has one waiter at a time.
type onlyOnce struct{ fakeQueue }

func (q *onlyOnce) Attach(wake func()) (int, func(), error) {
	q.mu.Lock()
	busy := q.attached > 0
	q.mu.Unlock()
	if busy {
		return -1, nil, errors.New("another waiter has it")
	}
	return q.fakeQueue.Attach(wake)
}

// A handler that ends its goroutine does not leave Run waiting for ever.
func TestGroupGoexit(t *testing.T) {
	for _, locked := range []bool{false, true} {
		g, err := NewGroup(func(cq.Queue, []cq.WC) { runtime.Goexit() }, &GroupOptions{Pollers: 2, Locked: locked})
		if err != nil {
			t.Fatal(err)
		}
		q := &fakeQueue{}
		q.add(1)
		if err := g.Add(q); err != nil {
			t.Fatal(err)
		}
		if err := running(t, g, t.Context())(); !errors.Is(err, errHandlerLeft) {
			t.Errorf("Run: %v", err)
		}
	}
}

// Remove returns when its context ends, and the queue leaves all the same.
func TestGroupRemoveGivesUp(t *testing.T) {
	enter, leave := make(chan bool), make(chan bool)
	g, err := NewGroup(func(cq.Queue, []cq.WC) { enter <- true; <-leave }, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := &fakeQueue{}
	q.add(1)
	if err := g.Add(q); err != nil {
		t.Fatal(err)
	}
	wait := running(t, g, t.Context())
	<-enter
	ctx, cancel := context.WithCancelCause(t.Context())
	tired := errors.New("tired")
	cancel(tired)
	if err := g.Remove(ctx, q); !errors.Is(err, tired) {
		t.Errorf("Remove: %v", err)
	}
	if err := g.Remove(t.Context(), q); err == nil {
		t.Error("the queue is still in the group")
	}
	leave <- true
	if err := errors.Join(g.Close(), wait()); err != nil {
		t.Error(err)
	}
}

func TestGroupPickSpreads(t *testing.T) {
	g, err := NewGroup(func(cq.Queue, []cq.WC) {}, &GroupOptions{Pollers: 2})
	if err != nil {
		t.Fatal(err)
	}
	queues := make([]cq.Queue, 4)
	for i := range queues {
		queues[i] = &fakeQueue{}
		if err := g.AddTo(i/2, queues[i]); err != nil { // 0 and 1, 2 and 3
			t.Fatal(err)
		}
	}
	pick := func() (int, func()) {
		q, back, err := g.Pick()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Index(queues, q), back
	}
	var order []int
	var backs []func()
	for range 6 {
		i, back := pick()
		order, backs = append(order, i), append(backs, back)
	}
	if !slices.Equal(order, []int{0, 2, 1, 3, 0, 2}) {
		t.Errorf("picked %v", order)
	}
	backs[2]()
	backs[2]()
	if i, _ := pick(); i != 1 {
		t.Errorf("picked %d, want 1, which was given back", i)
	}
	if i, _ := pick(); i != 1 {
		t.Errorf("picked %d, want 1, which was given back once only but has fewest", i)
	}
	if n := g.Stats().Pollers[1].Queues[0].Picks; n != 2 {
		t.Errorf("queue 2 has %d picks", n)
	}
}

// An idle group does nothing at all.
func TestGroupSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g, err := NewGroup(j.handle, &GroupOptions{Pollers: 2})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if err := g.Add(&fakeQueue{}); err != nil {
				t.Fatal(err)
			}
		}
		wait := running(t, g, t.Context())
		synctest.Wait()
		before := g.Stats()
		time.Sleep(24 * time.Hour)
		after := g.Stats()
		for i := range after.Pollers {
			if a, b := after.Pollers[i], before.Pollers[i]; a.Rounds != b.Rounds || a.Parks != b.Parks || a.Rounds == 0 || a.EmptyRounds != a.Rounds {
				t.Errorf("poller %d: %+v, a day before %+v", i, a, b)
			}
		}
		if err := errors.Join(g.Close(), wait()); err != nil {
			t.Error(err)
		}
	})
}

// What is measured between two visits is what handlers took.
func TestGroupMeasuresGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, other := &fakeQueue{}, &fakeQueue{}
		n := 0
		var g *Group
		g, err := NewGroup(func(q cq.Queue, wcs []cq.WC) {
			if q == slow {
				time.Sleep(time.Second)
			}
			if n++; n == 4 {
				g.Close()
			}
		}, &GroupOptions{Budget: 1, MeasureGaps: true})
		if err != nil {
			t.Fatal(err)
		}
		slow.add(1, 2, 3)
		if err := errors.Join(g.Add(slow), g.Add(other)); err != nil {
			t.Fatal(err)
		}
		wait := running(t, g, t.Context())
		time.Sleep(time.Hour)
		s := g.Stats().Pollers[0]
		for i, q := range s.Queues {
			if q.MaxGap != time.Second {
				t.Errorf("queue %d was not visited for %v", i, q.MaxGap)
			}
		}
		if s.Queues[0].Full != 3 || s.Queues[0].Batches != 3 || s.Parks != 0 {
			t.Errorf("%+v", s)
		}
		other.add(1)
		if err := wait(); err != nil {
			t.Error(err)
		}
	})
}

// In the steady state nothing is allocated, also with all that can be switched on.
func TestGroupAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("declared skip: the race detector itself allocates")
	}
	for name, s := range groupStrategies {
		t.Run(name, func(t *testing.T) {
			roomFor(t, 1)
			handled := make(chan bool, 1)
			g, err := NewGroup(func(_ cq.Queue, wcs []cq.WC) { handled <- true }, &GroupOptions{
				Strategy: s, MeasureGaps: true, Moderation: &Moderation{Events: 1, Every: time.Nanosecond},
			})
			if err != nil {
				t.Fatal(err)
			}
			queues := make([]*moderatedQueue, 4)
			for i := range queues {
				queues[i] = &moderatedQueue{}
				queues[i].ready = make([]cq.WC, 0, 1<<16)
				if err := g.Add(queues[i]); err != nil {
					t.Fatal(err)
				}
			}
			wait := running(t, g, t.Context())
			i := 0
			one := func() {
				q := queues[i%len(queues)]
				i++
				q.mu.Lock()
				q.ready = append(q.ready, cq.WC{})
				fire := q.armed
				if fire {
					q.armed = false
					q.events++
				}
				q.mu.Unlock()
				if fire {
					q.poke()
				}
				<-handled
			}
			for range 100 {
				one()
			}
			runs := 1000
			if s == (Busy{}) {
				runs = 50 // AllocsPerRun leaves one processor, which the poller spins on
			}
			if n := testing.AllocsPerRun(runs, one); n != 0 {
				t.Errorf("%v allocations for a completion", n)
			}
			if err := errors.Join(g.Close(), wait()); err != nil {
				t.Error(err)
			}
		})
	}
}

type moderatedQueue struct {
	fakeQueue
	moderations atomic.Int64
}

func (q *moderatedQueue) Moderate(int, time.Duration) error {
	q.moderations.Add(1)
	return nil
}
