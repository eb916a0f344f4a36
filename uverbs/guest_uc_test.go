package uverbs_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// UC carries sends and writes of all kinds, and nothing else; not even invalidation
// on soft-RoCE.
func TestGuestUC(t *testing.T) {
	p := newOpsPair(t, uverbs.UC)
	buf := p.mem.Bytes()
	sq, rq, region := p.a.SendQueue(), p.b.RecvQueue(), p.peer.Regions[0]
	const dst = 512 << 10
	for _, test := range []struct {
		name string
		n    int
		recv uverbs.Opcode // 0: none
		imm  uint32
		post func(n int)
		op   uverbs.Opcode
	}{
		{"send", 100, uverbs.OpRecv, 0, func(n int) { sq.Send(1, p.mr.Span(0, n)) }, uverbs.OpSend},
		{"send of many packets", 70000, uverbs.OpRecv, 0, func(n int) { sq.Send(1, p.mr.Span(0, n)) }, uverbs.OpSend},
		{"send of nothing", 0, uverbs.OpRecv, 0, func(n int) { sq.Send(1, p.mr.Span(0, n)) }, uverbs.OpSend},
		{"send inline", 64, uverbs.OpRecv, 0, func(n int) { sq.SendInline(1, bytes.Clone(buf[:n])) }, uverbs.OpSend},
		{"send, gathered", 90, uverbs.OpRecv, 0, func(n int) {
			sq.SendV(1, []uverbs.Span{p.mr.Span(0, 50), p.mr.Span(50, n-50)})
		}, uverbs.OpSend},
		{"send with immediate", 33, uverbs.OpRecv, 0xdeadbeef, func(n int) { sq.SendImm(1, 0xdeadbeef, p.mr.Span(0, n)) }, uverbs.OpSendImm},
		{"write", 5000, 0, 0, func(n int) { sq.Write(1, region.At(dst), p.mr.Span(0, n)) }, uverbs.OpWrite},
		{"write inline", 60, 0, 0, func(n int) { sq.WriteInline(1, region.At(dst), bytes.Clone(buf[:n])) }, uverbs.OpWrite},
		{"write with immediate", 5000, uverbs.OpRecvWriteImm, 7, func(n int) { sq.WriteImm(1, 7, region.At(dst), p.mr.Span(0, n)) }, uverbs.OpWriteImm},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := bytes.Repeat([]byte(test.name), 1+test.n/len(test.name))[:test.n]
			copy(buf, want)
			clear(buf[dst : dst+100000])
			ends := 1
			if test.recv != 0 {
				ends = 2
				rq.Recv(2, p.mr.Span(dst, 100000))
				if err := rq.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			test.post(test.n)
			wcs := p.flush(t, p.a, ends)
			if s, want := find(t, wcs, uverbs.SendSide), (uverbs.WC{ID: 1, QPN: p.a.QPN(), Bytes: uint32(test.n), Opcode: test.op}); s != want {
				t.Errorf("send completion\n got %+v\nwant %+v", s, want)
			}
			if test.recv != 0 {
				want := uverbs.WC{ID: 2, QPN: p.b.QPN(), Bytes: uint32(test.n), Opcode: test.recv, Side: uverbs.RecvSide}
				if test.imm != 0 {
					want.SetImm(test.imm)
				}
				if r := find(t, wcs, uverbs.RecvSide); r != want {
					t.Errorf("receive completion\n got %+v\nwant %+v", r, want)
				}
			}
			// A write completes when it has left, not when it is there.
			for end := time.Now().Add(patience); !bytes.Equal(p.snapshot(dst, test.n), want); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the data did not arrive")
				}
			}
		})
	}
	// What is refused, before it reaches the device.
	refused := map[string]func(){
		"read":   func() { sq.Read(1, p.mr.Span(0, 8), region.At(0)) },
		"atomic": func() { sq.FetchAdd(1, p.mr.Span(0, 8), region.At(0), 1) },
	}
	if !factsOf(t, p.dev).ucInvalidates {
		refused["invalidate"] = func() { sq.SendInvalidate(1, 5, p.mr.Span(0, 8)) }
	}
	for name, post := range refused {
		post()
		if err := sq.Flush(); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s on UC: %v", name, err)
		}
	}
}

// snapshot copies a piece of memory that the device may be writing to.
func (p *pair) snapshot(off, n int) []byte { return bytes.Clone(p.mem.Bytes()[off : off+n]) }

// What a UC peer cannot take is lost, without a word on either side, and the
// next message arrives.
func TestGuestUCLoss(t *testing.T) {
	p := newOpsPair(t, uverbs.UC)
	sq, region := p.a.SendQueue(), p.peer.Regions[0]
	bad := region
	bad.RKey ^= 0x5500
	sq.Send(1, p.mr.Span(0, 8)) // no receive is there
	p.one(t, p.a, uverbs.WC{ID: 1, Bytes: 8, Opcode: uverbs.OpSend})
	sq.Write(2, bad.At(0), p.mr.Span(0, 8)) // no such key
	p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 8, Opcode: uverbs.OpWrite})
	time.Sleep(50 * time.Millisecond) // both have arrived, and are gone
	p.b.RecvQueue().Recv(3, p.mr.Span(4096, 8))
	if err := p.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	copy(p.mem.Bytes(), "the next")
	sq.Send(4, p.mr.Span(0, 8))
	wcs := p.flush(t, p.a, 2)
	if r, want := find(t, wcs, uverbs.RecvSide), (uverbs.WC{ID: 3, QPN: p.b.QPN(), Bytes: 8, Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}); r != want {
		t.Errorf("receive completion\n got %+v\nwant %+v", r, want)
	}
	if got := p.mem.Bytes()[4096:][:8]; string(got) != "the next" {
		t.Errorf("received %q", got)
	}
	for _, qp := range []*uverbs.QP{p.a, p.b} {
		if s, err := qp.QueryState(); err != nil || s != uverbs.StateRTS {
			t.Errorf("state %v, %v", s, err)
		}
	}
}

// A window can be bound through UC; soft-RoCE cannot invalidate it there.
func TestGuestUCWindow(t *testing.T) {
	p := newOpsPair(t, uverbs.UC)
	mw := newWindow(t, p)
	opened := p.b.SendQueue().BindMW(1, mw, p.mr.Span(4096, 4096), uverbs.RemoteWrite)
	p.one(t, p.b, uverbs.WC{ID: 1, Opcode: uverbs.OpBindMW})
	p.mem.Uint64(0).Store(77)
	p.a.SendQueue().Write(2, opened.At(0), p.mr.Span(0, 8))
	p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 8, Opcode: uverbs.OpWrite})
	for end := time.Now().Add(patience); p.mem.Uint64(4096).Load() != 77; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the write through the window did not arrive")
		}
	}
	p.b.SendQueue().LocalInvalidate(3, mw)
	if factsOf(t, p.dev).ucInvalidates {
		p.one(t, p.b, uverbs.WC{ID: 3, Opcode: uverbs.OpLocalInvalidate})
		// Nobody can use it now, nor hears of it. The peer goes with what it
		// got last.
		again := p.b.SendQueue().BindMW(4, mw, p.mr.Span(8192, 4096), uverbs.RemoteWrite)
		p.one(t, p.b, uverbs.WC{ID: 4, Opcode: uverbs.OpBindMW})
		p.mem.Uint64(0).Store(78)
		p.a.SendQueue().Write(5, opened.At(0), p.mr.Span(0, 8))
		p.one(t, p.a, uverbs.WC{ID: 5, Bytes: 8, Opcode: uverbs.OpWrite})
		p.a.SendQueue().Write(6, again.At(0), p.mr.Span(0, 8))
		p.one(t, p.a, uverbs.WC{ID: 6, Bytes: 8, Opcode: uverbs.OpWrite})
		for end := time.Now().Add(patience); p.mem.Uint64(8192).Load() != 78; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the write through the window that was bound again did not arrive")
			}
		}
		if got := p.mem.Uint64(4096).Load(); got != 77 {
			t.Errorf("%d was written with a key from before", got)
		}
		p.b.RecvQueue().Recv(7, p.mr.Span(16384, 8))
		if err := p.b.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		p.a.SendQueue().SendInvalidate(8, again.RKey, p.mr.Span(0, 8))
		wcs := p.flush(t, p.a, 2)
		want := uverbs.WC{ID: 7, QPN: p.b.QPN(), Bytes: 8, Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}
		want.SetInvalidatedRKey(again.RKey)
		if r := find(t, wcs, uverbs.RecvSide); r != want {
			t.Errorf("receive completion\n got %+v\nwant %+v", r, want)
		}
	} else if err := p.b.SendQueue().Flush(); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("invalidation on UC: %v", err)
	}
	if err := mw.Close(); err != nil {
		t.Error(err)
	}
}

// A message that is too long for the receive it hits: on soft-RoCE no loss but an
// error of the receiver, whose queue pair it ends; on a ConnectX a loss, and the
// receive waits for the next one. The sender does not hear of it.
func TestGuestUCTooLong(t *testing.T) {
	p := newOpsPair(t, uverbs.UC)
	p.b.RecvQueue().Recv(1, p.mr.Span(4096, 8))
	if err := p.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	p.a.SendQueue().Send(2, p.mr.Span(0, 9))
	facts := factsOf(t, p.dev)
	if facts.ucKeepsShort {
		p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 9, Opcode: uverbs.OpSend})
		p.a.SendQueue().Send(3, p.mr.Span(0, 8))
		wcs := p.flush(t, p.a, 2)
		if r, want := find(t, wcs, uverbs.RecvSide), (uverbs.WC{ID: 1, QPN: p.b.QPN(), Bytes: 8, Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}); r != want {
			t.Errorf("receive completion\n got %+v\nwant %+v", r, want)
		}
		if s, err := p.b.QueryState(); err != nil || s != uverbs.StateRTS {
			t.Errorf("the receiver's state %v, %v", s, err)
		}
		return
	}
	wcs := p.flush(t, p.a, 2)
	if s, want := find(t, wcs, uverbs.SendSide), (uverbs.WC{ID: 2, QPN: p.a.QPN(), Bytes: 9, Opcode: uverbs.OpSend}); s != want {
		t.Errorf("send completion\n got %+v\nwant %+v", s, want)
	}
	if r, want := find(t, wcs, uverbs.RecvSide), (uverbs.WC{ID: 1, QPN: p.b.QPN(), Status: facts.shortRecv, Side: uverbs.RecvSide}); r != want {
		t.Errorf("receive completion\n got %+v\nwant %+v", r, want)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s, err := p.b.QueryState()
		if err == nil && s == uverbs.StateErr {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the receiver's state %v, %v", s, err)
		}
	}
	if s, err := p.a.QueryState(); err != nil || s != uverbs.StateRTS {
		t.Errorf("the sender's state %v, %v", s, err)
	}
}
