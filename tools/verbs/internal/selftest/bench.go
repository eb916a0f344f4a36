package selftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// A side carries out orders: an end in this process, or on another machine.
type side interface {
	do(ctx context.Context, o *Order) *Answer
}

// A bench is what a test works with: one end here, and another, here or elsewhere.
type bench struct {
	run      *run
	test     string
	notes    []string
	patience time.Duration
	claims   func(d *Device) bool // that the device says it can do what is tested

	a *end
	b side

	made [2]*Answer // of a and b
	ends []*end     // to close
	link *remote
}

// notef adds to what the row says of the test.
func (t *bench) notef(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// rounds is how often something is to be done, in a whole run and in a quick one.
func (t *bench) rounds(whole, quick int) int {
	switch {
	case t.run.Rounds > 0:
		return min(t.run.Rounds, whole)
	case t.run.Quick:
		return quick
	}
	return whole
}

// order has one of the sides carry out an order.
func (t *bench) order(ctx context.Context, s side, o Order) (*Answer, error) {
	if o.Patience == 0 {
		o.Patience = t.patience.Seconds()
	}
	a := s.do(ctx, &o)
	err := a.err()
	if err == nil {
		err = a.lacking(&o)
	}
	if _, far := s.(*remote); far && err != nil {
		err = fmt.Errorf("the other end: %w", err)
	}
	return a, err
}

// usual is a spec that suits most tests.
func usual(typ uverbs.QPType) Spec {
	s := Spec{Type: typ, SendDepth: 16, RecvDepth: 16, SGE: 4, Inline: 64, Region: uverbs.LocalWrite, Access: uverbs.NoAccess}
	switch typ {
	case uverbs.RC:
		s.Region |= uverbs.RemoteWrite | uverbs.RemoteRead
		s.Access = uverbs.RemoteWrite | uverbs.RemoteRead
	case uverbs.UC:
		s.Region |= uverbs.RemoteWrite
		s.Access = uverbs.RemoteWrite
	}
	return s
}

// meet makes both ends and connects them. A's spec may differ from B's.
func (t *bench) meet(ctx context.Context, a, b Spec, opts *Options) error {
	if err := t.make(ctx, a, b); err != nil {
		return err
	}
	return t.connect(ctx, opts)
}

// make makes both ends.
func (t *bench) make(ctx context.Context, a, b Spec) (err error) {
	if t.b == nil {
		if err := t.begin(ctx); err != nil {
			return err
		}
	}
	if t.made[0], err = t.order(ctx, t.a, Order{Do: doMake, Make: &a}); err != nil {
		return err
	}
	t.made[1], err = t.order(ctx, t.b, Order{Do: doMake, Make: &b})
	return err
}

// errNoPeer: it says nothing of the device.
var errNoPeer = errors.New("there is no other end")

// begin finds the two ends.
func (t *bench) begin(ctx context.Context) (err error) {
	t.a = t.run.end(t.test, "a")
	t.ends = append(t.ends, t.a)
	if t.run.Peer == "" {
		b := t.run.end(t.test, "b")
		t.ends = append(t.ends, b)
		t.b = b
		return nil
	}
	if t.link, err = dial(ctx, t.run.Peer); err != nil {
		return fmt.Errorf("%w: %w", errNoPeer, err)
	}
	t.b = t.link
	return nil
}

// connect connects the ends.
func (t *bench) connect(ctx context.Context, opts *Options) error {
	for i, s := range []side{t.b, t.a} {
		other := t.made[i]
		if _, err := t.order(ctx, s, Order{Do: doConnect, Peer: other.Endpoint, Region: other.Region, Options: opts}); err != nil {
			return err
		}
	}
	return nil
}

// post posts requests at an end.
func (t *bench) post(ctx context.Context, s side, work ...Work) error {
	_, err := t.order(ctx, s, Order{Do: doPost, Work: work})
	return err
}

// expect takes completions of an end, as many as are wanted, and holds them against what they are to be; both
// in any order, by their ids.
func (t *bench) expect(ctx context.Context, s side, want ...Done) error {
	a, err := t.order(ctx, s, Order{Do: doTake, N: len(want)})
	if err != nil {
		return err
	}
	return expect(a.Done, want...)
}

// expect holds completions against what they are to be. Of a failed one, and where
// nothing is said of it, more than the status does not count.
func expect(got []Done, want ...Done) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d completions, want %d%s", len(got), len(want), listed(got))
	}
	left := append([]Done(nil), got...)
	for _, w := range want {
		at := -1
		for i, g := range left {
			if g.ID == w.ID && g.Side == w.Side {
				at = i
				break
			}
		}
		if at < 0 {
			return fmt.Errorf("no completion of %v request %d%s", w.Side, w.ID, listed(got))
		}
		g := left[at]
		left = append(left[:at], left[at+1:]...)
		if err := same(g, w); err != nil {
			return err
		}
	}
	return nil
}

// same says in what a completion is not what it is to be.
func same(g, w Done) error {
	if g.Status != w.Status {
		return fmt.Errorf("%v, want %v (status %d)", g, w.Status, uint32(w.Status))
	}
	if w.Status != cq.StatusSuccess {
		return nil
	}
	number := func(p *uint32) string {
		if p == nil {
			return "none"
		}
		return fmt.Sprintf("%#x", *p)
	}
	switch {
	case g.Op != w.Op:
		return fmt.Errorf("%v, want %v", g, w.Op)
	case g.Bytes != w.Bytes && w.Op != cq.OpBindMW && w.Op != cq.OpLocalInvalidate:
		return fmt.Errorf("%v, want %d bytes", g, w.Bytes)
	case number(g.Imm) != number(w.Imm):
		return fmt.Errorf("%v with the immediate data %s, want %s", g, number(g.Imm), number(w.Imm))
	case number(g.Invalidated) != number(w.Invalidated):
		return fmt.Errorf("%v with the invalidated key %s, want %s", g, number(g.Invalidated), number(w.Invalidated))
	case w.SrcQPN != 0 && (g.SrcQPN != w.SrcQPN || !g.GRH):
		return fmt.Errorf("%v from QP %d (GRH: %v), want QP %d with one", g, g.SrcQPN, g.GRH, w.SrcQPN)
	}
	return nil
}

// fill writes a pattern to an end's memory, check looks for it.
func (t *bench) fill(ctx context.Context, s side, off, n int, seed uint64) error {
	_, err := t.order(ctx, s, Order{Do: doFill, Off: off, Bytes: n, Seed: seed})
	return err
}

func (t *bench) check(ctx context.Context, s side, what string, off, n int, seed uint64) error {
	if _, err := t.order(ctx, s, Order{Do: doCheck, Off: off, Bytes: n, Seed: seed}); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// both has both ends do something at a time.
func (t *bench) both(ctx context.Context, a, b Order) error {
	failed := make(chan error, 1)
	go func() {
		_, err := t.order(ctx, t.b, b)
		failed <- err
	}()
	_, err := t.order(ctx, t.a, a)
	return errors.Join(err, <-failed)
}

// close closes what the test has made. A completion that the library took for nobody's is
// a failure of the test, if nothing else is.
func (t *bench) close(ctx context.Context) (err error) {
	strays := uint64(0)
	for _, e := range t.ends {
		n, cerr := e.close()
		strays += n
		if cerr != nil {
			err = errors.Join(err, fmt.Errorf("close end %s: %w", e.name, cerr))
		}
	}
	if t.link != nil {
		a, cerr := t.order(ctx, t.link, Order{Do: doClose})
		err, strays = errors.Join(err, cerr), strays+a.Strays
		t.link.conn.Close()
	}
	if strays > 0 {
		err = errors.Join(err, fmt.Errorf("the device wrote %d completions that belong to no outstanding request: doubled, or of another", strays))
	}
	return err
}
