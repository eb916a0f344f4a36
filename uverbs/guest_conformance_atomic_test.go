package uverbs_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// Atomics with a key that is nobody's: the peer's memory is as before.
func TestGuestConformanceAtomic_WrongRKey(t *testing.T) {
	const old, place, word = 64, 512 << 10, 0x0101010101010101
	for name, post := range map[string]func(sq *uverbs.SendQueue, into uverbs.Span, at uverbs.RemoteAddr){
		"fetch and add": func(sq *uverbs.SendQueue, into uverbs.Span, at uverbs.RemoteAddr) { sq.FetchAdd(1, into, at, 1) },
		"compare and swap": func(sq *uverbs.SendQueue, into uverbs.Span, at uverbs.RemoteAddr) {
			sq.CompareSwap(1, into, at, word, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOpsPair(t, uverbs.RC)
			target, result := p.mem.Uint64(place), p.mem.Uint64(old)
			target.Store(word)
			result.Store(99)
			bad := p.peer.Regions[0]
			bad.RKey ^= 0x5500
			post(p.a.SendQueue(), p.mr.Span(old, 8), bad.At(place))
			p.one(t, p.a, uverbs.WC{ID: 1, Status: kernelFactsOf(t, p.dev).wrongKey})
			if got := target.Load(); got != word {
				t.Errorf("%#x is in the peer's memory, %#x was", got, uint64(word))
			}
			if got := result.Load(); got != 99 {
				t.Errorf("the result is %#x, and there is none", got)
			}
		})
	}
}

// The result of an atomic has nowhere to go: its region is gone. The queue pair fails,
// and whether the peer's memory has changed nobody can say.
func TestGuestConformanceAtomic_StaleLKey(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	mr, err := p.pd.Register(p.mem.Bytes()[8192:12288], uverbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	p.a.SendQueue().FetchAdd(1, mr.Span(0, 8), p.peer.Regions[0].At(512<<10), 1)
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	want := uverbs.WC{ID: 1, QPN: p.a.QPN(), Status: cq.StatusLocalProtection}
	if factsOf(t, p.dev) == &connectX {
		want.VendorErr = 0x21 // of no region, where a result is written
	}
	if w := p.flush(t, p.a, 1)[0]; w != want {
		t.Errorf("completion %+v, want %+v", w, want)
	}
	if s, err := p.a.QueryState(); err != nil || s != uverbs.StateErr {
		t.Errorf("state %v, %v, want ERR", s, err)
	}
	if got := p.mem.Uint64(8192).Load(); got != 0 {
		t.Errorf("the result %#x went to memory that is registered no more", got)
	}
}

// An address that is no multiple of eight is refused when posted, and the queue pair
// goes on.
func TestGuestConformanceAtomic_NotAligned(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	sq, region := p.a.SendQueue(), p.peer.Regions[0]
	const place = 512 << 10
	for _, off := range []uint64{1, 4, 7} {
		sq.FetchAdd(1, p.mr.Span(0, 8), region.At(place+off), 1)
		if err := sq.Flush(); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("fetch and add at %d: %v", off, err)
		}
		sq.CompareSwap(1, p.mr.Span(0, 8), region.At(place+off), 0, 1)
		if err := sq.Flush(); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("compare and swap at %d: %v", off, err)
		}
	}
	for _, n := range []int{0, 4, 7, 9, 16} { // the result is eight bytes
		sq.FetchAdd(1, p.mr.Span(0, n), region.At(place), 1)
		if err := sq.Flush(); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("a result of %d bytes: %v", n, err)
		}
	}
	if a, b := p.mem.Uint64(place).Load(), p.mem.Uint64(place+8).Load(); a != 0 || b != 0 {
		t.Errorf("%#x %#x were written", a, b)
	}
	sq.FetchAdd(2, p.mr.Span(0, 8), region.At(place), 5)
	p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 8, Opcode: uverbs.OpFetchAdd})
	if got := p.mem.Uint64(place).Load(); got != 5 {
		t.Errorf("%d is there after the good one, want 5", got)
	}
}
