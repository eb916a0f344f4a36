package uverbs

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestQuery(t *testing.T) {
	r := newRig(t, false)
	i, err := r.a.Query()
	if err != nil {
		t.Fatal(err)
	}
	if i.State != StateRTS || i.PathMTU != 1024 || i.DestQPN != r.b.QPN() || i.DestGID != r.b.Source().GID || i.Port != 1 ||
		i.SourceIndex != r.a.Source().Index || i.ReadDepth != 16 || i.PeerReadDepth != 16 || i.Retries != 6 || i.RNRRetries != 6 ||
		i.AckTimeout != defaultAckTimeout || i.MinRNRTimer != defaultMinRNRTimer || i.Access != RemoteWrite|RemoteRead || i.HopLimit != 64 {
		t.Errorf("%+v", i)
	}
	if i.Limits.SendDepth < 16 || i.Limits.SendSGE < 4 || i.Limits.Inline < 64 {
		t.Errorf("limits %+v", i.Limits)
	}
	fresh, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 2, RecvDepth: 2, Tag: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if i, err := fresh.Query(); err != nil || i.State != StateInit || i.AckTimeout != AckTimeoutForever {
		t.Errorf("in INIT: %+v, %v", i, err)
	}
	if r.sendQ.QP(fresh.QPN()) != fresh || fresh.Tag() != "mine" {
		t.Error("the queue pair is not found by its number")
	}
	if r.recvQ.QP(fresh.QPN()) != nil {
		t.Error("a queue on which it does not complete finds it")
	}
	if r.sendQ.QP(r.a.QPN()) != r.a || r.recvQ.QP(r.a.QPN()) != r.a || r.sendQ.QP(1<<23) != nil {
		t.Error("look-up by number")
	}
	fresh.Close()
	if r.sendQ.QP(fresh.QPN()) != nil {
		t.Error("a closed queue pair is found")
	}
	_, err = fresh.Query()
	says(t, "query after Close", err, os.ErrClosed)
}

func TestReadCounters(t *testing.T) {
	sys := fstest.MapFS{
		"c/sent_pkts": {Data: []byte("12\n")}, "c/rcvd_pkts": {Data: []byte("18446744073709551615")},
		"c/lifespan": {Data: []byte("12")}, "c/odd": {Data: []byte("N/A\n")}, "c/negative": {Data: []byte("-1")}, "c/empty": {},
	}
	m, err := readCounters(sys, "c")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]uint64{"sent_pkts": 12, "rcvd_pkts": 1<<64 - 1}, m); d != "" {
		t.Error(d)
	}
	if m, err := readCounters(sys, "none"); err != nil || len(m) != 0 {
		t.Errorf("no folder: %v, %v", m, err)
	}
	r := newRig(t, false)
	if _, err := r.dev.Counters(7); err == nil {
		t.Error("port 7 has counters")
	}
	if _, err := r.dev.Counters(1); err != nil {
		t.Error(err)
	}
}
