package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// tracer keeps what the model told.
type tracer struct {
	t      testing.TB
	events []model.Event
}

func trace(t testing.TB, m *model.Model) *tracer {
	r := &tracer{t: t}
	m.Trace(func(e model.Event) { r.events = append(r.events, e) })
	return r
}

// want compares what was told since the last time with lines, each with the device in front.
func (r *tracer) want(lines ...string) {
	r.t.Helper()
	var got []string
	for _, e := range r.events {
		got = append(got, e.From().Device+" "+e.String())
	}
	r.events = r.events[:0]
	if !slices.Equal(got, lines) {
		r.t.Fatalf("told\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

func (w *two) line(format string, args ...any) string {
	return strings.NewReplacer(
		"QPA", fmt.Sprintf("QP %#x", w.qa.qpn), "QPB", fmt.Sprintf("QP %#x", w.qb.qpn),
		"SCQA", fmt.Sprintf("CQ %#x", w.qa.scq.cqn), "RCQB", fmt.Sprintf("CQ %#x", w.qb.rcq.cqn),
	).Replace(fmt.Sprintf(format, args...))
}

func TestTraceRequests(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	r := trace(t, w.m)

	w.qb.recv(sge(w.mb, 0, 64))
	w.qa.post(opSend, signaled|solicited, 0, sge(w.ma, 0, 4), sge(w.ma, 8, 6))
	send, ok := r.events[1].(model.RequestEvent)
	if !ok || send.Segments != 2 || send.Blocks != 1 || send.Wait != 0 || send.Flags != signaled|solicited {
		t.Errorf("request %+v", send)
	}
	r.want(
		w.line("sim1 CQE 0 of RCQB: receive of QPB wqe 0: ok, 10 bytes, from QPA, solicited"),
		w.line("sim0 WQE 0 of QPA: SEND of 10 bytes to QPB, signaled, solicited: carried out"),
		w.line("sim0 CQE 0 of SCQA: SEND of QPA wqe 0: ok"))

	w.qa.post(opRead, signaled|0x60, 0, raddr(w.mb, 512), sge(w.ma, 0, 11))
	r.want(
		w.line("sim0 WQE 1 of QPA: RDMA_READ of 11 bytes to QPB at %#x rkey %#x, signaled, fence 3: carried out", w.mb.addr+512, w.mb.key),
		w.line("sim0 CQE 1 of SCQA: RDMA_READ of QPA wqe 1: ok, 11 bytes"))

	// Without a completion, inline, with an immediate, and atomics.
	w.qa.post(opWrite, 0, 0, raddr(w.mb, 0), inline("abc"))
	w.qb.recv()
	w.qa.post(opWriteImm, 0, 0x1234, raddr(w.mb, 8), sge(w.ma, 0, 2))
	w.qa.post(opFAA, 0, 0, raddr(w.mb, 16), atomicOperands(5, 0), sge(w.ma, 0, 8))
	w.qa.post(opNop, 0, 0)
	r.want(
		w.line("sim0 WQE 2 of QPA: RDMA_WRITE of 3 bytes inline to QPB at %#x rkey %#x: carried out", w.mb.addr, w.mb.key),
		w.line("sim1 CQE 1 of RCQB: receive (RDMA_WRITE_IMM) of QPB wqe 1: ok, 2 bytes, immediate 0x1234, from QPA"),
		w.line("sim0 WQE 3 of QPA: RDMA_WRITE_IMM of 2 bytes to QPB at %#x rkey %#x immediate 0x1234: carried out", w.mb.addr+8, w.mb.key),
		w.line("sim0 WQE 4 of QPA: ATOMIC_FA of 8 bytes to QPB at %#x rkey %#x add 0x5: carried out", w.mb.addr+16, w.mb.key),
		w.line("sim0 WQE 5 of QPA: NOP: carried out"))

	// Nobody is told any more.
	w.m.Trace(nil)
	w.qa.post(opNop, signaled, 0)
	r.want()
	noViolations(t, w.m)
}

// A key that does not exist: the peer fails first, and what was posted behind is flushed.
func TestTraceError(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	r := trace(t, w.m)
	w.qb.recv()
	w.qa.put(opWrite, 0, 0, raddr(&region{addr: 4096, key: 0xdead00}, 0), sge(w.ma, 0, 8))
	_, first := w.qa.put(opSend, signaled, 0)
	w.qa.ring(first)
	r.want(
		w.line("sim1 event QP_ACCESS_ERR of QPB to descriptor %d", w.b.async.FD()),
		w.line("sim1 QPB: RTS to ERR"),
		w.line("sim0 WQE 0 of QPA: RDMA_WRITE of 8 bytes to QPB at 0x1000 rkey 0xdead00: failed: REMOTE_ACCESS_ERR (syndrome 0x13, vendor 0x88)"),
		w.line("sim0 CQE 0 of SCQA: RDMA_WRITE of QPA wqe 0: REMOTE_ACCESS_ERR (syndrome 0x13, vendor 0x88)"),
		w.line("sim0 QPA: RTS to ERR"),
		w.line("sim1 CQE 0 of RCQB: receive of QPB wqe 0: WR_FLUSH_ERR (syndrome 0x5, vendor 0xf9)"),
		w.line("sim0 WQE 1 of QPA: SEND of 0 bytes to QPB, signaled: flushed"),
		w.line("sim0 CQE 1 of SCQA: SEND of QPA wqe 1: WR_FLUSH_ERR (syndrome 0x5, vendor 0xf9)"))
}

// A peer without a receive asks for a pause twice, and a queue of completions with a channel
// tells that it came.
func TestTraceRNR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
		r := trace(t, w.m)
		w.qa.scq.arm(false)
		w.qa.post(opSend, signaled, 0)
		pause := w.line("sim0 WQE 0 of QPA: SEND of 0 bytes to QPB, signaled: receiver not ready, next look after 640µs")
		time.Sleep(1500 * time.Microsecond) // it comes again after 640 and 1280
		synctest.Wait()
		r.want(pause, pause, pause)
		w.qb.recv()
		waitFor(w.qa.scq)
		r.want(
			w.line("sim1 CQE 0 of RCQB: receive of QPB wqe 0: ok, 0 bytes, from QPA"),
			w.line("sim0 WQE 0 of QPA: SEND of 0 bytes to QPB, signaled: carried out"),
			w.line("sim0 CQE 0 of SCQA: SEND of QPA wqe 0: ok"),
			w.line("sim0 completion event of SCQA to descriptor %d", w.qa.scq.channel.FD()))
	})
	// No attempt is left.
	synctest.Test(t, func(t *testing.T) {
		p := usual
		p.rnr = 1
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, p)
		r := trace(t, w.m)
		w.qa.post(opSend, 0, 0)
		waitFor(w.qa.scq)
		synctest.Wait()
		pause := w.line("sim0 WQE 0 of QPA: SEND of 0 bytes to QPB: receiver not ready, next look after 640µs")
		r.want(pause, pause,
			w.line("sim0 WQE 0 of QPA: SEND of 0 bytes to QPB: failed: RNR_RETRY_EXC_ERR (syndrome 0x16, vendor 0x87)"),
			w.line("sim0 CQE 0 of SCQA: SEND of QPA wqe 0: RNR_RETRY_EXC_ERR (syndrome 0x16, vendor 0x87)"),
			w.line("sim0 completion event of SCQA to descriptor %d", w.qa.scq.channel.FD()),
			w.line("sim0 QPA: RTS to ERR"))
	})
}

// An entry of a shared receive queue: the completion says which of them, and the last one
// raises the event of the limit.
func TestTraceSRQ(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	cq := c.cq(64, cqOptions{})
	s := c.srq(4)
	a, b := c.qp(rc, cq, cq, qpOptions{}), c.qp(rc, cq, cq, qpOptions{srq: s})
	connect(a, b, usual)
	region := c.mr(4096, allAccess)
	r := trace(t, m)
	s.recv(sge(region, 0, 64))
	s.recv(sge(region, 64, 64))
	for i, entry := range []uint16{0, 3} {
		a.post(opSend, 0, 0, sge(region, 0, 9))
		r.want(
			fmt.Sprintf("sim0 CQE %d of CQ %#x: receive of QP %#x wqe %d of SRQ %#x: ok, 9 bytes, from QP %#x", i, cq.cqn, b.qpn, entry, s.srqn, a.qpn),
			fmt.Sprintf("sim0 WQE %d of QP %#x: SEND of 9 bytes to QP %#x: carried out", i, a.qpn, b.qpn))
	}
	noViolations(t, m)
}

// Requests of the kernel: by which names, of what, what they make, and why they fail.
func TestTraceIoctls(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	r := trace(t, m)
	c := open(t, m, "sim0")
	if got := r.events[0].String(); got != "ioctl DEVICE.GET_CONTEXT: ok" {
		t.Errorf("first: %s", got)
	}
	r.events = r.events[:0]

	cq := c.cq(32, cqOptions{channel: true})
	q := c.qp(rc, cq, cq, qpOptions{})
	r.want(
		fmt.Sprintf("sim0 ioctl DEVICE.INVOKE_WRITE CREATE_COMP_CHANNEL: ok, made channel descriptor %d", cq.channel.FD()),
		fmt.Sprintf("sim0 ioctl CQ.CQ_CREATE: ok, made CQ %#x handle %d", cq.cqn, cq.handle),
		fmt.Sprintf("sim0 ioctl QP.QP_CREATE: ok, of PD handle %d, CQ %#x handle %d, CQ %#x handle %d, made QP %#x handle %d",
			c.pd, cq.cqn, cq.handle, cq.cqn, cq.handle, q.qpn, q.handle))
	q.init(usual)
	r.want(
		fmt.Sprintf("sim0 QP %#x: RESET to INIT", q.qpn),
		fmt.Sprintf("sim0 ioctl DEVICE.INVOKE_WRITE MODIFY_QP: ok, of QP %#x handle %d", q.qpn, q.handle))

	destroy := func(handle uint32) error {
		return ioctl(c.f, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY, object(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, handle), out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, make([]byte, 8)))
	}
	busy := destroy(cq.handle)
	none := destroy(12345)
	r.want(
		fmt.Sprintf("sim0 ioctl CQ.CQ_DESTROY: EBUSY, of CQ %#x handle %d: other objects stand on it", cq.cqn, cq.handle),
		"sim0 ioctl CQ.CQ_DESTROY: ENOENT: no object of that type has the handle")
	if request.ErrnoOf(busy) != request.EBUSY || request.ErrnoOf(none) != request.ENOENT {
		t.Errorf("errors %v and %v", busy, none)
	}
	if err := m.Inject(model.Fault{At: model.AtIoctl, Do: model.Refuse{Errno: request.ENOMEM}}); err != nil {
		t.Fatal(err)
	}
	_ = destroy(cq.handle)
	r.want("sim0 ioctl CQ.CQ_DESTROY: ENOMEM: a fault was injected")
}

// The program is who the options say.
func TestTraceProgram(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	r := trace(t, m)
	f, err := m.Device("sim0").Open(model.Local{}, &model.OpenOptions{Program: "4711"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Ioctl(make([]byte, abi.SizeofUverbsIoctlHdr)); err == nil {
		t.Error("an empty request succeeds")
	}
	if o := r.events[0].From(); len(r.events) != 1 || o.Program != "4711" || o.Device != "sim0" {
		t.Errorf("told %v, of %+v", r.events, o)
	}
}

// Who does not trace pays no memory.
func TestTraceAllocatesNothing(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	w.m.Trace(func(model.Event) { t.Error("told before anything happened") })
	w.m.Trace(nil)
	const rounds = 30
	var firsts []uint64
	for range rounds + 1 { // AllocsPerRun warms up with one
		_, first := w.qa.put(opNop, signaled, 0)
		firsts = append(firsts, first)
	}
	posted := uint32(0)
	if got := testing.AllocsPerRun(rounds, func() {
		store(w.qa.db[4:], posted+1)
		w.qa.ring(firsts[posted])
		posted++
	}); got != 0 {
		t.Errorf("%v allocations a request", got)
	}
	if got := len(w.qa.scq.all()); got != rounds+1 {
		t.Errorf("%d completions, want %d", got, rounds+1)
	}
}
