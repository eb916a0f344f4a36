package uverbs

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// udRig is two UD queue pairs on a rig, with address handles for each other's
// port, which is one.
type udRig struct {
	*rig
	q    *CQ
	x, y *QP
	ah   *AH
}

func newUD(t testing.TB, d fakekernel.Device) *udRig {
	t.Helper()
	u := &udRig{rig: newRig(t, false, d)}
	var err error
	if u.q, err = u.dev.NewCQ(256, nil); err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: u.q, SendDepth: 16, RecvDepth: 16, SendSGE: 3, RecvSGE: 2, Inline: 64}
	if u.x, err = u.pd.NewQP(UD, opts); err != nil {
		t.Fatal(err)
	}
	if u.y, err = u.pd.NewQP(UD, opts); err != nil {
		t.Fatal(err)
	}
	if u.ah, err = u.pd.NewAH(u.y.Endpoint(), nil); err != nil {
		t.Fatal(err)
	}
	return u
}

// flush hands over what is staged on both of x and y.
func (u *udRig) flush(t testing.TB) {
	t.Helper()
	for _, q := range []interface{ Flush() error }{u.y.RecvQueue(), u.x.RecvQueue(), u.x.SendQueue(), u.y.SendQueue()} {
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

func bySide(wcs []WC) (send, recv []WC) {
	for _, w := range wcs {
		if w.Side == SendSide {
			send = append(send, w)
		} else {
			recv = append(recv, w)
		}
	}
	return send, recv
}

func TestDatagrams(t *testing.T) {
	u := newUD(t, fakekernel.Device{})
	if u.x.State() != StateRTS || u.x.Type() != UD || u.x.MaxDatagram() != 1024 {
		t.Fatalf("a new UD QP is %v, %v, MTU %d", u.x.State(), u.x.Type(), u.x.MaxDatagram())
	}
	if e := u.x.Endpoint(); e.QKey != DefaultQKey {
		t.Errorf("Q_Key %#x", e.QKey)
	}
	buf, to := u.mem.Bytes(), Dest{AH: u.ah, QPN: u.y.QPN()}
	for i := range buf[:2048] {
		buf[i] = byte(i * 7)
	}
	sq := u.x.SendQueue()
	for name, test := range map[string]struct {
		n    int
		post func(n int)
		op   Opcode
		imm  uint32
	}{
		"send":            {100, func(n int) { sq.SendTo(1, to, u.mr.Span(0, n)) }, OpSend, 0},
		"a full packet":   {1024, func(n int) { sq.SendTo(1, to, u.mr.Span(0, n)) }, OpSend, 0},
		"nothing":         {0, func(n int) { sq.SendTo(1, to, u.mr.Span(0, n)) }, OpSend, 0},
		"gathered":        {90, func(n int) { sq.SendToV(1, to, []Span{u.mr.Span(0, 30), u.mr.Span(30, n-30)}) }, OpSend, 0},
		"with immediate":  {5, func(n int) { sq.SendToImm(1, 0xdeadbeef, to, u.mr.Span(0, n)) }, OpSendImm, 0xdeadbeef},
		"inline":          {60, func(n int) { sq.SendToInline(1, to, bytes.Clone(buf[:n])) }, OpSend, 0},
		"with its Q_Key":  {8, func(n int) { sq.SendTo(1, Dest{u.ah, u.y.QPN(), DefaultQKey}, u.mr.Span(0, n)) }, OpSend, 0},
		"solicited, etc.": {8, func(n int) { sq.SendTo(1, to, u.mr.Span(0, n), Solicited, Fence) }, OpSend, 0},
	} {
		clear(buf[8192:12288])
		u.y.RecvQueue().RecvV(2, []Span{u.mr.Span(8192, GRHLen), u.mr.Span(8192+GRHLen, 2000)})
		test.post(test.n)
		u.flush(t)
		send, recv := bySide(wait(t, u.q, 2))
		if want := (WC{ID: 1, QPN: u.x.QPN(), Bytes: uint32(test.n), Opcode: test.op}); send[0] != want {
			t.Errorf("%s: sent %+v, want %+v", name, send[0], want)
		}
		want := WC{ID: 2, QPN: u.y.QPN(), SrcQPN: u.x.QPN(), Bytes: uint32(test.n + GRHLen), Opcode: OpRecv, Side: RecvSide, Flags: FlagGRH}
		if test.imm != 0 {
			want.SetImm(test.imm)
		}
		if recv[0] != want {
			t.Errorf("%s: received %+v, want %+v", name, recv[0], want)
		}
		if got := buf[8192+GRHLen:][:test.n]; !bytes.Equal(got, buf[:test.n]) || buf[8192+GRHLen+test.n] != 0 {
			t.Errorf("%s: other bytes arrived", name)
		}
		h, err := ParseGRH(buf[8192:])
		if err != nil || h.Version != 4 || h.Source != u.x.Source().GID || h.Dest != u.y.Source().GID || h.HopLimit != 64 {
			t.Errorf("%s: GRH %+v, %v", name, h, err)
		}
	}
}

// An answer finds its way by the completion and the header alone, over IPv4 and
// IPv6.
func TestAnswers(t *testing.T) {
	for name, source := range map[string]Source{"IPv4": {}, "IPv6": FromGID(1, 0)} {
		t.Run(name, func(t *testing.T) {
			u := newUD(t, fakekernel.Device{})
			opts := &AHOptions{Source: source, TrafficClass: 0x20, FlowLabel: 0x12345}
			here, err := u.dev.resolve(source)
			if err != nil {
				t.Fatal(err)
			}
			there, err := u.pd.NewAH(Endpoint{GID: here.GID}, opts)
			if err != nil {
				t.Fatal(err)
			}
			u.y.RecvQueue().Recv(1, u.mr.Span(0, 100))
			u.x.SendQueue().SendToInline(2, Dest{AH: there, QPN: u.y.QPN()}, []byte("ping"))
			u.flush(t)
			_, recv := bySide(wait(t, u.q, 2))
			back, err := u.pd.NewAHFor(recv[0], u.mem.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if back.GID() != here.GID || back.Source() != here {
				t.Errorf("the way back leads from %+v to %v, want %+v", back.Source(), back.GID(), here)
			}
			u.x.RecvQueue().Recv(3, u.mr.Span(4096, 100))
			u.y.SendQueue().SendToInline(4, Dest{AH: back, QPN: recv[0].SrcQPN}, []byte("pong"))
			u.flush(t)
			_, recv = bySide(wait(t, u.q, 2))
			if w := recv[0]; w.ID != 3 || w.SrcQPN != u.y.QPN() || w.Bytes != GRHLen+4 || string(u.mem.Bytes()[4096+GRHLen:][:4]) != "pong" {
				t.Errorf("answer %+v", w)
			}
			h, err := ParseGRH(u.mem.Bytes()[4096:])
			if err != nil || h.TrafficClass != 0x20 || h.Version == 6 && h.FlowLabel != 0x12345 {
				t.Errorf("the answer's header %+v, %v", h, err)
			}
			if err := back.Close(); err != nil {
				t.Error(err)
			}
			if err := back.Close(); !isClosed(err) {
				t.Errorf("second close: %v", err)
			}
		})
	}
}

// What nobody takes is dropped, and completes all the same.
func TestDatagramsLost(t *testing.T) {
	u := newUD(t, fakekernel.Device{})
	sq := u.x.SendQueue()
	nobody, err := u.pd.NewAH(Endpoint{GID: GIDFromAddr(netip.MustParseAddr("10.0.0.99"))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	u.y.RecvQueue().Recv(1, u.mr.Span(0, GRHLen+10))
	sq.SendTo(2, Dest{u.ah, u.y.QPN(), 0x1234}, u.mr.Span(0, 4))
	sq.SendTo(3, Dest{AH: u.ah, QPN: 0x777}, u.mr.Span(0, 4))
	sq.SendTo(4, Dest{AH: u.ah, QPN: u.b.QPN()}, u.mr.Span(0, 4)) // an RC one
	sq.SendTo(5, Dest{AH: nobody, QPN: u.y.QPN()}, u.mr.Span(0, 4))
	sq.SendTo(6, Dest{AH: u.ah, QPN: u.y.QPN()}, u.mr.Span(0, 10))
	sq.SendTo(7, Dest{AH: u.ah, QPN: u.y.QPN()}, u.mr.Span(0, 4))
	u.flush(t)
	send, recv := bySide(wait(t, u.q, 7))
	for i, w := range send {
		if w.ID != uint64(i+2) || w.Status != StatusSuccess {
			t.Errorf("send %d ended as %+v", i+2, w)
		}
	}
	if len(recv) != 1 || recv[0].Bytes != GRHLen+10 {
		t.Errorf("received %+v", recv)
	}
	// The Q_Key of a queue pair can be changed; a Dest without one follows.
	if err := u.x.Modify(StateRTS, AttrQKey(0x4321)); err != nil {
		t.Fatal(err)
	}
	u.y.RecvQueue().Recv(8, u.mr.Span(0, 100))
	sq.SendTo(9, Dest{AH: u.ah, QPN: u.y.QPN()}, u.mr.Span(0, 1))
	u.flush(t)
	if send, recv := bySide(wait(t, u.q, 1)); len(recv) != 0 || send[0].ID != 9 {
		t.Errorf("another Q_Key got through: %+v", recv)
	}
	if err := u.y.Modify(StateRTS, AttrQKey(0x4321)); err != nil {
		t.Fatal(err)
	}
	sq.SendTo(10, Dest{AH: u.ah, QPN: u.y.QPN()}, u.mr.Span(0, 1))
	u.flush(t)
	if _, recv := bySide(wait(t, u.q, 2)); len(recv) != 1 || recv[0].ID != 8 {
		t.Errorf("received %+v", recv)
	}
}

// One that does not fit its receive is, on Linux 6.1, the end of the receiver.
func TestDatagramTooLong(t *testing.T) {
	u := newUD(t, fakekernel.Device{})
	u.y.RecvQueue().Recv(1, u.mr.Span(0, GRHLen+10))
	u.x.SendQueue().SendTo(2, Dest{AH: u.ah, QPN: u.y.QPN()}, u.mr.Span(0, 11))
	u.flush(t)
	send, recv := bySide(wait(t, u.q, 2))
	if want := (WC{ID: 1, QPN: u.y.QPN(), Status: cq.StatusLocalQPOperation, Side: RecvSide}); recv[0] != want {
		t.Errorf("received %+v, want %+v", recv[0], want)
	}
	if send[0].ID != 2 || send[0].Status != StatusSuccess {
		t.Errorf("sent %+v", send[0])
	}
	if s, err := u.y.QueryState(); err != nil || s != StateErr {
		t.Errorf("state %v, %v, want ERR", s, err)
	}
}

func TestMulticast(t *testing.T) {
	u := newUD(t, fakekernel.Device{})
	group, err := GroupGID(netip.MustParseAddr("239.1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := u.pd.NewAH(Endpoint{GID: group}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, qp := range []*QP{u.x, u.y} {
		if err := qp.AttachMulticast(group); err != nil {
			t.Fatal(err)
		}
		qp.RecvQueue().Recv(uint64(qp.QPN()), u.mr.Span(4096, 100))
		qp.RecvQueue().Recv(uint64(qp.QPN()), u.mr.Span(4096, 100))
	}
	u.x.SendQueue().SendTo(1, Dest{AH: all, QPN: MulticastQPN}, u.mr.Span(0, 4))
	u.flush(t)
	_, recv := bySide(wait(t, u.q, 3))
	if len(recv) != 2 || recv[0].ID == recv[1].ID || recv[0].SrcQPN != u.x.QPN() {
		t.Errorf("received %+v", recv)
	}
	back, err := u.pd.NewAHFor(recv[0], u.mem.Bytes()[4096:])
	if err != nil || back.GID() != u.x.Source().GID || back.Source() != u.y.Source() {
		t.Errorf("the way back from a group: %+v, %v", back, err)
	}
	if err := u.x.DetachMulticast(group); err != nil {
		t.Fatal(err)
	}
	says(t, "detach twice", u.x.DetachMulticast(group), syscall.EINVAL, "is not attached", "239.1.2.3")
	u.x.SendQueue().SendTo(1, Dest{AH: all, QPN: MulticastQPN}, u.mr.Span(0, 4))
	u.flush(t)
	if _, recv := bySide(wait(t, u.q, 2)); len(recv) != 1 || recv[0].QPN != u.y.QPN() {
		t.Errorf("received %+v", recv)
	}
}

func TestBadDatagrams(t *testing.T) {
	u := newUD(t, fakekernel.Device{})
	pd, err := u.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	other, err := pd.NewAH(u.y.Endpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := u.pd.NewAH(u.y.Endpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	to := Dest{AH: u.ah, QPN: u.y.QPN()}
	one := u.mr.Span(0, 1)
	group := GID{0xff, 0x0e, 15: 1}
	for name, test := range map[string]struct {
		sq    *SendQueue
		post  func(*SendQueue)
		is    error
		parts []string
	}{
		"beyond the MTU":          {u.x.SendQueue(), func(q *SendQueue) { q.SendTo(1, to, u.mr.Span(0, 1025)) }, ErrBounds, []string{"1025 bytes", "takes 1024"}},
		"gathered beyond the MTU": {u.x.SendQueue(), func(q *SendQueue) { q.SendToV(1, to, []Span{u.mr.Span(0, 1000), u.mr.Span(0, 25)}) }, ErrBounds, []string{"1025 bytes"}},
		"no AH":                   {u.x.SendQueue(), func(q *SendQueue) { q.SendTo(1, Dest{QPN: 1}, one) }, ErrInvalid, []string{"Dest.AH is nil", "NewAH"}},
		"AH closed":               {u.x.SendQueue(), func(q *SendQueue) { q.SendTo(1, Dest{AH: closed}, one) }, os.ErrClosed, []string{"10.0.0.1"}},
		"AH of another PD":        {u.x.SendQueue(), func(q *SendQueue) { q.SendTo(1, Dest{AH: other}, one) }, ErrInvalid, []string{"another protection domain"}},
		"QPN":                     {u.x.SendQueue(), func(q *SendQueue) { q.SendTo(1, Dest{AH: u.ah, QPN: 1 << 24}, one) }, ErrInvalid, []string{"0x1000000", "24 bits"}},
		"datagram on RC":          {u.a.SendQueue(), func(q *SendQueue) { q.SendTo(1, to, one) }, ErrInvalid, []string{"RC"}},
		"send on UD":              {u.x.SendQueue(), func(q *SendQueue) { q.Send(1, one) }, ErrInvalid, []string{"UD", "SendTo"}},
		"inline beyond":           {u.x.SendQueue(), func(q *SendQueue) { q.SendToInline(1, to, make([]byte, 65)) }, ErrInvalid, []string{"65 bytes inline"}},
		"span beyond":             {u.x.SendQueue(), func(q *SendQueue) { q.SendToImm(1, 2, to, u.mr.Span(1<<16, 1)) }, ErrBounds, []string{"offset 65536"}},
	} {
		test.sq.SendTo(9, to, one)
		test.post(test.sq)
		if test.sq == u.a.SendQueue() {
			says(t, name, test.sq.Flush(), test.is, test.parts...)
			continue
		}
		says(t, name, test.sq.Flush(), test.is, test.parts...)
		if test.sq.Room() != 16 {
			t.Errorf("%s: room %d, want 16", name, test.sq.Room())
		}
	}
	good := WC{Side: RecvSide, Flags: FlagGRH, SrcQPN: 17}
	for name, test := range map[string]struct {
		make  func() error
		is    error
		parts []string
	}{
		"AH for nobody":     {func() error { _, err := u.pd.NewAH(Endpoint{}, nil); return err }, ErrInvalid, []string{"neither GID nor LID"}},
		"AH, service level": {func() error { _, err := u.pd.NewAH(u.y.Endpoint(), &AHOptions{ServiceLevel: 16}); return err }, ErrInvalid, []string{"16", "15"}},
		"AH, flow label":    {func() error { _, err := u.pd.NewAH(u.y.Endpoint(), &AHOptions{FlowLabel: 1 << 20}); return err }, ErrInvalid, []string{"0x100000", "20 bits"}},
		"AH, source":        {func() error { _, err := u.pd.NewAH(u.y.Endpoint(), &AHOptions{Source: FromGID(1, 9)}); return err }, ErrInvalid, []string{"index 9"}},
		"AH, IPv6 to IPv4":  {func() error { _, err := u.pd.NewAH(u.y.Endpoint(), &AHOptions{Source: FromGID(1, 0)}); return err }, syscall.EINVAL, []string{"fe80", "10.0.0.1", "both"}},
		"AH for a send":     {func() error { _, err := u.pd.NewAHFor(WC{}, make([]byte, 40)); return err }, ErrInvalid, []string{"successful receive"}},
		"AH for a failure": {func() error {
			w := good
			w.Status = StatusFlushed
			_, err := u.pd.NewAHFor(w, make([]byte, 40))
			return err
		}, ErrInvalid, []string{"successful receive"}},
		"AH, no GRH":            {func() error { w := good; w.Flags = 0; _, err := u.pd.NewAHFor(w, make([]byte, 40)); return err }, ErrInvalid, []string{"GRH"}},
		"AH, bad GRH":           {func() error { _, err := u.pd.NewAHFor(good, make([]byte, 40)); return err }, ErrGRH, nil},
		"AH, short GRH":         {func() error { _, err := u.pd.NewAHFor(good, make([]byte, 39)); return err }, ErrGRH, []string{"39 bytes", "40"}},
		"AH, sent to another":   {func() error { _, err := u.pd.NewAHFor(good, grhBytes(t, zeros20+bareIPv4)); return err }, ErrInvalid, []string{"10.0.0.2", "GID table"}},
		"RC with Q_Key":         {func() error { _, err := u.pd.NewQP(RC, &QPOptions{CQ: u.q, QKey: 1}); return err }, ErrInvalid, []string{"QKey 0x1", "UD"}},
		"privileged Q_Key":      {func() error { _, err := u.pd.NewQP(UD, &QPOptions{CQ: u.q, QKey: 1 << 31}); return err }, syscall.EPERM, []string{"0x80000000", "top bit", "CAP_NET_RAW"}},
		"connect UD":            {func() error { return u.x.Connect(context.Background(), u.y.Endpoint(), nil) }, ErrInvalid, []string{"SendTo"}},
		"multicast of RC":       {func() error { return u.a.AttachMulticast(group) }, ErrInvalid, []string{"RC", "UD"}},
		"multicast of one host": {func() error { return u.x.AttachMulticast(u.y.Source().GID) }, ErrInvalid, []string{"not a multicast address"}},
		"group of one host":     {func() error { _, err := GroupGID(netip.MustParseAddr("10.0.0.1")); return err }, ErrInvalid, []string{"10.0.0.1"}},
		"PD in use":             {pd.Close, ErrInUse, []string{"1 AH"}},
		"UD takes no access":    {func() error { return u.x.Modify(StateRTS, AttrAccess(RemoteRead)) }, syscall.EINVAL, nil},
	} {
		says(t, name, test.make(), test.is, test.parts...)
	}
}

// A kernel that gives address handles no numbers is one before 5.15.
func TestNoAHNumbers(t *testing.T) {
	r := newRig(t, false, fakekernel.Device{AVInRequest: true})
	_, err := r.pd.NewAH(r.a.Endpoint(), nil)
	says(t, "AH", err, ErrNotSupported, "5.15")
	lacking := newRig(t, false, fakekernel.Device{LacksCommands: []uint32{abi.IB_USER_VERBS_CMD_CREATE_AH}})
	_, err = lacking.pd.NewAH(lacking.a.Endpoint(), nil)
	says(t, "AH", err, ErrNotSupported, "driver")
}

// Shutdown ends a UD queue pair, and Restart makes it ready to send.
func TestShutdownUD(t *testing.T) {
	u := newUD(t, fakekernel.Device{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	u.y.RecvQueue().Recv(1, u.mr.Span(0, 100))
	u.flush(t)
	var ends []WC
	if err := u.y.Drain(ctx, func(w WC) { ends = append(ends, w) }); err != nil {
		t.Fatal(err)
	}
	if len(ends) != 1 || ends[0].ID != 1 || ends[0].Status != StatusFlushed {
		t.Errorf("ends %+v", ends)
	}
	if err := u.y.Restart(); err != nil {
		t.Fatal(err)
	}
	u.y.RecvQueue().Recv(2, u.mr.Span(0, 100))
	u.x.SendQueue().SendTo(3, Dest{AH: u.ah, QPN: u.y.QPN()}, u.mr.Span(0, 10))
	u.flush(t)
	if _, recv := bySide(wait(t, u.q, 2)); len(recv) != 1 || recv[0].ID != 2 || recv[0].Status != StatusSuccess {
		t.Errorf("received %+v", recv)
	}
}

// Posting datagrams allocates nothing.
func TestDatagramsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("declared skip: the race detector itself allocates")
	}
	u := newUD(t, fakekernel.Device{})
	sq, to := u.x.SendQueue(), Dest{AH: u.ah, QPN: u.y.QPN()}
	grh := grhBytes(t, zeros20+bareIPv4)
	for name, stage := range map[string]func(){
		"send":   func() { sq.SendTo(1, to, u.mr.Span(0, 8), Unsignaled) },
		"inline": func() { sq.SendToInline(1, to, grh, Unsignaled) },
		"GRH": func() {
			if _, err := ParseGRH(grh); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, func() {
			stage()
			sq.takeBack(sq.requests.Staged())
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
