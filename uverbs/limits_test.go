package uverbs

import (
	"errors"
	"testing"
)

// Queue pairs may claim a CQ to its last completion, and not one more.
func TestCreditsToTheLast(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(7, nil)
	if err != nil {
		t.Fatal(err)
	}
	depth := q.Depth()
	if _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: depth}); !errors.Is(err, ErrCQFull) {
		t.Errorf("%d completions on a CQ of %d: %v", depth+1, depth, err)
	}
	for _, c := range []struct {
		receives int
		fits     bool
	}{{depth - 3, true}, {2, false}, {1, true}, {1, false}} {
		_, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: c.receives})
		if c.fits && err != nil || !c.fits && !errors.Is(err, ErrCQFull) {
			t.Errorf("%d completions of %d taken, and %d more: %v", q.committed, depth, 1+c.receives, err)
		}
	}
}

// Spans and places at the peer reach to the last byte of a region, and not beyond.
func TestSpansToTheLastByte(t *testing.T) {
	r := newRig(t, false)
	n := r.mr.Len()
	for _, c := range []struct {
		off, bytes int
		fits       bool
	}{
		{0, n, true}, {n - 1, 1, true}, {n, 0, true},
		{0, n + 1, false}, {n - 1, 2, false}, {n, 1, false}, {n + 1, 0, false}, {-1, 1, false}, {0, -1, false},
	} {
		if _, ok := r.mr.Span(c.off, c.bytes).sge(); ok != c.fits {
			t.Errorf("span of %d bytes at %d of a region of %d: taken %v", c.bytes, c.off, n, ok)
		}
		if c.off < 0 || c.bytes < 0 {
			continue
		}
		if _, ok := r.mr.Remote().At(uint64(c.off)).address(uint64(c.bytes)); ok != c.fits {
			t.Errorf("%d bytes at %d of a peer's region of %d: taken %v", c.bytes, c.off, n, ok)
		}
	}
}
