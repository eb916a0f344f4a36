package selftest

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// memoryTests are the operations on the other end's memory that are more than a write, and
// what queues share.
func memoryTests() []test {
	return []test{
		{group: "RC", name: "compare and swap", claims: claimsAtomics, run: testCompareSwap},
		{group: "RC", name: "fetch and add", claims: claimsAtomics, run: testFetchAdd},
		{group: "RC", name: "atomic write", claims: claimsCap(uverbs.CapAtomicWrite), run: testAtomicWrite},
		{group: "RC", name: "remote flush", claims: claimsCap(uverbs.CapFlushGlobal), run: testRemoteFlush},
		{group: "RC", name: "window: bind, write, read", claims: claimsCap(uverbs.CapMemWindowType2B), run: testWindow},
		{group: "RC", name: "window: local invalidate", claims: claimsCap(uverbs.CapMemWindowType2B), run: testLocalInvalidate},
		{group: "RC", name: "window: send with invalidate", claims: claimsCap(uverbs.CapMemWindowType2B), run: testSendInvalidate},
		{group: "RC", name: "fence", run: testFence},
		{group: "RC", name: "unsignalled sends", run: testUnsignaled},
		{group: "RC", name: "shared receive queue", claims: claimsSRQ, run: testSRQ},
		{group: "UD", name: "shared receive queue", run: testDatagramSRQ},
	}
}

// atomicSpec is that of ends with atomics.
func atomicSpec() Spec {
	s := usual(uverbs.RC)
	s.Region |= uverbs.RemoteAtomic
	s.Access |= uverbs.RemoteAtomic
	return s
}

// word reads eight bytes of end A's own memory.
func (t *bench) word(off int) uint64 { return t.a.mem.Uint64(off).Load() }

// pull reads eight bytes of the other end's memory through the device.
func (t *bench) pull(ctx context.Context, at uint64) (uint64, error) {
	const into = 900 << 10
	if err := t.post(ctx, t.a, Work{Op: cq.OpRead, ID: 99, To: at, Pieces: []Piece{{into, 8}}}); err != nil {
		return 0, err
	}
	err := t.expect(ctx, t.a, Done{ID: 99, Op: cq.OpRead, Bytes: 8})
	return t.word(into), err
}

// one posts a request at end A and waits for its end.
func (t *bench) one(ctx context.Context, w Work, want Done) error {
	want.ID, want.Op = w.ID, w.Op
	if err := t.post(ctx, t.a, w); err != nil {
		return err
	}
	return t.expect(ctx, t.a, want)
}

func testCompareSwap(ctx context.Context, t *bench) error {
	if err := t.meet(ctx, atomicSpec(), atomicSpec(), nil); err != nil {
		return err
	}
	const at, old = targetAt, 64
	const first, second = 0x0102030405060708, 0x1112131415161718
	for _, step := range []struct{ compare, swap, before, after uint64 }{
		{0, first, 0, first},      // memory begins as zeros
		{0, second, first, first}, // another value is there
		{first, second, first, second},
	} {
		if err := t.one(ctx, Work{Op: cq.OpCompareSwap, ID: 1, A: step.compare, B: step.swap, To: at, Pieces: []Piece{{old, 8}}}, Done{Bytes: 8}); err != nil {
			return err
		}
		if got := t.word(old); got != step.before {
			return fmt.Errorf("compare %#x, swap %#x: it says that %#x was there, and not %#x", step.compare, step.swap, got, step.before)
		}
		if got, err := t.pull(ctx, at); err != nil || got != step.after {
			return errors.Join(err, fmt.Errorf("compare %#x, swap %#x: %#x is there afterwards, and not %#x", step.compare, step.swap, got, step.after))
		}
	}
	return nil
}

func testFetchAdd(ctx context.Context, t *bench) error {
	if err := t.meet(ctx, atomicSpec(), atomicSpec(), nil); err != nil {
		return err
	}
	const at, old, add = targetAt, 64, 1<<40 + 3
	sum := uint64(0)
	for range 5 {
		if err := t.one(ctx, Work{Op: cq.OpFetchAdd, ID: 1, A: add, To: at, Pieces: []Piece{{old, 8}}}, Done{Bytes: 8}); err != nil {
			return err
		}
		if got := t.word(old); got != sum {
			return fmt.Errorf("it says that %#x was there, and not %#x", got, sum)
		}
		sum += add
	}
	if got, err := t.pull(ctx, at); err != nil || got != sum {
		return errors.Join(err, fmt.Errorf("%#x is there afterwards, and not %#x", got, sum))
	}
	// Around, and one back.
	return t.one(ctx, Work{Op: cq.OpFetchAdd, ID: 2, A: ^uint64(0), To: at, Pieces: []Piece{{old, 8}}}, Done{Bytes: 8})
}

func testAtomicWrite(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	const value = 0x2122232425262728
	if err := t.one(ctx, Work{Op: cq.OpAtomicWrite, ID: 1, A: value, To: targetAt}, Done{Bytes: 8}); err != nil {
		return err
	}
	got, err := t.pull(ctx, targetAt)
	if err == nil && got != value {
		err = fmt.Errorf("%#x was written, and not %#x", got, uint64(value))
	}
	return err
}

func testRemoteFlush(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	spec.Region |= uverbs.FlushGlobal
	spec.Access |= uverbs.FlushGlobal
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	if err := t.fill(ctx, t.a, 0, 1000, 3); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpWrite, ID: 1, Flags: cq.Unsignaled, To: targetAt, Pieces: []Piece{{0, 1000}}}); err != nil {
		return err
	}
	if err := t.one(ctx, Work{Op: cq.OpFlush, ID: 2, A: 1000, To: targetAt}, Done{Bytes: 1000}); err != nil {
		return err
	}
	return t.check(ctx, t.b, "what was flushed", targetAt, 1000, 3)
}

// window makes ends of which B has bound a window onto a piece of its memory.
func (t *bench) window(ctx context.Context) (*uverbs.Remote, error) {
	spec := usual(uverbs.RC)
	spec.Region |= uverbs.MWBind
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return nil, err
	}
	a, err := t.order(ctx, t.b, Order{Do: doOpen, Off: targetAt, Bytes: 4096})
	if err != nil {
		return nil, err
	}
	return a.Region, nil
}

func testWindow(ctx context.Context, t *bench) error {
	window, err := t.window(ctx)
	if err != nil {
		return err
	}
	if window.RKey == t.made[1].Region.RKey || window.Length != 4096 {
		return fmt.Errorf("the window has the region's key, or %d bytes in the place of 4096", window.Length)
	}
	if err := t.fill(ctx, t.a, 0, 500, 4); err != nil {
		return err
	}
	if err := t.one(ctx, Work{Op: cq.OpWrite, ID: 1, Window: window, To: 8, Pieces: []Piece{{0, 500}}}, Done{Bytes: 500}); err != nil {
		return err
	}
	if err := t.check(ctx, t.b, "what was written through the window", targetAt+8, 500, 4); err != nil {
		return err
	}
	if err := t.one(ctx, Work{Op: cq.OpRead, ID: 2, Window: window, To: 8, Pieces: []Piece{{4096, 500}}}, Done{Bytes: 500}); err != nil {
		return err
	}
	return t.check(ctx, t.a, "what was read through the window", 4096, 500, 4)
}

// closed says whether the window lets nobody through any more: the write fails.
func (t *bench) closed(ctx context.Context, window *uverbs.Remote) error {
	if err := t.post(ctx, t.a, Work{Op: cq.OpWrite, ID: 9, Window: window, Pieces: []Piece{{0, 8}}}); err != nil {
		return err
	}
	return t.failure(ctx, t.a, 9, cq.SendSide, cq.StatusRemoteAccess)
}

func testLocalInvalidate(ctx context.Context, t *bench) error {
	window, err := t.window(ctx)
	if err != nil {
		return err
	}
	if _, err := t.order(ctx, t.b, Order{Do: doShut}); err != nil {
		return err
	}
	again, err := t.order(ctx, t.b, Order{Do: doOpen, Off: targetAt, Bytes: 64})
	if err != nil {
		return fmt.Errorf("bind again: %w", err)
	}
	if again.Region.RKey == window.RKey {
		return errors.New("the window has the key that it had before")
	}
	if err := t.one(ctx, Work{Op: cq.OpWrite, ID: 1, Window: again.Region, Pieces: []Piece{{0, 8}}}, Done{Bytes: 8}); err != nil {
		return err
	}
	return t.closed(ctx, window)
}

func testSendInvalidate(ctx context.Context, t *bench) error {
	window, err := t.window(ctx)
	if err != nil {
		return err
	}
	if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{0, 100}}}); err != nil {
		return err
	}
	if err := t.one(ctx, Work{Op: cq.OpSendInvalidate, ID: 1, Window: window, Pieces: []Piece{{0, 20}}}, Done{Bytes: 20}); err != nil {
		return err
	}
	if err := t.expect(ctx, t.b, Done{ID: 8, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: 20, Invalidated: &window.RKey}); err != nil {
		return err
	}
	return t.closed(ctx, window)
}

// testFence: a send behind a read, fenced, carries what the read has brought.
func testFence(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	const n = 4096
	for i := range t.rounds(50, 5) {
		seed := uint64(i)
		if err := t.fill(ctx, t.b, targetAt, n, seed); err != nil {
			return err
		}
		if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{0, n}}}); err != nil {
			return err
		}
		if err := t.post(ctx, t.a,
			Work{Op: cq.OpRead, ID: 1, To: targetAt, Pieces: []Piece{{0, n}}},
			Work{Op: cq.OpSend, ID: 2, Flags: cq.Fence, Pieces: []Piece{{0, n}}}); err != nil {
			return err
		}
		if err := t.expect(ctx, t.a, Done{ID: 1, Op: cq.OpRead, Bytes: n}, Done{ID: 2, Op: cq.OpSend, Bytes: n}); err != nil {
			return err
		}
		if err := t.expect(ctx, t.b, Done{ID: 8, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: n}); err != nil {
			return err
		}
		if err := t.check(ctx, t.b, "what came back", 0, n, seed); err != nil {
			return err
		}
	}
	return nil
}

// testUnsignaled: of 16 sends only the last has a completion.
func testUnsignaled(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	spec.SendDepth = 32
	return stream(ctx, t, spec, spec, Stream{Messages: t.rounds(5000, 500), Bytes: 64, Quiet: 16, Credit: 16})
}

func testSRQ(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	b.SRQ = 32
	return stream(ctx, t, a, b, Stream{Messages: t.rounds(20000, 500), Bytes: 64, Credit: 16})
}

func testDatagramSRQ(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.UD), usual(uverbs.UD)
	b.SRQ = 32
	return stream(ctx, t, a, b, Stream{Messages: t.rounds(5000, 500), Bytes: 64, Credit: 16})
}
