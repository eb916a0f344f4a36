package selftest

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// patient is how long tests wait for what is to come: it is to be long.
const patient = 60 * time.Second

// The machine of a test may stand still for as long as another end may be silent.
func TestMain(m *testing.M) {
	greetingPatience, linkGrace = 2*patient, 2*patient
	m.Run()
}

// onModel is a run on a device of the model.
func onModel(t testing.TB, f *sim.Fabric) Config {
	t.Helper()
	return Config{Quick: true, Patience: patient, Open: func() (*uverbs.Device, error) { return f.Open("sim0", nil) }}
}

func newFabric(t testing.TB) *sim.Fabric {
	t.Helper()
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Everything passes on the model, but for what a ConnectX does not have, and nothing is
// left behind.
func TestModel(t *testing.T) {
	f := newFabric(t)
	r, err := Run(t.Context(), onModel(t, f))
	if err != nil {
		t.Fatal(err)
	}
	lacks := map[string]bool{"atomic write": true, "remote flush": true}
	for _, row := range r.Rows {
		want := Passed
		if lacks[row.Test] {
			want = Unsupported
		}
		if row.Outcome != want {
			t.Errorf("%s", row.Line())
		}
	}
	if len(r.Rows) != len(tests()) || r.Failed() {
		t.Errorf("%d rows of %d tests, failed: %v", len(r.Rows), len(tests()), r.Failed())
	}
	if broken := f.Model().Violations(); len(broken) > 0 {
		t.Errorf("the model saw rules broken: %s", strings.Join(broken, "; "))
	}
	for _, d := range f.Model().Devices() {
		for what, n := range d.Objects() {
			if n > 0 {
				t.Errorf("%d %v are left on %s", n, what, d.Name())
			}
		}
	}
}

// broken is a device that does something wrong.
type broken struct {
	name string
	// script is what the model does, tamper what is done to what was polled.
	script string
	tamper func() tampering
	// only is the test that is to notice, and says what it says of it.
	only, says string
}

type tampering func(e *end, w []uverbs.WC) []uverbs.WC

// once does something to the n-th completion of a side that an end polls.
func once(name string, side cq.Side, n int, do func(e *end, w []uverbs.WC, i int) []uverbs.WC) func() tampering {
	return func() tampering {
		seen := 0 // by one end
		return func(e *end, w []uverbs.WC) []uverbs.WC {
			if e.name != name {
				return w
			}
			for i := range w {
				if w[i].Side != side {
					continue
				}
				if seen++; seen == n {
					return do(e, append([]uverbs.WC(nil), w...), i)
				}
			}
			return w
		}
	}
}

func doubled(e *end, w []uverbs.WC, i int) []uverbs.WC {
	return append(w[:i+1], w[i:]...)
}

// another is a success of another request behind it.
func another(id uint64) func(e *end, w []uverbs.WC, i int) []uverbs.WC {
	return func(e *end, w []uverbs.WC, i int) []uverbs.WC {
		more := w[i]
		more.ID = id
		return append(w, more)
	}
}

func lost(e *end, w []uverbs.WC, i int) []uverbs.WC { return append(w[:i], w[i+1:]...) }

// wrongByte changes a byte of what a receive has brought, or of all memory.
func wrongByte(e *end, w []uverbs.WC, i int) []uverbs.WC {
	b := e.mem.Bytes()
	for k := range b {
		if b[k] != 0 && k%16 == 13 {
			b[k] ^= 0x10
		}
	}
	return w
}

func wrongStatus(s cq.Status) func(e *end, w []uverbs.WC, i int) []uverbs.WC {
	return func(e *end, w []uverbs.WC, i int) []uverbs.WC {
		w[i].Status = s
		return w
	}
}

var devices = []broken{
	{name: "lost completion of a send", tamper: once("a", cq.SendSide, 30, lost), only: "rings: send queue goes round", says: "is next"},
	{name: "lost completion of a receive", tamper: once("b", cq.RecvSide, 30, lost), only: "rings: receive queue goes round", says: "is next"},
	{name: "last completion lost", tamper: once("a", cq.SendSide, 1, lost), only: "RC: write gathered", says: "of 1 completions 0 came"},
	{name: "completions held for ever", script: "completion 40: hold", only: "rings: completion queue goes round", says: "and then nothing any more"},
	{name: "doubled completion of a send", tamper: once("a", cq.SendSide, 30, doubled), only: "rings: send queue goes round", says: "is next"},
	{name: "doubled completion of a receive", tamper: once("b", cq.RecvSide, 30, doubled), only: "rings: UC goes round", says: "is next"},
	{name: "doubled completion at the end", tamper: once("a", cq.SendSide, 1, doubled), only: "completions: race of arm and event", says: "request 0"},
	{name: "completion that the device does not write", script: "completion 40: lose", only: "rings: UC goes round", says: "is next"},
	{name: "last completion that it does not write", script: "completion 1: lose", only: "RC: read", says: "of 1 completions 0 came"},
	{name: "completion that the device writes twice", script: "completion 1: duplicate", only: "RC: compare and swap", says: "belong to no outstanding request"},
	{name: "completion that it writes twice in a stream", script: "completion 40: duplicate", only: "rings: receive queue goes round", says: "belong to no outstanding request"},
	{name: "wrong byte in a send", tamper: once("b", cq.RecvSide, 1, wrongByte), only: "RC: send gathered and scattered", says: "are wrong, the first at"},
	{name: "wrong byte in a stream", tamper: once("b", cq.RecvSide, 100, wrongByte), only: "rings: requests of all lengths", says: "are wrong, the first at"},
	{name: "wrong byte in a read", tamper: once("a", cq.SendSide, 1, wrongByte), only: "RC: long read", says: "are wrong, the first at"},
	{name: "wrong byte in a datagram", tamper: once("b", cq.RecvSide, 1, wrongByte), only: "UD: full packet", says: "are wrong, the first at"},
	{name: "wrong length", tamper: once("b", cq.RecvSide, 1, func(e *end, w []uverbs.WC, i int) []uverbs.WC { w[i].Bytes--; return w }), only: "RC: send", says: "want 100 bytes"},
	{name: "wrong immediate data", tamper: once("b", cq.RecvSide, 1, func(e *end, w []uverbs.WC, i int) []uverbs.WC { w[i].SetImm(0xad0bad8b); return w }), only: "UC: send with immediate data", says: "immediate data 0xad0bad8b, want 0x8badf00d"},
	{name: "wrong opcode", tamper: once("a", cq.SendSide, 1, func(e *end, w []uverbs.WC, i int) []uverbs.WC { w[i].Opcode = cq.OpSend; return w }), only: "RC: fetch and add", says: "want"},
	{name: "failure in the place of success", script: "request 1: fail syndrome=0x13 vendor=0x88", only: "RC: send inline", says: "remote access error"},
	{name: "success in the place of failure", tamper: once("a", cq.SendSide, 1, wrongStatus(cq.StatusSuccess)), only: "errors: write with a wrong rkey", says: "want remote access error (status 10)"},
	{name: "another failure", tamper: once("a", cq.SendSide, 1, wrongStatus(cq.StatusRetryExceeded)), only: "errors: RNR retries exceeded", says: "want RNR retry exceeded (status 13)"},
	{name: "requests that are not carried out", script: "request times=forever: drop", only: "RC: write with immediate data", says: "transport retry exceeded"},
	{name: "datagrams that do not arrive", script: "request times=forever: drop", only: "UD: send of no bytes", says: "end b: of 1 completions 0 came"},
	{name: "lost event", script: "event 1: lose", only: "completions: solicited events only", says: "no event: it was lost"},
	{name: "lost event of a moderated queue", script: "event 3: lose", only: "completions: moderation", says: "round 2: the queue was armed and empty, a completion came, and in 1m0s no event: it was lost"},
	{name: "lost asynchronous event", script: "async 1: lose", only: "async: SRQ limit", says: "does not come"},
	{name: "overrun out of the blue", script: "completion 50: overrun", only: "completions: resize of a live queue", says: "overrun"},
	{name: "completion from before an overrun", tamper: once("a", cq.SendSide, 32, another(30)), only: overruns, says: "request 30 of 93 came, and the next is one of 32 or later"},
	{name: "completion of nothing after an overrun", tamper: once("a", cq.SendSide, 32, another(93)), only: overruns, says: "request 93 of 93 came, and the next is one of 32 or later"},
	{name: "more completions than the queue holds", tamper: once("a", cq.SendSide, 32, another(32)), only: overruns, says: "33 completions came out of a queue of 31"},
	{name: "kernel without memory", script: "ioctl method=UVERBS_METHOD_CQ_CREATE: refuse ENOMEM", only: "RC: long write", says: "cannot allocate memory"},
	{name: "window that is announced and not there", script: "ioctl method=IB_USER_VERBS_CMD_ALLOC_MW: refuse EOPNOTSUPP", only: "RC: window: bind, write, read", says: "says that it can, and then"},
}

// A device that does something wrong is noticed, by the test that is for it, which says
// what. Time passes in the bubble while nothing happens.
func TestBroken(t *testing.T) {
	for _, d := range devices {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(t)
				c := onModel(t, f)
				c.Only = []string{d.only}
				if d.tamper != nil {
					tamper := d.tamper()
					c.tamper = func(_ string, e *end, w []uverbs.WC) []uverbs.WC { return tamper(e, w) }
				}
				if err := f.Model().Script(d.script); err != nil {
					t.Fatal(err)
				}
				r, err := Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Rows) == 0 || !r.Failed() {
					t.Fatalf("nobody noticed: %+v", r.Rows)
				}
				row := r.Rows[0]
				if row.Outcome != Failed || !strings.Contains(row.Detail, d.says) {
					t.Errorf("%s, want %q", row.Line(), d.says)
				}
				t.Log(row.Detail)
			})
		})
	}
}

const overruns = "completions: overrun is told"

// Polling an overrun queue makes room, and what a device that is still at work does after
// that is there behind the gap: Linux 6.12's soft-RoCE does it now and then.
func TestGapOfOverrun(t *testing.T) {
	c := onModel(t, newFabric(t))
	c.Only = []string{overruns}
	tamper := once("a", cq.SendSide, 32, another(47))()
	c.tamper = func(_ string, e *end, w []uverbs.WC) []uverbs.WC { return tamper(e, w) }
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 1 || r.Failed() || !strings.Contains(r.Rows[0].Detail, "33 completions polled, then the error") {
		t.Errorf("%+v", r.Rows)
	}
}

// A device on which a call never returns costs its own row.
func TestHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		c := onModel(t, f)
		c.Only = []string{"UD: full packet", "UD: multicast"}
		var n atomic.Int32
		stuck := make(chan struct{})
		open := c.Open
		c.Open = func() (*uverbs.Device, error) {
			if n.Add(1) == 1 {
				<-stuck
				return nil, errors.New("too late")
			}
			return open()
		}
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 2 || r.Rows[0].Outcome != Hung || !strings.Contains(r.Rows[0].Detail, "does not come back") || r.Rows[1].Outcome != Passed || !r.Failed() {
			t.Errorf("%+v", r.Rows)
		}
		close(stuck)
		synctest.Wait()
	})
}

// What ran until the end of the context is in the result; the rest is not run.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := onModel(t, newFabric(t))
	c.Only = []string{"RC: send"}
	told := 0
	c.Tell = func(Row) {
		if told++; told == 2 {
			cancel()
		}
	}
	r, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	report := r.Report(Place{})
	if !r.Interrupted || len(r.Rows) < 4 || report.OK || report.Failed != 0 || report.Passed != 2 || report.NotRun != len(r.Rows)-2 {
		t.Errorf("%+v", report)
	}
	if s := report.Summary(); !strings.Contains(s, "2 passed") || !strings.Contains(s, "not run (interrupted)") {
		t.Errorf("summary %q", s)
	}
}

func TestNoSuchTest(t *testing.T) {
	c := onModel(t, newFabric(t))
	c.Only = []string{"nonsense"}
	if r, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("%v, %v", r, err)
	}
}

// Names are each there once.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range Names() {
		if seen[n] {
			t.Errorf("%q twice", n)
		}
		seen[n] = true
	}
}

// Where too little memory may be registered Room says so, and nothing where registering fails for a
// reason of the device's.
func TestRoom(t *testing.T) {
	f := newFabric(t)
	d, err := f.Open("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, test := range []struct {
		script string
		want   error
	}{{"", nil}, {"ioctl method=IB_USER_VERBS_CMD_REG_MR: refuse ENOMEM", syscall.ENOMEM}, {"ioctl method=IB_USER_VERBS_CMD_REG_MR: refuse EIO", nil}} {
		if err := f.Model().Script(test.script); err != nil {
			t.Fatal(err)
		}
		if err := Room(d); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.script, err)
		}
	}
}

// A port of RoCE without an IPv4 address has groups of IPv6.
func TestMulticastWithoutIPv4(t *testing.T) {
	f := newFabric(t)
	if err := f.Model().Devices()[0].SetGID(1, 2, model.GID{}); err != nil {
		t.Fatal(err)
	}
	c := onModel(t, f)
	c.Only = []string{"UD: multicast"}
	r, err := Run(t.Context(), c)
	if err != nil || len(r.Rows) != 1 || r.Rows[0].Outcome != Passed {
		t.Fatalf("%+v, %v", r, err)
	}
	made := func(gid string, roce bool) *Answer {
		return &Answer{Device: &Device{Roce: roce}, Endpoint: &uverbs.Endpoint{GID: uverbs.GIDFromAddr(netip.MustParseAddr(gid))}}
	}
	for _, test := range []struct {
		gid  string
		roce bool
		want string
	}{{"10.0.0.1", true, testGroup}, {"fe80::1", true, testGroupV6}, {"2001:db8::1", true, testGroupV6}, {"fe80::1", false, testGroup}} {
		if got := groupFor(made(test.gid, test.roce)); got != test.want {
			t.Errorf("%s, RoCE %v: %s, want %s", test.gid, test.roce, got, test.want)
		}
	}
}
