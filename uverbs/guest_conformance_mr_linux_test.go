package uverbs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// Rights for the peer to write that the program itself does not have are refused, as
// all combinations, and other rights are not.
func TestGuestConformanceMR_BadFlags(t *testing.T) {
	p := newPair(t, false)
	for _, access := range []uverbs.Access{uverbs.RemoteWrite, uverbs.RemoteAtomic, uverbs.RemoteWrite | uverbs.RemoteAtomic, uverbs.RemoteWrite | uverbs.RemoteRead, uverbs.RemoteAtomic | uverbs.MWBind} {
		if mr, err := p.pd.Register(p.mem.Bytes(), access); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%v: %v, %v", access, mr, err)
		}
		mr, err := p.pd.Register(p.mem.Bytes(), access|uverbs.LocalWrite)
		if err != nil || mr.Access() != access|uverbs.LocalWrite {
			t.Errorf("%v: %v, %v", access|uverbs.LocalWrite, mr, err)
			continue
		}
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, access := range []uverbs.Access{0, uverbs.RemoteRead} {
		mr, err := p.pd.Register(p.mem.Bytes(), access)
		if err != nil {
			t.Errorf("%v: %v", access, err)
		} else if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
}

// remake takes both queue pairs out of ERR and connects them again.
func (p *pair) remake(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ignore := func(uverbs.WC) {}
	if err := errors.Join(p.a.Drain(ctx, ignore), p.b.Drain(ctx, ignore), p.a.Restart(), p.b.Restart()); err != nil {
		t.Fatal(err)
	}
	p.connect(t)
}

// Messages arrive in a region as long as it is of the queue pair's protection domain:
// moved to another it takes none and both sides fail, and moved back it takes them again.
func TestGuestConformanceMR_ReregisterPD(t *testing.T) {
	p := newPair(t, false)
	mr := p.otherMR(t, p.pd)
	const at = 64 << 10 // of mr in the memory
	send := func(text string) (sent, received uverbs.WC) {
		t.Helper()
		copy(p.mem.Bytes(), text)
		p.b.RecvQueue().Recv(2, mr.Span(0, 64))
		if err := p.b.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		p.a.SendQueue().Send(1, p.mr.Span(0, len(text)))
		wcs := p.flush(t, p.a, 2)
		return find(t, wcs, uverbs.SendSide), find(t, wcs, uverbs.RecvSide)
	}
	arrives := func(text string) {
		t.Helper()
		sent, received := send(text)
		if want := (uverbs.WC{ID: 1, QPN: p.a.QPN(), Bytes: uint32(len(text)), Opcode: uverbs.OpSend}); sent != want {
			t.Errorf("sent %+v, want %+v", sent, want)
		}
		if want := (uverbs.WC{ID: 2, QPN: p.b.QPN(), Bytes: uint32(len(text)), Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}); received != want {
			t.Errorf("received %+v, want %+v", received, want)
		}
		if got := string(p.mem.Bytes()[at:][:len(text)]); got != text {
			t.Errorf("%q arrived, want %q", got, text)
		}
	}
	arrives("at home")
	other, err := p.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	p.reregister(t, mr, uverbs.ChangePD(other))
	sent, received := send("in vain")
	wantSent := uverbs.WC{ID: 1, QPN: p.a.QPN(), Status: cq.StatusRemoteOperation}
	wantReceived := uverbs.WC{ID: 2, QPN: p.b.QPN(), Status: cq.StatusLocalQPOperation, Side: uverbs.RecvSide}
	if facts := factsOf(t, p.dev); facts == &connectX {
		wantSent = facts.wc(wantSent)
		wantReceived.Status, wantReceived.VendorErr = cq.StatusLocalProtection, 0x32 // of another domain, where a receive writes
	}
	if sent != wantSent {
		t.Errorf("sent %+v, want %+v", sent, wantSent)
	}
	if received != wantReceived {
		t.Errorf("received %+v, want %+v", received, wantReceived)
	}
	if got := string(p.mem.Bytes()[at:][:7]); got != "at home" {
		t.Errorf("%q is in the region", got)
	}
	p.remake(t)
	if err := mr.Reregister(uverbs.ChangePD(p.pd)); err != nil {
		t.Fatal(err)
	}
	arrives("home again")
	// A protection domain goes after what was moved to it.
	if err := mr.Reregister(uverbs.ChangePD(other)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mr.Close(), other.Close()); err != nil {
		t.Error(err)
	}
}

// A window lets the peer write until it is taken away: by a request of its owner, by a
// message of the peer, by its end. After that the peer's write fails and does nothing.
func TestGuestConformanceMR_WindowEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *pair, mw *uverbs.MW, opened uverbs.Remote){
		"invalidated by its owner": func(t *testing.T, p *pair, mw *uverbs.MW, _ uverbs.Remote) {
			p.b.SendQueue().LocalInvalidate(7, mw)
			p.one(t, p.b, uverbs.WC{ID: 7, Opcode: uverbs.OpLocalInvalidate})
		},
		"invalidated by the peer": func(t *testing.T, p *pair, _ *uverbs.MW, opened uverbs.Remote) {
			p.b.RecvQueue().Recv(8, p.mr.Span(16384, 64))
			if err := p.b.RecvQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			p.a.SendQueue().SendInvalidate(9, opened.RKey, p.mr.Span(0, 8))
			want := uverbs.WC{ID: 8, QPN: p.b.QPN(), Bytes: 8, Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}
			want.SetInvalidatedRKey(opened.RKey)
			if w := find(t, p.flush(t, p.a, 2), uverbs.RecvSide); w != want {
				t.Errorf("received %+v, want %+v", w, want)
			}
		},
		"closed": func(t *testing.T, _ *pair, mw *uverbs.MW, _ uverbs.Remote) {
			if err := mw.Close(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOpsPair(t, uverbs.RC)
			mw := newWindow(t, p)
			const at = 512 << 10
			opened := p.b.SendQueue().BindMW(1, mw, p.mr.Span(at, 4096), uverbs.RemoteWrite)
			p.one(t, p.b, uverbs.WC{ID: 1, Opcode: uverbs.OpBindMW})
			copy(p.mem.Bytes(), "permitted")
			for range 10 {
				clear(p.mem.Bytes()[at:][:16])
				p.a.SendQueue().Write(2, opened.At(0), p.mr.Span(0, 9))
				p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 9, Opcode: uverbs.OpWrite})
				if got := string(p.mem.Bytes()[at:][:9]); got != "permitted" {
					t.Fatalf("%q was written", got)
				}
			}
			end(t, p, mw, opened)
			copy(p.mem.Bytes(), "forbidden")
			p.a.SendQueue().Write(3, opened.At(0), p.mr.Span(0, 9))
			p.one(t, p.a, uverbs.WC{ID: 3, Status: uverbs.StatusRemoteAccess})
			if got := string(p.mem.Bytes()[at:][:9]); got != "permitted" {
				t.Errorf("%q was written without the right", got)
			}
		})
	}
}

// relaxed is a region of the pair's memory for which order is relaxed.
func (p *pair) relaxed(t *testing.T) *uverbs.MR {
	t.Helper()
	mr, err := p.pd.Register(p.mem.Bytes(), uverbs.LocalWrite|uverbs.RelaxedOrdering)
	if err != nil {
		t.Fatal(err)
	}
	return mr
}

// Messages arrive whole, and before their completions, in memory with relaxed order.
func TestGuestConformanceRelaxedOrdering_RC(t *testing.T) {
	p := newPair(t, false)
	sides := rcSides(t, p, p.relaxed(t), spinner)
	for round := range 40 {
		ping(t, p, sides[round%2], sides[1-round%2], round)
	}
}

// Datagrams do as well.
func TestGuestConformanceRelaxedOrdering_UD(t *testing.T) {
	m := newMesh(t)
	sides := udSides(t, m, m.relaxed(t), spinner)
	for round := range 40 {
		ping(t, m.pair, sides[round%2], sides[1-round%2], round)
	}
}
