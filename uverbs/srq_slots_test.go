package uverbs

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// Closing a queue pair gives the receives back that its unpolled completions
// hold, also when its number is used again at once; so does closing the CQ.
func TestSRQTombstone(t *testing.T) {
	p := newPool(t, fakekernel.Device{ReuseQPN: true})
	p.post(t, 1, 2, 3, 4)
	p.send(t, 0, "late")
	p.send(t, 0, "late too")
	number := p.server[0].QPN()
	if err := p.server[0].Close(); err != nil {
		t.Fatal(err)
	}
	again, err := p.pd.NewQP(RC, &QPOptions{CQ: p.cqs[0], SRQ: p.srq})
	if err != nil {
		t.Fatal(err)
	}
	if again.QPN() != number {
		t.Fatalf("number %d, want %d again", again.QPN(), number)
	}
	fresh, err := p.pd.NewQP(RC, &QPOptions{CQ: p.client[0].sendCQ, Inline: 64})
	if err != nil {
		t.Fatal(err)
	}
	if err := join(again, fresh); err != nil {
		t.Fatal(err)
	}
	p.client[0] = fresh
	p.send(t, 0, "in time")
	if w := wait(t, p.cqs[0], 1)[0]; w.ID != 3 || w.QPN != number || string(p.mem.Bytes()[3*64:][:7]) != "in time" {
		t.Errorf("%+v", w)
	}
	if s := p.cqs[0].Stats(); s != (CQStats{Late: 2}) {
		t.Errorf("dropped %+v, want 2 late ones", s)
	}
	if n := p.srq.RecvQueue().Room(); n != 7 {
		t.Errorf("room %d, want 7", n)
	}
	// The last completion goes down with its CQ; its receive does not.
	p.send(t, 0, "lost")
	if n := p.srq.RecvQueue().Room(); n != 7 {
		t.Errorf("room %d, want 7", n)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cqs[0].Close(); err != nil {
		t.Fatal(err)
	}
	if n := p.srq.RecvQueue().Room(); n != 8 {
		t.Errorf("room %d, want 8", n)
	}
	if len(p.srq.claims) != 1 {
		t.Errorf("claims %v, want one", p.srq.claims)
	}
}

// A CQ that is resized in between still tells a queue pair from the one that had
// its number before.
func TestSRQResizedCQ(t *testing.T) {
	p := newPool(t, fakekernel.Device{ReuseQPN: true})
	for i := range uint64(40) { // the positions are past those of a new ring
		p.post(t, i%8)
		p.send(t, 0, "x")
		wait(t, p.cqs[0], 1)
	}
	p.post(t, 1, 2, 3, 4)
	p.send(t, 0, "late")
	p.send(t, 0, "late too")
	if err := errors.Join(p.server[0].Close(), p.client[0].Close()); err != nil {
		t.Fatal(err)
	}
	var qps [2]*QP
	var err error
	for i, opts := range []*QPOptions{{CQ: p.cqs[0], SRQ: p.srq}, {CQ: p.client[1].sendCQ, Inline: 64}} {
		if qps[i], err = p.pd.NewQP(RC, opts); err != nil {
			t.Fatal(err)
		}
	}
	if qps[0].QPN() != p.server[0].QPN() {
		t.Fatalf("number %d, want %d again", qps[0].QPN(), p.server[0].QPN())
	}
	if err := errors.Join(join(qps[0], qps[1]), p.cqs[0].ResizeOwned(63)); err != nil {
		t.Fatal(err)
	}
	p.client[0] = qps[1]
	p.send(t, 0, "in time")
	if w := wait(t, p.cqs[0], 1)[0]; w.ID != 3 || w.Bytes != 7 {
		t.Errorf("%+v", w)
	}
	if s := p.cqs[0].Stats(); s != (CQStats{Late: 2}) {
		t.Errorf("dropped %+v, want 2 late ones", s)
	}
	if n := p.srq.RecvQueue().Room(); n != 7 {
		t.Errorf("room %d, want 7", n)
	}
}

// Beside a poller, a queue pair is closed and another made that gets the same
// number and shares the same SRQ and CQ, over and over. Every message that comes
// to a live one is heard once, with the id of its receive; no receive is lost.
//
// GOVERBS_ROUNDS sets how often.
func TestSRQNumbersUsedAgain(t *testing.T) {
	usual := 10000
	if raceDetector {
		usual = 2000 // each takes ten times as long
	}
	rounds := roundsOr(t, usual)
	r := newRig(t, false, fakekernel.Device{ReuseQPN: true})
	const depth = 64
	srq, err := r.pd.NewSRQ(&SRQOptions{Depth: depth})
	if err != nil {
		t.Fatal(err)
	}
	q, err := r.dev.NewCQ(256, nil)
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := r.dev.NewCQ(64, nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := r.pd.NewQP(UD, &QPOptions{CQ: quiet, SendDepth: 32, RecvDepth: 1, Inline: 16})
	if err != nil {
		t.Fatal(err)
	}
	ah, err := r.pd.NewAH(sender.Endpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	// Messages to a queue pair that lives until they were heard say so, so that they
	// are not taken for those of the one before, of which the poller may still be
	// working on the last.
	const live = 1 << 31
	var heard, heardLive atomic.Uint64
	var poller sync.WaitGroup
	free := make(chan uint64, depth)
	for i := range uint64(depth) {
		free <- i
	}
	seen := map[uint32]int{} // how often each message was heard; the poller's
	poller.Go(func() {
		wcs := make([]WC, 8)
		for !stop.Load() || !q.ring.Empty() {
			n, err := q.Poll(wcs)
			if err != nil {
				t.Error(err)
				return
			}
			if n == 0 {
				runtime.Gosched()
			}
			for _, w := range wcs[:n] {
				if w.Err() != nil || w.Side != RecvSide || w.ID >= depth || w.SrcQPN != sender.QPN() {
					t.Errorf("completion %+v", w)
					return
				}
				imm, _ := w.Imm()
				seen[imm&^live]++
				heard.Add(1)
				if imm&live != 0 {
					heardLive.Add(1)
				}
			}
		}
	})
	// The ids of receives are their places in memory; one is used again when
	// its completion was heard, or dropped as late: Room says so.
	posted := uint64(0)
	post := func() {
		for n := srq.RecvQueue().Room(); n > 0; n-- {
			srq.RecvQueue().Recv(posted%depth, r.mr.Span(int(posted%depth)*64, 64))
			posted++
		}
		if err := srq.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	var number uint32
	sent := uint32(0)
	must := map[uint32]bool{} // messages that have to be heard
	var wcs [32]WC
	for round := range rounds {
		post()
		qp, err := r.pd.NewQP(UD, &QPOptions{SendCQ: quiet, RecvCQ: q, SRQ: srq, SendDepth: 1})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if number == 0 {
			number = qp.QPN()
		}
		if qp.QPN() != number {
			t.Fatalf("round %d: number %d, want %d", round, qp.QPN(), number)
		}
		for range 1 + round%3 {
			sent++
			imm := sent
			if round%4 == 0 {
				must[sent], imm = true, sent|live
			}
			sender.SendQueue().SendToImm(1, imm, Dest{AH: ah, QPN: number}, r.mr.Span(0, 8))
		}
		if err := sender.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		// Every fourth one lives until its messages were heard.
		for end := time.Now().Add(patience); heardLive.Load() < uint64(len(must)); {
			if time.Now().After(end) {
				t.Fatalf("round %d: %d messages of %d were heard; room %d", round, heardLive.Load(), len(must), srq.RecvQueue().Room())
			}
			runtime.Gosched()
		}
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
		for n := 1; n > 0; {
			if n, err = quiet.Poll(wcs[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for end := time.Now().Add(patience); srq.RecvQueue().Room() != depth-int(unposted(srq)); {
		if time.Now().After(end) {
			t.Fatalf("room %d, %d receives are still posted", srq.RecvQueue().Room(), unposted(srq))
		}
	}
	stop.Store(true)
	poller.Wait()
	// The last queue pair may have been closed while the poller emptied the ring for the
	// last time: what it left is for one Poll more.
	if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("after the end: %d, %v", n, err)
	}
	for m := range must {
		if seen[m] != 1 {
			t.Fatalf("message %d of %d was heard %d times", m, sent, seen[m])
		}
	}
	for m, n := range seen {
		if n != 1 || m == 0 || m > sent {
			t.Fatalf("message %d of %d was heard %d times", m, sent, n)
		}
	}
	s := q.Stats()
	if s.Stray != 0 || heard.Load()+s.Late != uint64(sent) {
		t.Errorf("%d messages, %d heard, dropped %+v", sent, heard.Load(), s)
	}
	if q.committed != 0 || len(srq.claims) != 0 {
		t.Errorf("%d completions are still claimed, by %v", q.committed, srq.claims)
	}
	t.Logf("%d rounds, %d messages: %d heard, %d late", rounds, sent, heard.Load(), s.Late)
}

// roundsOr is how often a test that costs much goes round: GOVERBS_ROUNDS in the
// environment, or usual.
func roundsOr(t *testing.T, usual int) int {
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

// unposted is how many receives the device has not taken.
func unposted(s *SRQ) uint32 {
	b := s.half.(*rxeSRQ).mapping.Bytes()
	return (native.Uint32(b[128:]) - native.Uint32(b[256:])) & native.Uint32(b[4:])
}

// Two pollers, one poster, many senders.
func TestSRQPollers(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	const total = 4000
	credit := make(chan struct{}, 8)
	for range 8 {
		credit <- struct{}{}
	}
	var all sync.WaitGroup
	var heard [2][]uint64
	for i := range 2 {
		all.Go(func() {
			wcs := make([]WC, 4)
			for {
				n, err := p.cqs[i].Poll(wcs)
				if err != nil {
					if !isClosed(err) {
						t.Error(err)
					}
					return
				}
				if n == 0 {
					runtime.Gosched()
				}
				for _, w := range wcs[:n] {
					if w.Side != RecvSide {
						continue
					}
					if w.Err() != nil || w.QPN != p.server[i].QPN() {
						t.Errorf("%+v", w)
						return
					}
					heard[i] = append(heard[i], w.ID)
					credit <- struct{}{}
				}
			}
		})
	}
	sent := 0
	for id := uint64(1); id <= total; id++ {
		<-credit
		p.srq.RecvQueue().Recv(id, p.mr.Span(int(id%8)*64, 64))
		if err := p.srq.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		sent++
		p.client[(id*id>>2)&1].SendQueue().SendInline(id, []byte("x"))
		if err := p.client[(id*id>>2)&1].SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		var wcs [4]WC
		for n := 1; n > 0; {
			var err error
			if n, err = p.client[0].sendCQ.Poll(wcs[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 8 {
		<-credit
	}
	for _, qp := range p.server {
		if err := qp.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, q := range p.cqs {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	ends := map[uint64]int{}
	for _, h := range heard {
		for i, id := range h {
			ends[id]++
			if i > 0 && id <= h[i-1] {
				t.Fatalf("receive %d after %d on one CQ", id, h[i-1])
			}
		}
	}
	if len(ends) != total || len(heard[0]) == 0 || len(heard[1]) == 0 {
		t.Errorf("%d of %d receives ended, %d and %d", len(ends), total, len(heard[0]), len(heard[1]))
	}
	for id, n := range ends {
		if n != 1 {
			t.Fatalf("receive %d ended %d times", id, n)
		}
	}
}
