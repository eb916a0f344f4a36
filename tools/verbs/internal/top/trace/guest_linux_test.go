package trace

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"

	"github.com/goverbs/goverbs/uverbs"
)

// patience is how long a test waits for something that must come, on an
// emulated and busy machine.
const patience = 3 * time.Minute

// A bench is two queue pairs of this process that are connected with each
// other over soft-RoCE. Sends of one complete on a CQ that nobody polls but the
// test.
type bench struct {
	dev    *uverbs.Device
	cq     *uverbs.CQ // of the writer's sends
	id     CQID       // of cq
	writer *uverbs.QP
	from   uverbs.Span
	to     uverbs.Remote
}

// newBench makes a CQ of a depth and a send queue that may be longer.
func newBench(t *testing.T, depth, sends int, opts *uverbs.CQOptions) *bench {
	t.Helper()
	all, err := uverbs.Devices()
	if errors.Is(err, uverbs.ErrNoDevices) {
		t.Skip("declared skip: no RDMA device here; run in the guest: rxevm exec")
	}
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b := new(bench)
	b.dev, err = uverbs.Open(all[0].Name, nil)
	must(err)
	t.Cleanup(func() { b.dev.Close() })
	pd, err := b.dev.NewPD()
	must(err)
	mem, err := uverbs.Alloc(4096, nil)
	must(err)
	t.Cleanup(func() { mem.Close() })
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite)
	must(err)
	before := listed(t)
	b.cq, err = b.dev.NewCQ(depth, opts)
	must(err)
	for _, id := range listed(t) {
		if !slices.Contains(before, id) {
			b.id = id
		}
	}
	other, err := b.dev.NewCQ(16, nil)
	must(err)
	b.writer, err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{SendCQ: b.cq, RecvCQ: other, SendDepth: sends, RecvDepth: 1, AllowOverrun: true})
	must(err)
	peer, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: other, SendDepth: 1, RecvDepth: 1})
	must(err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	slow := &uverbs.ConnectOptions{AckTimeout: 4 * time.Second}
	must(b.writer.Connect(ctx, peer.Endpoint(), slow))
	must(peer.Connect(ctx, b.writer.Endpoint(), slow))
	b.from, b.to = mr.Span(0, 8), mr.Remote()
	return b
}

func listed(t *testing.T) []CQID {
	t.Helper()
	all, err := listCQs()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// write posts writes; each completes on b.cq.
func (b *bench) write(t *testing.T, n int) {
	t.Helper()
	q := b.writer.SendQueue()
	for i := range n {
		q.Write(uint64(i), b.to.At(8), b.from)
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
}

// types is the kernel's type information, which takes longer to parse than all
// else that Open does.
var types = btf.NewCache()

func open(t *testing.T, o Options) *Tracer {
	t.Helper()
	p, err := readPrivileges(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	return openAs(t, o, p)
}

// openAs opens with no more than some privileges.
func openAs(t *testing.T, o Options, p privileges) *Tracer {
	t.Helper()
	start := time.Now()
	tr, err := openWith(o, p, types)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("opened in %.1f s: %v", time.Since(start).Seconds(), tr.Levels())
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func snapshotOf(t *testing.T, tr *Tracer) map[CQID]CQ {
	t.Helper()
	all, err := tr.Snapshot(func() error { _, err := listCQs(); return err })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// until takes snapshots until the CQ is as it should be.
func until(t *testing.T, tr *Tracer, id CQID, what string, ok func(CQ) bool) CQ {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		q, there := snapshotOf(t, tr)[id]
		if there && ok(q) {
			return q
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %+v (there: %v, ring %+v, user %+v)", what, q, there, q.Ring, q.User)
		}
	}
}

// A CQ that nobody polls fills up to the completion.
func TestGuestTraceOccupancy(t *testing.T) {
	b := newBench(t, 100, 100, &uverbs.CQOptions{Events: true})
	tr := open(t, Options{})
	all := snapshotOf(t, tr)
	kernels := 0
	for _, q := range all {
		if q.User == nil {
			kernels++
		}
	}
	if kernels == 0 {
		t.Errorf("no CQ of the kernel's own in %v", all)
	}
	q := until(t, tr, b.id, "a new CQ", func(q CQ) bool { return q.Ring != nil })
	if r := *q.Ring; r.Occupied != 0 || r.Usable < uint32(b.cq.Depth()) || r.Armed != NotArmed {
		t.Errorf("a new CQ of %d: %+v", b.cq.Depth(), r)
	}
	if q.User == nil || q.User.Pending || q.User.EventsRead != 0 || q.Entries != uint32(b.cq.Depth()) || q.Driver != driverRXE {
		t.Errorf("a new CQ: %+v, %+v", q, q.User)
	}
	if err := b.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	until(t, tr, b.id, "armed", func(q CQ) bool { return q.Ring != nil && q.Ring.Armed == ArmedNext && !q.User.Pending })
	const n = 73
	b.write(t, n)
	until(t, tr, b.id, "73 completions and an event", func(q CQ) bool {
		return q.Ring != nil && q.Ring.Occupied == n && q.Ring.Armed == NotArmed && q.User.Pending
	})
	var wcs [n]uverbs.WC
	for got := 0; got < n; {
		k, err := b.cq.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		got += k
	}
	until(t, tr, b.id, "polled", func(q CQ) bool { return q.Ring != nil && q.Ring.Occupied == 0 })
}

// Completions that find the ring full are CQ errors, one each, and are counted
// as dropped.
func TestGuestTraceOverrun(t *testing.T) {
	b := newBench(t, 8, 128, nil)
	tr := open(t, Options{EveryCQE: true})
	q := until(t, tr, b.id, "a new CQ", func(q CQ) bool { return q.Ring != nil })
	usable := q.Ring.Usable
	if usable > 100 {
		t.Fatalf("a CQ of 8 has room for %d", usable)
	}
	if *q.Errors != 0 || q.Posts == nil || q.Posts.CQEs != 0 {
		t.Errorf("before the first completion: %d errors, %+v", *q.Errors, q.Posts)
	}
	const over = 20
	b.write(t, int(usable)+over)
	// A completion is counted before it is an error.
	q = until(t, tr, b.id, "an overrun", func(q CQ) bool { return q.Posts.CQEs >= uint64(usable)+over && *q.Errors >= over })
	if q.Ring.Occupied != usable || *q.Errors != over {
		t.Errorf("%d of %d occupied, %d CQ errors of %d", q.Ring.Occupied, usable, *q.Errors, over)
	}
	if p := q.Posts; p.CQEs != uint64(usable)+over || p.Dropped != over || p.HighWater != usable || p.ByStatus[0] != p.CQEs {
		t.Errorf("%d posts to %d places: %+v", usable+over, usable, p)
	}
}

// A failed completion is counted by its status.
func TestGuestTraceFailedCompletion(t *testing.T) {
	b := newBench(t, 8, 8, nil)
	tr := open(t, Options{EveryCQE: true})
	b.to.RKey ^= 0x100
	b.write(t, 1)
	q := until(t, tr, b.id, "a failed completion", func(q CQ) bool { return q.Posts.CQEs == 1 })
	if got := q.Posts.ByStatus[uverbs.StatusRemoteAccess]; got != 1 || q.Posts.ByStatus[0] != 0 {
		t.Errorf("%+v", q.Posts)
	}
}
