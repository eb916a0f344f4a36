package uverbs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// Soft-RoCE has none of the options that only some devices have. Each is refused by
// name, before the kernel is asked for anything, and leaves nothing.
func TestCQOptionsOfSoftRoCE(t *testing.T) {
	k := fakekernel.New(fakekernel.Device{})
	d, err := on(k).open("rxe0", nil)
	if err != nil {
		t.Fatal(err)
	}
	for option, opts := range map[string]*CQOptions{
		"Timestamps":    {Timestamps: true},
		"EntrySize":     {EntrySize: 64},
		"IgnoreOverrun": {IgnoreOverrun: true},
		"Compression":   {Compression: Compress()},
		"Node":          {Node: OnNode(0)},
	} {
		for _, events := range []bool{false, true} {
			opts.Events = events
			_, err := d.NewCQ(16, opts)
			if !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "with "+option) || !strings.Contains(err.Error(), "rxe") {
				t.Errorf("%s: %v", option, err)
			}
		}
	}
	q, err := d.NewCQ(16, &CQOptions{Compression: new(Compression)})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := q.Nodes(); n != nil || !errors.Is(err, ErrNotSupported) {
		t.Errorf("nodes of a ring of the kernel's: %v, %v", n, err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Nodes(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("nodes of a closed queue: %v", err)
	}
	if _, err := d.Clock(); !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "rxe") {
		t.Errorf("a clock: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, leak := range k.Leaks() {
		t.Error(leak)
	}
}

// A depth holds what was asked for, with the margin, and is that of a whole ring. One
// that no queue has is refused with all numbers.
func TestCQDepth(t *testing.T) {
	d, err := on(fakekernel.New(fakekernel.Device{})).open("rxe0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	most := d.Attr().MaxCQE
	for _, c := range []struct {
		s    CQSizing
		want int
	}{
		{CQSizing{QueuePairs: 1, Outstanding: 1, Margin: -1}, 1},
		{CQSizing{QueuePairs: 1, Outstanding: 1}, 3}, // 1.25, so 2
		{CQSizing{QueuePairs: 1, Outstanding: 4}, 7}, // 5
		{CQSizing{QueuePairs: 4, Outstanding: 8}, 63},
		{CQSizing{QueuePairs: 4, Outstanding: 8, Margin: -5}, 63},
		{CQSizing{QueuePairs: 3, Outstanding: 21, Margin: -1}, 63},
		{CQSizing{QueuePairs: 3, Outstanding: 21, Margin: 1}, 127}, // 63.63
		{CQSizing{QueuePairs: 100, Outstanding: 1, Margin: 27}, 127},
		{CQSizing{QueuePairs: 100, Outstanding: 1, Margin: 28}, 255},
		{CQSizing{QueuePairs: most, Outstanding: 1, Margin: -1}, most},
		{CQSizing{QueuePairs: most/2 + 1, Outstanding: 1, Margin: -1}, most},
	} {
		got, err := d.CQDepth(c.s)
		if got != c.want || err != nil {
			t.Errorf("%+v: %d, %v, want %d", c.s, got, err, c.want)
		}
		// A queue of that depth takes queue pairs of that depth.
		q, err := d.NewCQ(got, nil)
		if err != nil {
			t.Errorf("%+v: %v", c.s, err)
			continue
		}
		if need := c.s.QueuePairs * c.s.Outstanding; q.Depth() < need || q.Depth() < got {
			t.Errorf("%+v: a queue of depth %d", c.s, q.Depth())
		}
		q.Close()
	}
	for _, c := range []struct {
		s    CQSizing
		want []string
	}{
		{CQSizing{Outstanding: 1}, []string{"0 queue pairs", "1 requests"}},
		{CQSizing{QueuePairs: 7, Outstanding: -1}, []string{"7 queue pairs", "-1 requests"}},
		{CQSizing{QueuePairs: most, Outstanding: 2}, []string{"32767 queue pairs x 2 outstanding + 25%", "81918 completions", "rxe0 allows 32767", "3 queues"}},
		{CQSizing{QueuePairs: most, Outstanding: 1, Margin: 1}, []string{"33095 completions", "2 queues"}},
		{CQSizing{QueuePairs: 1 << 30, Outstanding: 1 << 30, Margin: 1 << 30}, []string{"allows 32767"}},
	} {
		n, err := d.CQDepth(c.s)
		if n != 0 || !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %d, %v", c.s, n, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q in it", c.s, err, want)
			}
		}
	}
}
