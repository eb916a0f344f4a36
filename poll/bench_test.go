package poll

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// aQueue has n completions at each look.
type aQueue struct{ n int }

func (q *aQueue) Poll([]cq.WC) (int, error)          { return q.n, nil }
func (q *aQueue) Arm(bool) error                     { return nil }
func (q *aQueue) TakeEvent() (bool, error)           { return false, nil }
func (q *aQueue) Attach(func()) (int, func(), error) { return -1, func() {}, nil }

// What a Wait costs that finds completions at once, the statistics included: it is what
// a program pays under load.
func BenchmarkWait(b *testing.B) {
	for name, queues := range map[string][]cq.Queue{"1 queue": {&aQueue{1}}, "8 queues": {&aQueue{}, &aQueue{}, &aQueue{}, &aQueue{1}, &aQueue{}, &aQueue{}, &aQueue{}, &aQueue{}}} {
		b.Run(name, func(b *testing.B) {
			w, err := NewWaiter(Event{}, queues...)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			ctx := b.Context()
			var wcs [8]cq.WC
			for b.Loop() {
				if n, err := w.Wait(ctx, wcs[:]); n != 1 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// What a look costs that finds nothing, which is what a spinning waiter does.
func BenchmarkEmptyLook(b *testing.B) {
	w, err := NewWaiter(Event{}, &aQueue{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	var wcs [8]cq.WC
	for b.Loop() {
		if n, err := w.look(wcs[:]); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
