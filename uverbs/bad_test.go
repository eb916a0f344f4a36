package uverbs

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// says fails the test unless err is what, and its text has all the parts.
func says(t *testing.T, name string, err, what error, parts ...string) {
	t.Helper()
	if !errors.Is(err, what) {
		t.Errorf("%s: %v, want %v", name, err, what)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %q does not say %q", name, err, p)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	three := on(fakekernel.New(fakekernel.Device{}, fakekernel.Device{NoPermission: true}, fakekernel.Device{NoNode: true}, fakekernel.Device{Name: "weird0", Driver: 99}))
	_, err := three.open("rxe7", nil)
	says(t, "unknown name", err, ErrUnknownDevice, `"rxe7"`, "rxe0", "rxe1", "rxe2", "weird0")
	_, err = three.open("rxe1", nil)
	says(t, "no permission", err, os.ErrPermission, "/dev/infiniband/uverbs1", "mode")
	_, err = three.open("rxe2", nil)
	says(t, "no device file", err, os.ErrNotExist, "container")
	_, err = on(fakekernel.New()).open("rxe0", nil)
	says(t, "no devices", err, ErrNoDevices)
	_, err = three.openAddr(netip.MustParseAddr("192.0.2.1"), nil)
	says(t, "unknown address", err, ErrUnknownDevice, "192.0.2.1", "10.0.0.1 on rxe0")
	d, err := three.openAddr(netip.MustParseAddr("10.0.0.1"), nil)
	if err != nil || d.Name() != "rxe0" {
		t.Fatalf("open by address: %v", err)
	}
	d.Close()

	// A driver without a provider opens, answers, and says what is missing.
	weird, err := three.open("weird0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer weird.Close()
	if _, err := weird.GIDTable(); err != nil {
		t.Errorf("GID table of an unknown driver: %v", err)
	}
	_, err = weird.NewCQ(16, nil)
	says(t, "no provider", err, ErrNotSupported, "driver", "99", "rxe")
}

func TestConnectSaysWhatIsWrongWithThePath(t *testing.T) {
	r := newRig(t, false)
	for errno, want := range map[syscall.Errno]string{syscall.EINVAL: "both have to be IPv4", syscall.EHOSTUNREACH: "nobody at fe80::1 was found"} {
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 1, RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		r.k.Fail(func(c fakekernel.Call) error {
			if c.Command == abi.IB_USER_VERBS_CMD_MODIFY_QP {
				return errno
			}
			return nil
		})
		peer := r.b.Endpoint()
		peer.GID = GIDFromAddr(netip.MustParseAddr("fe80::1"))
		says(t, "Connect", qp.Connect(t.Context(), peer, nil), errno, want, qp.Source().GID.String())
		r.k.Fail(nil)
		if err := qp.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadArguments(t *testing.T) {
	r := newRig(t, false)
	q := r.sendQ
	for name, test := range map[string]struct {
		make  func() error
		is    error
		parts []string
	}{
		"CQ depth 0":        {func() error { _, err := r.dev.NewCQ(0, nil); return err }, ErrInvalid, []string{"depth 0", "1 to 32767"}},
		"CQ depth negative": {func() error { _, err := r.dev.NewCQ(-5, nil); return err }, ErrInvalid, []string{"depth -5", "1 to 32767"}},
		"CQ depth too big":  {func() error { _, err := r.dev.NewCQ(32768, nil); return err }, ErrInvalid, []string{"depth 32768", "1 to 32767"}},
		"CQ vector":         {func() error { _, err := r.dev.NewCQ(8, &CQOptions{Vector: 2}); return err }, ErrInvalid, []string{"vector 2", "has 2"}},
		"CQ vector < 0":     {func() error { _, err := r.dev.NewCQ(8, &CQOptions{Vector: -1}); return err }, ErrInvalid, []string{"vector -1"}},
		"QP without CQ":     {func() error { _, err := r.pd.NewQP(RC, nil); return err }, ErrInvalid, []string{"QPOptions.CQ"}},
		"QP type":           {func() error { _, err := r.pd.NewQP(9, &QPOptions{CQ: q}); return err }, ErrNotSupported, []string{"QPType(9)"}},
		"QP send depth":     {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: -1}); return err }, ErrInvalid, []string{"SendDepth -1", "allows 1 to"}},
		"QP receive depth":  {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, RecvDepth: 1 << 30}); return err }, ErrInvalid, []string{"RecvDepth 1073741824"}},
		"QP spans":          {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendSGE: 33}); return err }, ErrInvalid, []string{"SendSGE 33", "1 to 32"}},
		"QP inline":         {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, Inline: -1}); return err }, ErrInvalid, []string{"Inline -1"}},
		"QP inline too big": {func() error {
			_, err := r.pd.NewQP(RC, &QPOptions{CQ: q, Inline: 5000, SendDepth: 1, RecvDepth: 1})
			return err
		}, syscall.EINVAL, []string{"5000 inline"}},
		"QP access": {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, PeerAccess: LocalWrite}); return err }, ErrInvalid, []string{"LocalWrite", "RemoteWrite"}},
		"QP source": {func() error {
			_, err := r.pd.NewQP(RC, &QPOptions{CQ: q, Source: FromAddr(netip.MustParseAddr("192.0.2.9"))})
			return err
		}, ErrInvalid, []string{"192.0.2.9", "10.0.0.1"}},
		"QP GID index":               {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, Source: FromGID(1, 77)}); return err }, ErrInvalid, []string{"index 77 of port 1"}},
		"QP port":                    {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, Source: FromPort(9)}); return err }, ErrInvalid, []string{"port 9"}},
		"CQ too small":               {func() error { _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 60, RecvDepth: 60}); return err }, ErrCQFull, []string{"asks for 120", "32 of", "AllowOverrun"}},
		"memory size 0":              {func() error { _, err := allocOn(r.k, 0, nil); return err }, ErrInvalid, []string{"0 bytes"}},
		"memory size < 0":            {func() error { _, err := allocOn(r.k, -1, nil); return err }, ErrInvalid, []string{"-1 bytes"}},
		"empty region":               {func() error { _, err := r.pd.Register(nil, LocalWrite); return err }, ErrInvalid, []string{"0 bytes"}},
		"unknown access":             {func() error { _, err := r.pd.Register(r.mem.Bytes(), 1<<15); return err }, ErrInvalid, []string{"0x8000"}},
		"remote write without local": {func() error { _, err := r.pd.Register(r.mem.Bytes(), RemoteWrite); return err }, ErrInvalid, []string{"LocalWrite"}},
		"MTU":                        {func() error { return r.a.Modify(StateRTR, AttrPathMTU(1000)) }, ErrInvalid, []string{"1000", "4096"}},
		"state":                      {func() error { return r.a.Modify(StateInit) }, syscall.EINVAL, []string{"from RTS to INIT", "RESET"}},
		"PSN":                        {func() error { return r.a.SetPSN(1 << 24) }, ErrInvalid, []string{"0x1000000"}},
		"arm without events":         {func() error { return q.Arm(false) }, ErrNoEvents, []string{"CQOptions.Events"}},
		"wait without events":        {func() error { _, _, err := q.Attach(func() {}); return err }, ErrNoEvents, []string{"CQOptions.Events"}},
		"take without events":        {func() error { _, err := q.TakeEvent(); return err }, ErrNoEvents, []string{"CQOptions.Events"}},
		"close PD":                   {r.pd.Close, ErrInUse, []string{"2 QPs", "close those first"}},
		"close CQ":                   {q.Close, ErrInUse, []string{"2 QPs"}},
		"close memory":               {r.mem.Close, ErrInUse, []string{"1 MR"}},
	} {
		err := test.make()
		says(t, name, err, test.is, test.parts...)
	}
}

func TestMemlock(t *testing.T) {
	r := newRig(t, false)
	r.k.SetMemlock(1<<20, false)
	big, err := allocOn(r.k, 2<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	_, err = r.pd.Register(big.Bytes(), LocalWrite)
	says(t, "over the limit", err, syscall.ENOMEM, "2097152 bytes", "RLIMIT_MEMLOCK is 1048576", "CAP_IPC_LOCK")
	r.k.SetMemlock(1<<20, true)
	mr, err := r.pd.Register(big.Bytes(), LocalWrite)
	if err != nil {
		t.Fatalf("with CAP_IPC_LOCK: %v", err)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}

// Posting what cannot be done makes Flush fail with the reason, and nothing of
// that Flush reaches the device.
func TestBadPosts(t *testing.T) {
	r := newRig(t, false)
	sq, rq := r.a.SendQueue(), r.a.RecvQueue()
	region := r.peer.Regions[0]
	readOnly, err := r.pd.Register(r.mem.Bytes(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	for name, test := range map[string]struct {
		post  func()
		flush func() error
		is    error
		parts []string
	}{
		"span past the end":   {func() { sq.Send(1, r.mr.Span(65000, 1000)) }, sq.Flush, ErrBounds, []string{"1000 bytes at offset 65000", "65536"}},
		"span before":         {func() { sq.Send(1, r.mr.Span(-1, 10)) }, sq.Flush, ErrBounds, []string{"offset -1"}},
		"negative span":       {func() { sq.Send(1, r.mr.Span(10, -1)) }, sq.Flush, ErrBounds, []string{"-1 bytes"}},
		"zero span value":     {func() { sq.Send(1, Span{}) }, sq.Flush, ErrBounds, []string{"without a memory region"}},
		"remote past the end": {func() { sq.Write(1, region.At(65530), r.mr.Span(0, 7)) }, sq.Flush, ErrBounds, []string{"7 bytes at offset 65530", "65536"}},
		"remote far away":     {func() { sq.Read(1, r.mr.Span(0, 7), region.At(^uint64(0))) }, sq.Flush, ErrBounds, []string{"peer's region"}},
		"too many spans":      {func() { sq.SendV(1, make([]Span, 5)) }, sq.Flush, ErrInvalid, []string{"5 spans", "takes 4", "SendSGE"}},
		"too much inline":     {func() { sq.SendInline(1, make([]byte, 65)) }, sq.Flush, ErrInvalid, []string{"65 bytes inline", "takes 64", "Inline"}},
		"unknown flag":        {func() { sq.Send(1, r.mr.Span(0, 1), 0x80) }, sq.Flush, ErrInvalid, []string{"flags 0x80"}},
		"inline as flag":      {func() { sq.Send(1, r.mr.Span(0, 1), 8) }, sq.Flush, ErrInvalid, []string{"flags 0x8"}},
		"receive, bad span":   {func() { rq.Recv(1, r.mr.Span(0, 1<<20)) }, rq.Flush, ErrBounds, []string{"1048576 bytes at offset 0"}},
		"receive, read-only":  {func() { rq.Recv(1, readOnly.Span(0, 10)) }, rq.Flush, ErrInvalid, []string{"LocalWrite"}},
		"receive, spans":      {func() { rq.RecvV(1, make([]Span, 9)) }, rq.Flush, ErrInvalid, []string{"9 spans", "takes 4"}},
		"queue full": {func() {
			for range 17 {
				sq.Send(1, r.mr.Span(0, 1))
			}
		}, sq.Flush, ErrQueueFull, []string{"16 requests", "SendDepth"}},
		"receive queue full": {func() {
			for range 17 {
				rq.Recv(1, r.mr.Span(0, 1))
			}
		}, rq.Flush, ErrQueueFull, []string{"16 receives", "RecvDepth"}},
	} {
		// The good ones beside the bad one do not reach the device either.
		sq.Write(7, region.At(0), r.mr.Span(0, 8))
		rq.Recv(8, r.mr.Span(0, 8))
		test.post()
		says(t, name, test.flush(), test.is, test.parts...)
		sq.fail(errors.New("taken back"))
		sq.Flush()
		rq.fail(errors.New("taken back"))
		rq.Flush()
		if sq.Room() != 16 || rq.Room() != 16 {
			t.Fatalf("%s: room for %d sends and %d receives, want 16", name, sq.Room(), rq.Room())
		}
	}
	// After all that the queues work, and only what was flushed ends.
	sq.Write(9, region.At(0), r.mr.Span(4096, 8))
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, r.sendQ, 1)[0]; w.ID != 9 || w.Status != StatusSuccess {
		t.Errorf("completion %+v", w)
	}
	copy(r.mem.Bytes()[4096:], "to wake!")
	rq.Recv(10, r.mr.Span(8192, 8))
	if err := rq.Flush(); err != nil {
		t.Fatal(err)
	}
	r.b.SendQueue().Send(11, r.mr.Span(4096, 8), Unsignaled)
	if err := r.b.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, r.recvQ, 1)[0]; w.ID != 10 || w.Status != StatusSuccess {
		t.Errorf("completion %+v", w)
	}
	if got := string(r.mem.Bytes()[8192:8200]); got != "to wake!" {
		t.Errorf("the message went elsewhere: %q", got)
	}
	var wcs [4]WC
	for _, q := range []*CQ{r.sendQ, r.recvQ} {
		if n, _ := q.Poll(wcs[:]); n != 0 {
			t.Errorf("and another completion: %+v", wcs[0])
		}
	}
	if err := sq.Flush(); err != nil {
		t.Errorf("flush of nothing: %v", err)
	}
}

func TestPostInTheWrongState(t *testing.T) {
	r := newRig(t, false)
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 4, RecvDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	qp.SendQueue().Send(1, r.mr.Span(0, 1))
	says(t, "send in INIT", qp.SendQueue().Flush(), ErrState, "INIT", "RTS")
	qp.RecvQueue().Recv(1, r.mr.Span(0, 1))
	if err := qp.RecvQueue().Flush(); err != nil {
		t.Errorf("receive in INIT: %v", err)
	}
	if err := qp.Modify(StateErr); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, r.sendQ, 1)[0]; w.Status != StatusFlushed || w.Side != RecvSide {
		t.Errorf("completion %+v", w)
	}
	qp.RecvQueue().Recv(2, r.mr.Span(0, 1))
	says(t, "receive in ERR", qp.RecvQueue().Flush(), ErrState, "ERR")
	if err := qp.Modify(StateReset); err != nil {
		t.Fatal(err)
	}
	qp.RecvQueue().Recv(3, r.mr.Span(0, 1))
	says(t, "receive in RESET", qp.RecvQueue().Flush(), ErrState, "RESET")
}

// The kernel may know better than we do that a queue pair cannot send. The
// requests are taken back and can be posted again.
func TestDoorbellRefused(t *testing.T) {
	r := newRig(t, false)
	if err := r.a.Modify(StateReset); err != nil {
		t.Fatal(err)
	}
	r.a.state.Store(uint32(StateRTS)) // as if another process had reset it
	r.a.SendQueue().Send(1, r.mr.Span(0, 1))
	says(t, "doorbell", r.a.SendQueue().Flush(), syscall.EINVAL)
	if n := r.a.SendQueue().Room(); n != 16 {
		t.Errorf("room %d, want 16", n)
	}
}

// A doorbell that fails when the device may have seen the requests: Flush is nil
// and the requests end through Poll.
func TestDoorbellLost(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EIO} {
		r := newRig(t, false)
		r.k.Fail(func(c fakekernel.Call) error {
			if c.Op == fakekernel.Write || c.Op == fakekernel.Ioctl && (c.Command == abi.IB_USER_VERBS_CMD_POST_SEND || errno == syscall.EIO && c.Command == abi.IB_USER_VERBS_CMD_MODIFY_QP) {
				return errno
			}
			return nil
		})
		sq := r.a.SendQueue()
		sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8), Unsignaled)
		sq.Write(2, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		if err := sq.Flush(); err != nil {
			t.Fatalf("%v: %v", errno, err)
		}
		ends := map[uint64]int{}
		for _, w := range wait(t, r.sendQ, 2) {
			if w.Status != StatusFlushed || w.Side != SendSide {
				t.Errorf("%v: completion %+v", errno, w)
			}
			ends[w.ID]++
		}
		if ends[1] != 1 || ends[2] != 1 {
			t.Errorf("%v: ends %v", errno, ends)
		}
		if sq.Room() != 16 {
			t.Errorf("%v: room %d", errno, sq.Room())
		}
		r.k.Fail(nil)
	}
}

func TestUseAfterClose(t *testing.T) {
	r := newRig(t, true)
	sq, rq := r.a.SendQueue(), r.a.RecvQueue()
	sq.Send(1, r.mr.Span(0, 1))
	rq.Recv(1, r.mr.Span(0, 1))
	for _, c := range []interface{ Close() error }{r.a, r.b, r.sendQ, r.recvQ, r.mr, r.pd, r.mem} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("second Close of %T: %v", c, err)
		}
	}
	var wcs [1]WC
	for name, err := range map[string]error{
		"flush of sends":    sq.Flush(),
		"flush of receives": rq.Flush(),
		"modify":            r.a.Modify(StateErr),
		"poll":              func() error { _, err := r.sendQ.Poll(wcs[:]); return err }(),
		"arm":               r.sendQ.Arm(false),
		"take event":        func() error { _, err := r.sendQ.TakeEvent(); return err }(),
		"attach":            func() error { _, _, err := r.sendQ.Attach(func() {}); return err }(),
		"query state":       func() error { _, err := r.a.QueryState(); return err }(),
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if b := r.mem.Bytes(); b != nil {
		t.Error("Bytes of closed memory")
	}
	if err := r.dev.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := r.dev.NewPD()
	says(t, "PD on a closed device", err, os.ErrClosed)
	_, err = r.dev.NewCQ(4, nil)
	says(t, "CQ on a closed device", err, os.ErrClosed)
	_, err = r.dev.GIDTable()
	says(t, "GID table of a closed device", err, os.ErrClosed)
}

// Credits come back when a queue pair is closed, at once if nothing of it is in
// the ring, else when the poller has passed it.
func TestCredits(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(31, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SendDepth: 16, RecvDepth: 15}
	for range 3 {
		qp, err := r.pd.NewQP(RC, opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.pd.NewQP(RC, opts); !errors.Is(err, ErrCQFull) {
			t.Errorf("two where one fits: %v", err)
		}
		qp.RecvQueue().Recv(1, r.mr.Span(0, 1))
		if err := qp.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if err := qp.Modify(StateErr); err != nil {
			t.Fatal(err)
		}
		if err := qp.Close(); err != nil { // with its flushed receive in the ring
			t.Fatal(err)
		}
		if _, err := r.pd.NewQP(RC, opts); !errors.Is(err, ErrCQFull) {
			t.Errorf("before the ring was polled: %v", err)
		}
		var wcs [4]WC
		if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
			t.Errorf("a completion of a closed QP: %d, %v", n, err)
		}
	}
	if s := q.Stats(); s.Late != 3 || s.Stray != 0 {
		t.Errorf("%+v", s)
	}
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 100, RecvDepth: 100, AllowOverrun: true})
	if err != nil {
		t.Fatalf("with AllowOverrun: %v", err)
	}
	qp.Close()
}

// A CQ that overruns says so once all that is left in it was delivered.
func TestOverrun(t *testing.T) {
	r := newRig(t, true)
	q, err := r.dev.NewCQ(3, &CQOptions{Events: true})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, AllowOverrun: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(10) {
		qp.RecvQueue().Recv(i, r.mr.Span(0, 1))
	}
	if err := qp.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{}, 16)
	_, detach, err := q.Attach(func() { woken <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	if err := qp.Modify(StateErr); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	case <-time.After(patience):
		t.Fatal("the waiter was not woken")
	}
	var wcs [2]WC
	got := 0
	for {
		n, err := q.Poll(wcs[:])
		if err != nil {
			says(t, "poll", err, ErrOverrun)
			break
		}
		got += n
	}
	if got != 3 {
		t.Errorf("%d completions before the error, want 3", got)
	}
	if _, err := q.Poll(wcs[:]); !errors.Is(err, ErrOverrun) {
		t.Errorf("the error did not stay: %v", err)
	}
	e := <-r.dev.Events()
	if e.Type != EventCQError || e.CQ != q {
		t.Errorf("event %v", e)
	}
}

// A queue pair that completes on one CQ with both sides counts once there.
func TestInUseCountsQueuePairs(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(16, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 1}); err != nil {
			t.Fatal(err)
		}
	}
	says(t, "close", q.Close(), ErrInUse, "by 3 QPs")
}
