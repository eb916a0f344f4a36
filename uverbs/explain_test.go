package uverbs

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// explains checks that an explanation has all of some parts in its words, in any order.
func explains(t *testing.T, e *Explanation, parts ...string) {
	t.Helper()
	text := e.String()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in\n%s", p, text)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// The first failure is explained with all that was posted, and what it flushed with its
// cause.
func TestExplain(t *testing.T) {
	r := newRig(t, false)
	sq := r.a.SendQueue()
	to := r.peer.Regions[0]
	sq.Write(10, to.At(8), r.mr.Span(4096, 16))
	sq.WriteInline(11, to.At(8), []byte("quiet"), Unsignaled)
	sq.Read(12, r.mr.Span(64, 32), to.At(128))
	bad := to
	bad.RKey ^= 0x5500
	sq.WriteV(13, bad.At(256), []Span{r.mr.Span(4096, 8), r.mr.Span(8192, 24)})
	sq.SendInline(14, []byte("flushed"), Unsignaled)
	r.a.RecvQueue().Recv(20, r.mr.Span(0, 48))
	if err := errors.Join(r.a.RecvQueue().Flush(), sq.Flush()); err != nil {
		t.Fatal(err)
	}
	sends := wait(t, r.sendQ, 4)
	recv := wait(t, r.recvQ, 1)[0]
	ended := map[uint64]*Explanation{20: r.recvQ.Explain(&recv)}
	for i := range sends {
		ended[sends[i].ID] = r.sendQ.Explain(&sends[i])
	}
	addr := func(off int) uint64 { e, _ := r.mr.Span(off, 1).sge(); return e.Addr }
	e := ended[13]
	if !e.IsFirst || e.Fault != cq.FaultProgram || e.Remedy != cq.RemedyReset || e.PeerQPN != r.b.QPN() || e.Peer != r.b.Source().GID || len(e.Unknown) != 0 ||
		e.Began.IsZero() || e.FailedAt.Before(e.Began) || time.Since(e.FailedAt) > time.Hour || e.Cause == nil {
		t.Errorf("%+v\n%v", e, e)
	}
	want := PastRequest{
		ID: 13, Op: OpWrite, Bytes: 32, End: EndFailed, Details: true, Remote: true, RemoteAddr: bad.Addr + 256, RKey: bad.RKey,
		Spans: []PastSpan{{addr(4096), 8, r.mr.LKey(), r.mr}, {addr(8192), 24, r.mr.LKey(), r.mr}},
	}
	if fmt.Sprintf("%+v", *e.Request) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v, want %+v", *e.Request, want)
	}
	wantBefore := []PastRequest{
		{ID: 10, Op: OpWrite, Bytes: 16, End: EndSuccess},
		{ID: 11, Op: OpWrite, Bytes: 5, End: EndSuccess},
		{ID: 12, Op: OpRead, Bytes: 32, End: EndSuccess},
	}
	if fmt.Sprintf("%+v", e.Before) != fmt.Sprintf("%+v", wantBefore) {
		t.Errorf("%+v, want %+v", e.Before, wantBefore)
	}
	explains(t, e, "rxe0: send request 13 on RC QP 17 in ERR", "connected to QP 18 at", "remote access error (status 10)", "the request: write of 32 bytes, failed",
		fmt.Sprintf("24 bytes of local memory at %#x, lkey %#x", addr(8192), r.mr.LKey()), fmt.Sprintf("the peer's memory at %#x, rkey %#x", bad.Addr+256, bad.RKey),
		"fault of: this program", "what helps: reset and connect", "it is the first failure", "12: read of 32 bytes, succeeded", "11: write of 5 bytes, succeeded")

	e = ended[14]
	if e.IsFirst || e.First == nil || e.First.ID != 13 || e.Fault != cq.FaultConsequence || e.Request == nil || e.Request.End != EndFlushed || !e.Request.Inline ||
		len(e.Before) != 4 || e.Before[3].End != EndFailed || e.Before[3].ID != 13 || e.Before[0].End != EndSuccess {
		t.Errorf("%+v\n%v", e, e)
	}
	explains(t, e, "request 14", "send of 7 bytes, unsignaled, flushed; its data in the request", "fault of: an earlier failure", "the first failure was that of send request 13", "13: write of 32 bytes, failed")
	explains(t, ended[20], "recv request 20", "receive of 48 bytes, flushed; 48 bytes of local memory", "the first failure was that of send request 13")
	explains(t, ended[10], "write of 16 bytes, succeeded", "what helps: nothing", "fault of: nobody")
	if len(ended[10].Before) != 0 {
		t.Errorf("before the first: %+v", ended[10].Before)
	}
}

// What is not known any more, and what never was, is said to be so.
func TestExplainUnknown(t *testing.T) {
	r := newRig(t, false)
	sq := r.a.SendQueue()
	to := r.peer.Regions[0]
	bad := to
	bad.RKey ^= 0x5500
	// 40 more than the table's places for 16.
	for i := range uint64(40) {
		sq.Write(i, to.At(0), r.mr.Span(4096, 8))
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
		wait(t, r.sendQ, 1)
	}
	sq.Write(40, bad.At(0), r.mr.Span(4096, 8))
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	w := wait(t, r.sendQ, 1)[0]
	e := r.sendQ.Explain(&w)
	if n := len(e.Before); n != 14 || e.Before[n-1].ID != 39 || e.Before[0].ID != 26 || e.Before[0].End != EndSuccess {
		t.Errorf("%+v", e.Before)
	}
	explains(t, e, "not known: 2 requests before it: others have their places")
	// In ERR requests are taken, and flushed: they go over what was there.
	for i := range uint64(16) {
		sq.Write(100+i, to.At(0), r.mr.Span(4096, 8))
	}
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	e = r.sendQ.Explain(&w)
	if !e.IsFirst || e.Request == nil || e.Request.Details || e.Request.Op != OpWrite || e.Request.Bytes != 8 || e.Before != nil {
		t.Errorf("%+v", e)
	}
	explains(t, e, "write of 8 bytes, failed", "not known: its memory, and the requests before it")
	for _, w := range wait(t, r.sendQ, 16) {
		if w.ID == 115 {
			explains(t, r.sendQ.Explain(&w), "write of 8 bytes, flushed", "the first failure was that of send request 40")
		}
	}
	// The reset wipes the rings, and the new life knows nothing of the old one.
	if err := errors.Join(r.b.Modify(StateReset), r.b.Restart(), r.a.RecoverPolling(t.Context(), func(WC) {}, r.swap(r.b))); err != nil {
		t.Fatal(err)
	}
	e = r.sendQ.Explain(&w)
	if e.IsFirst || e.First != nil || e.Request != nil || e.Before != nil {
		t.Errorf("%+v", e)
	}
	explains(t, e, "remote access error", "not known: the request")
	if err := r.a.Close(); err != nil {
		t.Fatal(err)
	}
	explains(t, r.sendQ.Explain(&w), "on QP 17:", "remote access error", "fault of: this program", "not known: the queue pair is closed")
	explains(t, r.recvQ.Explain(&WC{ID: 1 << 40, QPN: 99, Side: 9, Status: 77, VendorErr: 5, Flags: cq.FlagSynthetic}),
		"0x10000000000", "unknown completion status 77", "code: 0x5", "the library ended")
}

// A flush without a failure is not blamed on anybody.
func TestExplainTakenDown(t *testing.T) {
	r := newRig(t, false)
	r.a.RecvQueue().RecvV(1, []Span{r.mr.Span(0, 8), r.mr.Span(64, 8)})
	if err := errors.Join(r.a.RecvQueue().Flush(), r.a.Modify(StateErr)); err != nil {
		t.Fatal(err)
	}
	w := wait(t, r.recvQ, 1)[0]
	explains(t, r.recvQ.Explain(&w), "receive of 16 bytes, ", "nothing failed before that is known")
	r.dev.async.handle(Event{Type: EventQPAccessError, QP: r.a})
	explains(t, r.recvQ.Explain(&w), "no request failed by itself", "QP access error")
}

// Receives of shared queues, datagrams, and the operations that name more than memory.
func TestExplainKinds(t *testing.T) {
	r := newRig(t, false)
	srq, err := r.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: r.sendQ, SRQ: srq}
	a, err := r.pd.NewQP(RC, opts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.pd.NewQP(RC, &QPOptions{CQ: r.recvQ, PeerAccess: RemoteAtomic})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Connect(t.Context(), b.Endpoint(), nil), b.Connect(t.Context(), a.Endpoint(), nil)); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		srq.RecvQueue().Recv(50+i, r.mr.Span(int(64*i), 4))
	}
	b.SendQueue().Send(60, r.mr.Span(0, 8))
	if err := errors.Join(srq.RecvQueue().Flush(), b.SendQueue().Flush()); err != nil {
		t.Fatal(err)
	}
	w := wait(t, r.sendQ, 1)[0]
	explains(t, r.sendQ.Explain(&w), "recv request 50", "receive of 4 bytes, failed; 4 bytes of local memory", "a shared queue has no order", "it is the first failure")
	w = wait(t, r.recvQ, 1)[0]
	explains(t, r.recvQ.Explain(&w), "send request 60", "send of 8 bytes, failed")

	o := newOpsRig(t, RC, fakekernel.Device{})
	far := o.peer.Regions[0]
	far.RKey ^= 0x5500
	o.a.SendQueue().FetchAdd(1, o.mr.Span(0, 8), far.At(16), 1)
	if err := o.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	w = wait(t, o.sendQ, 1)[0]
	explains(t, o.sendQ.Explain(&w), "fetch and add of 8 bytes, failed", fmt.Sprintf("the peer's memory at %#x, rkey %#x", far.Addr+16, far.RKey))
}

// Explaining while the poster posts is no race, and what it says of requests is true.
func TestExplainBesidePoster(t *testing.T) {
	r := newRig(t, false)
	sq := r.a.SendQueue()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint64(0); i < 3000; {
			if sq.Room() == 0 {
				runtime.Gosched()
				continue
			}
			for n := uint64(1); n < 9 && sq.Room() > 0; n++ {
				sq.Write(i*3, r.peer.Regions[0].At(0), r.mr.Span(4096, int(1+i%64)))
				i++
			}
			if err := sq.Flush(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var wcs [8]WC
	for n := 0; ; {
		k, err := r.sendQ.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			runtime.Gosched()
		}
		for i := range wcs[:k] {
			if n++; n%5 != 0 {
				continue
			}
			e := r.sendQ.Explain(&wcs[i])
			for _, p := range e.Before {
				if p.ID%3 != 0 || p.Bytes != uint32(1+p.ID/3%64) || p.Op != OpWrite {
					t.Fatalf("before request %d: %+v", wcs[i].ID, p)
				}
			}
			if q := e.Request; q != nil && (q.Bytes != wcs[i].Bytes || q.Details && (q.Spans[0].Length != q.Bytes || q.Spans[0].LKey != r.mr.LKey())) {
				t.Fatalf("%+v of %+v", q, wcs[i])
			}
		}
		select {
		case <-done:
			if sq.Room() == 16 {
				return
			}
		default:
		}
	}
}

// What ended with the device says so, and a reset is no help.
func TestExplainGone(t *testing.T) {
	r := newRig(t, false)
	r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	r.k.RemoveDevice("rxe0")
	event(t, r.dev)
	w := wait(t, r.recvQ, 1)[0]
	if err := r.a.Cause(); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("cause: %v, want %v", err, ErrDeviceGone)
	}
	e := r.recvQ.Explain(&w)
	if e.Remedy != cq.RemedyReopen || e.State != StateErr {
		t.Errorf("remedy %v in %v, want %v in ERR", e.Remedy, e.State, cq.RemedyReopen)
	}
	explains(t, e, "no request failed by itself", "device gone")
	if err := r.a.Close(); err != nil {
		t.Fatal(err)
	}
	if e := r.recvQ.Explain(&w); e.Remedy != cq.RemedyReopen {
		t.Errorf("remedy %v after Close, want %v", e.Remedy, cq.RemedyReopen)
	}
}
