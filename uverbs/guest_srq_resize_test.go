package uverbs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// resizable sees that a device that cannot resize an SRQ says so, whose receives are
// as they were, and then ends the test.
func (p *pool) resizable(t *testing.T) {
	t.Helper()
	if factsOf(t, p.dev).resizesSRQ {
		return
	}
	p.post(t, 1, 2)
	if err := p.srq.Resize(16); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("resize: %v", err)
	}
	if p.srq.Depth() != 8 || p.srq.RecvQueue().Room() != 6 {
		t.Errorf("depth %d, room %d after the refusal, want 8 and 6", p.srq.Depth(), p.srq.RecvQueue().Room())
	}
	p.client[0].SendQueue().SendInline(7, []byte("hello"))
	if err := p.client[0].SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	p.wait(t, 1)
	want := uverbs.WC{ID: 1, QPN: p.server[0].QPN(), Bytes: 5, Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}
	if w := p.collect(t, 0, 1)[0]; w != want {
		t.Errorf("received %+v, want %+v", w, want)
	}
	t.Skip("declared skip: not soft-RoCE: a ConnectX's SRQ cannot be resized, and says so")
}

// A live SRQ keeps what was posted, and what is staged, through a resize, with
// traffic before and after, down and up, over many laps of its rings.
func TestGuestSRQResize(t *testing.T) {
	p := newPool(t)
	p.resizable(t)
	rq, next, heard := p.srq.RecvQueue(), uint64(0), uint64(0)
	const slots = 200 // of memory
	stage := func(n int) {
		for range n {
			rq.Recv(next, p.mr.Span(4096+int(next%slots)*64, 64))
			next++
		}
	}
	flush := func() {
		t.Helper()
		if err := rq.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(n int) {
		t.Helper()
		for range n {
			from, text := int(heard%2), fmt.Sprintf("message %d", heard)
			p.client[from].SendQueue().SendInline(1, []byte(text))
			if err := p.client[from].SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			p.wait(t, 1)
			w := p.collect(t, from, 1)[0]
			if w.Err() != nil || w.ID != heard || w.Bytes != uint32(len(text)) {
				t.Fatalf("received %+v, want %d", w, heard)
			}
			if got := p.mem.Bytes()[4096+int(heard%slots)*64:][:len(text)]; string(got) != text {
				t.Fatalf("receive %d has %q, want %q", heard, got, text)
			}
			heard++
		}
	}
	for round, depth := range []int{7, 16, 40, 3, 1, 31, 8, 5, 15} {
		stage(p.srq.RecvQueue().Room())
		flush()
		hear(int(next-heard) - min(depth, 3)) // some are left,
		stage(min(depth-min(depth, 3), rq.Room(), 2))
		before := int(next - heard) // and some are staged
		if err := p.srq.Resize(depth); err != nil {
			t.Fatalf("round %d, to %d: %v", round, depth, err)
		}
		if p.srq.Depth() != depth || rq.Room() != depth-before {
			t.Fatalf("round %d: depth %d, room %d, want %d, %d", round, p.srq.Depth(), rq.Room(), depth, depth-before)
		}
		flush()
		hear(before)
		for range 3 {
			stage(rq.Room())
			rq.Recv(0, p.mr.Span(0, 1))
			if err := rq.Flush(); !errors.Is(err, uverbs.ErrQueueFull) {
				t.Fatalf("one more than %d: %v", depth, err)
			}
			next = heard
			stage(rq.Room())
			flush()
			hear(depth)
		}
	}
	stage(4)
	flush()
	if err := p.srq.Resize(3); !errors.Is(err, uverbs.ErrQueueFull) {
		t.Errorf("below what is posted: %v", err)
	}
	hear(4)
	if err := p.srq.SetLimit(3); err != nil {
		t.Fatal(err)
	}
	// The kernel knows of the limit, and refuses without harm.
	if err := p.srq.Resize(2); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("below the limit: %v", err)
	}
	stage(2)
	flush()
	hear(2)
	for _, q := range p.cqs {
		if s := q.Stats(); s != (uverbs.CQStats{}) {
			t.Errorf("completions were dropped: %+v", s)
		}
	}
}

// The kernel takes receives while their ring is replaced. Every message is heard
// once, in the receive that the kernel says it is in.
func TestGuestSRQResizeBesideTraffic(t *testing.T) {
	p := newPool(t)
	p.resizable(t)
	total := guestRounds(t, 1500)
	const cell = 64
	var heard [2]map[string]int
	var ids [2][]uint64
	var all sync.WaitGroup
	var ended atomic.Int64
	credit := make(chan struct{}, 64) // receives that no message was sent for
	slot := make(chan uint64, 64)     // places in memory that are free
	for i := range uint64(64) {
		slot <- i
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+time.Duration(total)*50*time.Millisecond)
	defer cancel()
	for i := range 2 {
		heard[i] = make(map[string]int)
		all.Go(func() { // the poller of a server
			var wcs [4]uverbs.WC
			for ctx.Err() == nil && ended.Load() < int64(total) {
				n, err := p.cqs[i].Poll(wcs[:])
				if err != nil {
					t.Error(err)
					return
				}
				for _, w := range wcs[:n] {
					if w.Err() != nil || w.QPN != p.server[i].QPN() || w.ID >= 64 {
						t.Errorf("received %+v", w)
						cancel()
						return
					}
					heard[i][string(p.mem.Bytes()[4096+w.ID*cell:][:w.Bytes])]++
					ids[i] = append(ids[i], w.ID)
					ended.Add(1)
					slot <- w.ID
				}
				if n == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	all.Go(func() { // both senders
		for sent := 0; sent < total && ctx.Err() == nil; {
			var wcs [8]uverbs.WC
			n, err := p.q.Poll(wcs[:])
			if err != nil {
				t.Error(err)
				return
			}
			for _, w := range wcs[:n] {
				if w.Err() != nil {
					t.Errorf("sent %+v", w)
					cancel()
					return
				}
			}
			sq := p.client[sent%2].SendQueue()
			if sq.Room() == 0 {
				runtime.Gosched()
				continue
			}
			select {
			case <-credit:
			default:
				runtime.Gosched()
				continue
			}
			sq.SendInline(uint64(sent), fmt.Appendf(nil, "message %d", sent))
			if err := sq.Flush(); err != nil {
				t.Error(err)
				return
			}
			sent++
		}
	})
	rq, resized, refused := p.srq.RecvQueue(), 0, 0
	for i := 0; ended.Load() < int64(total) && ctx.Err() == nil; i++ {
		staged := 0
	stage:
		for n := min(rq.Room(), 1+i%5); n > 0; n-- {
			select {
			case id := <-slot:
				rq.Recv(id, p.mr.Span(4096+int(id)*cell, cell))
				staged++
			default:
				break stage
			}
		}
		switch err := p.srq.Resize(1 + i*7%20); {
		case err == nil:
			resized++
		case errors.Is(err, uverbs.ErrQueueFull):
			refused++
		default:
			t.Fatal(err)
		}
		if err := rq.Flush(); err != nil {
			t.Fatal(err)
		}
		for range staged {
			credit <- struct{}{}
		}
	}
	all.Wait()
	for m := range total {
		text := fmt.Sprintf("message %d", m)
		if n := heard[m%2][text]; n != 1 || heard[1-m%2][text] != 0 {
			t.Fatalf("%q was heard %d times; %d of %d messages were", text, n, ended.Load(), total)
		}
	}
	if resized < 10 {
		t.Errorf("%d resizes, %d were refused", resized, refused)
	}
	t.Logf("%d messages beside %d resizes, %d refused", total, resized, refused)
}

// guestRounds is how often a test that costs much goes round: GOVERBS_ROUNDS in the
// environment, or usual.
func guestRounds(t *testing.T, usual int) int {
	t.Helper()
	s := os.Getenv("GOVERBS_ROUNDS")
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("GOVERBS_ROUNDS: %v", err)
	}
	return n
}
