package uverbs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// The depth that is reckoned is what the kernel makes of it, to the entry, and takes the
// queue pairs that it was reckoned for.
func TestGuestCQDepth(t *testing.T) {
	d := guestDevice(t)
	for _, s := range []uverbs.CQSizing{
		{QueuePairs: 1, Outstanding: 1, Margin: -1}, {QueuePairs: 1, Outstanding: 1}, {QueuePairs: 4, Outstanding: 32},
		{QueuePairs: 3, Outstanding: 21, Margin: -1}, {QueuePairs: 16, Outstanding: 64, Margin: -1}, {QueuePairs: 16, Outstanding: 64, Margin: 50},
	} {
		depth, err := d.CQDepth(s)
		if err != nil {
			t.Fatal(err)
		}
		q, err := d.NewCQ(depth, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Depth() != depth || depth < s.QueuePairs*s.Outstanding {
			t.Errorf("%+v: the depth is %d where %d was asked", s, q.Depth(), depth)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	// The deepest there is.
	depth, err := d.CQDepth(uverbs.CQSizing{QueuePairs: 1, Outstanding: d.Attr().MaxCQE, Margin: -1})
	if err != nil || depth != d.Attr().MaxCQE {
		t.Errorf("%d, %v, want %d", depth, err, d.Attr().MaxCQE)
	}
	if _, err := d.CQDepth(uverbs.CQSizing{QueuePairs: 1, Outstanding: d.Attr().MaxCQE}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("deeper than that: %v", err)
	}
}

// What the device has not it refuses by name; what it takes it does.
func TestGuestCQOptions(t *testing.T) {
	d := guestDevice(t)
	soft := d.Info().Driver == uverbs.DriverRXE
	for option, opts := range map[string]*uverbs.CQOptions{
		"Timestamps":    {Timestamps: true},
		"EntrySize":     {EntrySize: 128},
		"IgnoreOverrun": {IgnoreOverrun: true},
		"Compression":   {Compression: uverbs.Compress()},
	} {
		q, err := d.NewCQ(16, opts)
		if soft {
			if !errors.Is(err, uverbs.ErrNotSupported) || !strings.Contains(err.Error(), option) || !strings.Contains(err.Error(), "rxe") {
				t.Errorf("%s: %v", option, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", option, err)
		} else if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	c, err := d.Clock()
	if soft {
		if !errors.Is(err, uverbs.ErrNotSupported) || !strings.Contains(err.Error(), "rxe") {
			t.Errorf("a clock: %v", err)
		}
		_, err := d.NewCQ(16, &uverbs.CQOptions{Node: uverbs.OnNode(0)})
		if !errors.Is(err, uverbs.ErrNotSupported) || !strings.Contains(err.Error(), "Node") {
			t.Errorf("a ring of the kernel's on a node: %v", err)
		}
	} else if err != nil {
		t.Errorf("a clock: %v", err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
}
