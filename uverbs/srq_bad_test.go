package uverbs

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// An SRQ counts once against each CQ that its receives may complete on, from the
// first queue pair to the last completion of the last one.
func TestSRQCredits(t *testing.T) {
	r := newRig(t, false)
	srq, err := r.pd.NewSRQ(&SRQOptions{Depth: 20})
	if err != nil {
		t.Fatal(err)
	}
	q, err := r.dev.NewCQ(31, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SRQ: srq, SendDepth: 2}
	var qps []*QP
	for range 5 { // 20 and 5 times 2
		qp, err := r.pd.NewQP(RC, opts)
		if err != nil {
			t.Fatal(err)
		}
		qps = append(qps, qp)
	}
	_, err = r.pd.NewQP(RC, opts)
	says(t, "one too many", err, ErrCQFull, "send", "asks for 2", "30 of the CQ's 31")
	for _, qp := range qps {
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if q.committed != 0 {
		t.Errorf("%d completions are still claimed", q.committed)
	}
	_, err = r.pd.NewQP(RC, &QPOptions{CQ: q, SRQ: srq, SendDepth: 12})
	says(t, "the SRQ does not fit", err, ErrCQFull, "SRQ depth asks for 20", "12 of the CQ's 31")
	if q.committed != 0 || len(srq.claims) != 0 {
		t.Errorf("%d completions claimed, by %v", q.committed, srq.claims)
	}
	other, err := r.dev.NewCQ(31, nil)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := r.pd.NewQP(RC, &QPOptions{SendCQ: other, RecvCQ: q, SRQ: srq, SendDepth: 31})
	if err != nil {
		t.Fatal(err)
	}
	if q.committed != 20 || other.committed != 31 {
		t.Errorf("claimed %d and %d, want 20 and 31", q.committed, other.committed)
	}
	says(t, "SRQ in use", srq.Close(), ErrInUse, "1 QP")
	if err := qp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srq.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srq.Close(); !isClosed(err) {
		t.Errorf("closed twice: %v", err)
	}
}

func TestSRQBadArguments(t *testing.T) {
	r := newRig(t, false)
	srq, err := r.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SRQ: srq, SendDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	if l := qp.Limits(); l.RecvDepth != 0 || l.RecvSGE != 0 {
		t.Errorf("limits %+v", l)
	}
	makeSRQ := func(o SRQOptions) func() error {
		return func() error { _, err := r.pd.NewSRQ(&o); return err }
	}
	for name, test := range map[string]struct {
		make  func() error
		is    error
		parts []string
	}{
		"depth < 0":          {makeSRQ(SRQOptions{Depth: -1}), ErrInvalid, []string{"Depth -1", "1 to 1048576"}},
		"depth":              {makeSRQ(SRQOptions{Depth: 1<<20 + 1}), ErrInvalid, []string{"Depth 1048577"}},
		"spans":              {makeSRQ(SRQOptions{SGE: 28}), ErrInvalid, []string{"SGE 28", "1 to 27"}},
		"limit":              {makeSRQ(SRQOptions{Limit: 17}), ErrInvalid, []string{"Limit 17", "0 to 16"}},
		"limit < 0":          {makeSRQ(SRQOptions{Depth: 4, Limit: -1}), ErrInvalid, []string{"Limit -1", "0 to 4"}},
		"set limit":          {func() error { return srq.SetLimit(17) }, ErrInvalid, []string{"17", "0 to 16"}},
		"set limit < 0":      {func() error { return srq.SetLimit(-1) }, ErrInvalid, []string{"-1"}},
		"another PD":         {func() error { _, err := pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SRQ: srq}); return err }, ErrInvalid, []string{"another protection domain"}},
		"close, in use":      {srq.Close, ErrInUse, []string{"1 QP"}},
		"receive of the QP":  {func() error { qp.RecvQueue().Recv(1, r.mr.Span(0, 1)); return qp.RecvQueue().Flush() }, ErrInvalid, []string{"SRQ.RecvQueue"}},
		"receives of the QP": {func() error { qp.RecvQueue().RecvV(1, nil); return qp.RecvQueue().Flush() }, ErrInvalid, []string{"SRQ.RecvQueue"}},
		"span":               {func() error { srq.RecvQueue().Recv(1, r.mr.Span(1<<16, 1)); return srq.RecvQueue().Flush() }, ErrBounds, []string{"offset 65536"}},
		"spans of a receive": {func() error { srq.RecvQueue().RecvV(1, make([]Span, 2)); return srq.RecvQueue().Flush() }, ErrInvalid, []string{"2 spans", "takes 1", "SRQOptions.SGE"}},
	} {
		says(t, name, test.make(), test.is, test.parts...)
	}
	if n := srq.RecvQueue().Room(); n != 16 {
		t.Errorf("room %d, want 16", n)
	}
	lacking := newRig(t, false, fakekernel.Device{Lacks: []fakekernel.Method{{Object: abi.UVERBS_OBJECT_SRQ, Method: abi.UVERBS_METHOD_SRQ_CREATE}}})
	_, err = lacking.pd.NewSRQ(nil)
	says(t, "a kernel without", err, ErrNotSupported, "kernel")
}

// Flush may find a queue being closed, and open when it looks why: the kernel has
// refused to destroy it in between.
func TestSRQFlushBesideFailedClose(t *testing.T) {
	r := newRig(t, false)
	srq, err := r.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	rq := srq.RecvQueue()
	rq.Recv(1, r.mr.Span(0, 8))
	says(t, "refused", rq.refuse(rq.table.Staged()), os.ErrClosed, "flush of an SRQ")
	rq.Recv(2, r.mr.Span(0, 8))
	if err := rq.Flush(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
