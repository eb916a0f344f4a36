package uverbs_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// kernelFacts is what is known to differ between the guest's kernels.
type kernelFacts struct {
	series string
	// staleKey is how a send ends whose local memory is registered no more.
	staleKey cq.Status
	// wrongKey is how a write ends whose rkey is wrong.
	wrongKey cq.Status
	// deaf: a queue pair that has failed by itself does not look at its send
	// queue any more; what is posted then ends with Drain, Shutdown, or when
	// the program takes it to ERR or RESET.
	deaf bool
	// hasty: the responder's RNR timer is not waited for, and the failure that
	// comes of it is faster than a program is.
	hasty bool
}

// factsOf are those of the kernel that this is.
func factsOf(t *testing.T) kernelFacts {
	t.Helper()
	guestDevice(t) // or skip: the host's kernel may be any
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	for _, f := range []kernelFacts{
		{series: "5.10", staleKey: cq.StatusLocalProtection, wrongKey: cq.StatusRetryExceeded, deaf: true, hasty: true},
		{series: "6.1", staleKey: cq.StatusLocalQPOperation, wrongKey: cq.StatusRemoteAccess},
		{series: "6.12", staleKey: cq.StatusFlushed, wrongKey: cq.StatusRemoteAccess},
	} {
		if strings.HasPrefix(release, f.series+".") {
			return f
		}
	}
	t.Skipf("declared skip: Linux %s is not one of the guest's kernels, whose errors are known here", release)
	return kernelFacts{}
}

// Errors reach the program with the request's own id and side.
func TestGuestErrors(t *testing.T) {
	facts := factsOf(t)
	p := newPair(t, false)
	sq := p.a.SendQueue()
	bad := p.peer.Regions[0]
	bad.RKey ^= 0x5500
	sq.Write(11, bad.At(0), p.mr.Span(0, 64))
	sq.Write(12, p.peer.Regions[0].At(0), p.mr.Span(0, 64), uverbs.Unsignaled)
	p.a.RecvQueue().Recv(13, p.mr.Span(0, 64))
	if err := p.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	got := map[uint64]uverbs.WC{}
	for _, w := range p.wait(t, 3) {
		got[w.ID] = w
	}
	want := map[uint64]uverbs.WC{
		11: {ID: 11, QPN: p.a.QPN(), Status: facts.wrongKey},
		12: {ID: 12, QPN: p.a.QPN(), Status: uverbs.StatusFlushed},
		13: {ID: 13, QPN: p.a.QPN(), Status: uverbs.StatusFlushed, Side: uverbs.RecvSide},
	}
	for id, w := range want {
		if got[id] != w {
			t.Errorf("request %d ended as %+v, want %+v", id, got[id], w)
		}
	}
	if s, err := p.a.QueryState(); err != nil || s != uverbs.StateErr {
		t.Errorf("state %v, %v, want ERR", s, err)
	}
	if err := func() error { w := got[11]; return w.Err() }(); !errors.Is(err, facts.wrongKey) {
		t.Errorf("error %v", err)
	}
}
