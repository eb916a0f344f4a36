package poll

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// orderedQueue notes in which order it is called.
type orderedQueue struct {
	fakeQueue
	first bool
	take  func() // what else happens when an event is to be taken
	calls []string
}

func (q *orderedQueue) Poll(wcs []cq.WC) (int, error) {
	q.calls = append(q.calls, "poll")
	return q.fakeQueue.Poll(wcs)
}

func (q *orderedQueue) Arm(solicited bool) error {
	q.calls = append(q.calls, "arm")
	return q.fakeQueue.Arm(solicited)
}

func (q *orderedQueue) TakeEvent() (bool, error) {
	q.calls = append(q.calls, "take")
	if q.take != nil {
		q.take()
	}
	return q.fakeQueue.TakeEvent()
}

func (q *orderedQueue) EventsFirst() bool { return q.first }

// A waiter that is woken returns what there is, and takes the event when it waits again,
// always before it arms again; unless a queue, also one of several or in a group, wants
// it otherwise.
func TestEventsAreTakenLate(t *testing.T) {
	type line struct {
		name   string
		queues func() (ordered *orderedQueue, all []cq.Queue)
		want   []string // of one Wait after the other
	}
	late := []string{"poll arm poll poll", "poll take arm poll poll", "poll take arm poll poll"}
	first := []string{"poll arm poll take poll", "poll arm poll take poll", "poll arm poll take poll"}
	for _, l := range []line{
		{"late", func() (*orderedQueue, []cq.Queue) {
			q := &orderedQueue{}
			return q, []cq.Queue{q}
		}, late},
		{"of a queue that does not say", func() (*orderedQueue, []cq.Queue) {
			q := &orderedQueue{first: true}
			return q, []cq.Queue{struct{ cq.Queue }{q}}
		}, late},
		{"first", func() (*orderedQueue, []cq.Queue) {
			q := &orderedQueue{first: true}
			return q, []cq.Queue{q}
		}, first},
		{"one of two first", func() (*orderedQueue, []cq.Queue) {
			q := &orderedQueue{}
			return q, []cq.Queue{q, &orderedQueue{first: true}, &orderedQueue{}}
		}, first},
	} {
		t.Run(l.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, all := l.queues()
				w, err := NewWaiter(Event{}, all...)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				var wcs [4]cq.WC
				for i, want := range l.want {
					time.AfterFunc(time.Second, func() { q.add(1) })
					q.calls = nil
					if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
						t.Fatal(n, err)
					}
					if got := strings.Join(q.calls, " "); got != want {
						t.Errorf("wait %d: %s, want %s", i, got, want)
					}
				}
				// One that finds something at once leaves the event where it is.
				q.calls = nil
				q.add(2)
				if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil || slices.Contains(q.calls, "take") {
					t.Error(n, err, q.calls)
				}
			})
		})
	}
	for _, first := range []bool{false, true} {
		if m := (&member{q: &orderedQueue{first: first}}); m.EventsFirst() != first {
			t.Errorf("in a group: %v, want %v", m.EventsFirst(), first)
		}
	}
	if m := (&member{q: &fakeQueue{}}); m.EventsFirst() {
		t.Error("a queue in a group wants its events taken first, and did not say so")
	}
}

// Completions that come while an event is taken, such as those that a queue gives out when
// it finds its device gone, are returned before the error that taking it ends with:
// whether that is at the end of a park or at the beginning of the next Wait.
func TestTakeErrorBesideCompletions(t *testing.T) {
	broken := errors.New("cannot read")
	for _, atOnce := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := &orderedQueue{}
			w, err := NewWaiter(Event{}, q)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var wcs [4]cq.WC
			if atOnce {
				time.AfterFunc(time.Second, func() { q.add(1) })
				if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			} else {
				time.AfterFunc(time.Second, q.poke)
			}
			q.take = func() {
				q.take = nil
				q.takeErr, q.armErr = broken, broken
				q.ready = append(q.ready, cq.WC{ID: 2}, cq.WC{ID: 3})
			}
			if n, err := w.Wait(t.Context(), wcs[:]); n != 2 || err != nil {
				t.Errorf("%d, %v, want two completions", n, err)
			}
			for range 2 {
				if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, broken) {
					t.Errorf("%d, %v, want %v", n, err, broken)
				}
			}
		})
	}
}
