package fakekernel

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

var ne = binary.NativeEndian

// program is a verbs program that makes its requests by hand.
type program struct {
	t *testing.T
	k *Kernel
	f kernel.File
	// uc makes queue pairs of type UC.
	uc bool
}

// start opens a device and makes a context.
func start(t *testing.T, k *Kernel, path string) *program {
	t.Helper()
	f, err := k.Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, k: k, f: f}
	p.must(p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT))
	return p
}

func (p *program) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// attr is an attribute of a request: bytes in, a buffer out, or a number.
type attr struct {
	id   uint16
	n    int // length that the request says
	data uint64
	buf  []byte // what data points to
	got  *uint64
}

func in(id uint16, b []byte) attr {
	if len(b) > 8 {
		return attr{id: id, n: len(b), data: addressOf(b), buf: b}
	}
	var word [8]byte
	copy(word[:], b)
	return attr{id: id, n: len(b), data: ne.Uint64(word[:])}
}

func in32(id uint16, v uint32) attr  { return in(id, ne.AppendUint32(nil, v)) }
func in64(id uint16, v uint64) attr  { return in(id, ne.AppendUint64(nil, v)) }
func out(id uint16, b []byte) attr   { return attr{id: id, n: len(b), data: addressOf(b), buf: b} }
func ref(id uint16, h uint64) attr   { return attr{id: id, data: h} }
func made(id uint16, h *uint64) attr { return attr{id: id, got: h} }

// call makes an ioctl.
func (p *program) call(object, method uint16, attrs ...attr) error {
	req := make([]byte, 24, 24+16*len(attrs))
	ne.PutUint16(req[2:], object)
	ne.PutUint16(req[4:], method)
	ne.PutUint16(req[6:], uint16(len(attrs)))
	ne.PutUint32(req[16:], uint32(abi.RDMA_DRIVER_RXE))
	for _, a := range attrs {
		req = ne.AppendUint16(req, a.id)
		req = ne.AppendUint16(req, uint16(a.n))
		req = ne.AppendUint16(req, 1)
		req = ne.AppendUint16(req, 0)
		req = ne.AppendUint64(req, a.data)
	}
	ne.PutUint16(req, uint16(len(req)))
	err := p.f.Ioctl(req)
	for i, a := range attrs {
		if a.got != nil {
			*a.got = ne.Uint64(req[24+16*i+8:])
		}
	}
	return err
}

// write makes a write command in an ioctl.
func (p *program) write(command uint32, core []byte, resp []byte) error {
	attrs := []attr{in64(abi.UVERBS_ATTR_WRITE_CMD, uint64(command)), in(abi.UVERBS_ATTR_CORE_IN, core)}
	if resp != nil {
		attrs = append(attrs, out(abi.UVERBS_ATTR_CORE_OUT, resp))
	}
	return p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE, attrs...)
}

func (p *program) allocPD() uint32 {
	p.t.Helper()
	resp := new(abi.UverbsAllocPDResp)
	p.must(p.write(abi.IB_USER_VERBS_CMD_ALLOC_PD, new(abi.UverbsAllocPD).Bytes(), resp.Bytes()))
	return resp.PDHandle
}

func (p *program) tryReg(pd uint32, q abi.UverbsRegMR) (abi.UverbsRegMRResp, error) {
	q.PDHandle = pd
	resp := new(abi.UverbsRegMRResp)
	err := p.write(abi.IB_USER_VERBS_CMD_REG_MR, q.Bytes(), resp.Bytes())
	return *resp, err
}

func (p *program) reg(pd uint32, b []byte, access uint32) abi.UverbsRegMRResp {
	p.t.Helper()
	r, err := p.tryReg(pd, abi.UverbsRegMR{Start: addressOf(b), HCAVA: addressOf(b), Length: uint64(len(b)), AccessFlags: access})
	p.must(err)
	return r
}

func (p *program) channel() kernel.EventFile {
	p.t.Helper()
	resp := new(abi.UverbsCreateCompChannelResp)
	p.must(p.write(abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, new(abi.UverbsCreateCompChannel).Bytes(), resp.Bytes()))
	e, err := p.f.Events(int(resp.FD))
	p.must(err)
	return e
}

func (p *program) asyncEvents() kernel.EventFile {
	p.t.Helper()
	var fd uint64
	p.must(p.call(abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, made(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, &fd)))
	e, err := p.f.Events(int(fd))
	p.must(err)
	return e
}

// userRing is a mapped ring as a program sees it.
type userRing struct {
	m *kernel.Mapping
	b []byte
}

func (p *program) mapRing(mi abi.MMInfo) *userRing {
	p.t.Helper()
	m, err := p.f.Map(int64(mi.Offset), int(mi.Size))
	p.must(err)
	return &userRing{m, m.Bytes()}
}

func (r *userRing) stride() int      { return 1 << word(r.b, 0).Load() }
func (r *userRing) mask() uint32     { return word(r.b, 4).Load() }
func (r *userRing) producer() uint32 { return word(r.b, 128).Load() }
func (r *userRing) consumer() uint32 { return word(r.b, 256).Load() }

// push adds an element.
func (r *userRing) push(e []byte) {
	i := r.producer()
	slot := r.b[384+int(i)*r.stride():][:r.stride()]
	clear(slot)
	copy(slot, e)
	word(r.b, 128).Store((i + 1) & r.mask())
}

// pop takes an element.
func (r *userRing) pop() ([]byte, bool) {
	i := r.consumer()
	if i == r.producer() {
		return nil, false
	}
	e := slices.Clone(r.b[384+int(i)*r.stride():][:r.stride()])
	word(r.b, 256).Store((i + 1) & r.mask())
	return e, true
}

// wc is a completion.
type wc struct {
	id                    uint64
	status, opcode, bytes uint32
	imm                   string
	qpn, flags            uint32
}

type userCQ struct {
	*userRing
	handle uint32
	cqe    uint32
}

func (p *program) tryCQ(cqe uint32, more ...attr) (*userCQ, error) {
	p.t.Helper()
	var h uint64
	resp, real := new(abi.RxeCreateCQResp), make([]byte, 4)
	err := p.call(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, append([]attr{
		made(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, &h),
		in32(abi.UVERBS_ATTR_CREATE_CQ_CQE, cqe),
		in64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0xc0ffee),
		out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, real),
		out(abi.UVERBS_ATTR_UHW_OUT, resp.Bytes()),
	}, more...)...)
	if err != nil {
		return nil, err
	}
	return &userCQ{p.mapRing(resp.MI), uint32(h), ne.Uint32(real)}, nil
}

func (p *program) cq(cqe uint32, more ...attr) *userCQ {
	p.t.Helper()
	q, err := p.tryCQ(cqe, append(more, in32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0))...)
	p.must(err)
	return q
}

// poll waits for a completion: retries come from timers.
func (q *userCQ) poll(t *testing.T) wc {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if e, ok := q.pop(); ok {
			return wc{
				ne.Uint64(e), ne.Uint32(e[8:]), ne.Uint32(e[12:]), ne.Uint32(e[20:]), string(e[24:28]),
				ne.Uint32(e[28:]), ne.Uint32(e[36:]),
			}
		}
	}
	t.Fatal("no completion")
	return wc{}
}

func (p *program) arm(q *userCQ, solicited uint32) {
	p.t.Helper()
	p.must(p.write(abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, (&abi.UverbsReqNotifyCQ{CQHandle: q.handle, SolicitedOnly: solicited}).Bytes(), nil))
}

type userQP struct {
	p      *program
	handle uint32
	qpn    uint32
	cap    abi.UverbsQPCap
	sq, rq *userRing
}

func (p *program) tryQP(pd uint32, send, recv *userCQ, c abi.UverbsQPCap, more ...attr) (*userQP, error) {
	p.t.Helper()
	var h uint64
	rings, got, qpn := new(abi.RxeCreateQPResp), new(abi.UverbsQPCap), make([]byte, 4)
	typ := typeRC
	if p.uc {
		typ = typeUC
	}
	err := p.call(abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE, append([]attr{
		made(abi.UVERBS_ATTR_CREATE_QP_HANDLE, &h),
		ref(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, uint64(pd)),
		ref(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, uint64(send.handle)),
		ref(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, uint64(recv.handle)),
		in64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0xbeef),
		in(abi.UVERBS_ATTR_CREATE_QP_CAP, c.Bytes()),
		in64(abi.UVERBS_ATTR_CREATE_QP_TYPE, typ),
		out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, got.Bytes()),
		out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn),
		out(abi.UVERBS_ATTR_UHW_OUT, rings.Bytes()),
	}, more...)...)
	if err != nil {
		return nil, err
	}
	return &userQP{p, uint32(h), ne.Uint32(qpn), *got, p.mapRing(rings.SQMI), p.mapRing(rings.RQMI)}, nil
}

var usualCap = abi.UverbsQPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}

func (p *program) qp(pd uint32, q *userCQ) *userQP {
	p.t.Helper()
	u, err := p.tryQP(pd, q, q, usualCap)
	p.must(err)
	return u
}

func (u *userQP) modify(m abi.UverbsModifyQP) error {
	m.QPHandle = u.handle
	return u.p.write(abi.IB_USER_VERBS_CMD_MODIFY_QP, m.Bytes(), nil)
}

func (u *userQP) to(state qpState) error {
	return u.modify(abi.UverbsModifyQP{AttrMask: maskState, QPState: uint8(state)})
}

func (u *userQP) toInit() error {
	return u.modify(abi.UverbsModifyQP{
		AttrMask: maskState | maskPKeyIndex | maskPort | maskAccess, QPState: uint8(stateInit), PortNum: 1,
		QPAccessFlags: remoteWrite | remoteRead,
	})
}

func (u *userQP) toRTR(peer *userQP, gid netip.Addr) error {
	return u.modify(abi.UverbsModifyQP{
		AttrMask: maskState | maskAV | maskPathMTU | maskDestQPN | maskRQPSN | maskMaxDestRead | maskMinRNRTimer,
		QPState:  uint8(stateRTR), PathMTU: 3, DestQPNum: peer.qpn, RQPSN: psnMask, MaxDestRdAtomic: 1, MinRNRTimer: 1,
		Dest: abi.UverbsQPDest{DGID: gid.As16(), SGIDIndex: 1, IsGlobal: 1, PortNum: 1},
	})
}

func (u *userQP) toRTS() error {
	return u.modify(abi.UverbsModifyQP{
		AttrMask: maskState | maskTimeout | maskRetryCount | maskRNRRetry | maskSQPSN | maskMaxRead,
		QPState:  uint8(stateRTS), Timeout: 8, RetryCnt: 2, RNRRetry: 3, SQPSN: psnMask, MaxRdAtomic: 1,
	})
}

// send posts a request without ringing.
func (u *userQP) send(opcode, flags uint32, id uint64, list []sge, remote uint64, rkey uint32) {
	b := make([]byte, u.sq.stride())
	ne.PutUint64(b, id)
	ne.PutUint32(b[12:], opcode)
	ne.PutUint32(b[16:], flags)
	copy(b[20:], "IMM!")
	if opcode != opSend && opcode != opSendImm {
		ne.PutUint64(b[24:], remote)
		ne.PutUint32(b[32:], rkey)
		ne.PutUint64(b[152:], remote)
	}
	ne.PutUint32(b[184:], uint32(total(list)))
	ne.PutUint32(b[188:], uint32(total(list)))
	ne.PutUint32(b[196:], uint32(len(list)))
	putSGEs(b[208:], list)
	u.sq.push(b)
}

func (u *userQP) recv(id uint64, list ...sge) {
	b := make([]byte, u.rq.stride())
	ne.PutUint64(b, id)
	ne.PutUint32(b[16:], uint32(total(list)))
	ne.PutUint32(b[20:], uint32(total(list)))
	ne.PutUint32(b[28:], uint32(len(list)))
	putSGEs(b[40:], list)
	u.rq.push(b)
}

func putSGEs(b []byte, list []sge) {
	for i, s := range list {
		ne.PutUint64(b[16*i:], s.addr)
		ne.PutUint32(b[16*i+8:], s.length)
		ne.PutUint32(b[16*i+12:], s.lkey)
	}
}

// ring rings the doorbell through the write interface.
func (u *userQP) ring() error {
	resp := new(abi.UverbsPostSendResp)
	core := abi.UverbsPostSend{Response: addressOf(resp.Bytes()), QPHandle: u.handle, WQESize: 128}
	b := ne.AppendUint32(nil, abi.IB_USER_VERBS_CMD_POST_SEND)
	b = ne.AppendUint16(b, 8)
	b = ne.AppendUint16(b, 1)
	return u.p.f.Write(append(b, core.Bytes()...))
}

// ringIoctl rings it through the ioctl.
func (u *userQP) ringIoctl() error {
	return u.p.write(abi.IB_USER_VERBS_CMD_POST_SEND, (&abi.UverbsPostSend{QPHandle: u.handle, WQESize: 128}).Bytes(), new(abi.UverbsPostSendResp).Bytes())
}

func (p *program) destroy(object uint16, handle uint32) error {
	switch object {
	case abi.UVERBS_OBJECT_QP:
		return p.call(object, abi.UVERBS_METHOD_QP_DESTROY, ref(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, uint64(handle)),
			out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4)))
	case abi.UVERBS_OBJECT_CQ:
		return p.call(object, abi.UVERBS_METHOD_CQ_DESTROY, ref(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, uint64(handle)),
			out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, make([]byte, 8)))
	}
	return p.call(object, 0+map[uint16]uint16{
		abi.UVERBS_OBJECT_PD: abi.UVERBS_METHOD_PD_DESTROY, abi.UVERBS_OBJECT_MR: abi.UVERBS_METHOD_MR_DESTROY,
	}[object], ref(0, uint64(handle)))
}

// ends are two connected queue pairs on two devices.
type ends struct {
	k   *Kernel
	p   [2]*program
	pd  [2]uint32
	cq  [2]*userCQ
	qp  [2]*userQP
	mem [2][]byte
	mr  [2]abi.UverbsRegMRResp
}

var gids = [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}

// connect makes two ends.
func connect(t *testing.T) *ends {
	t.Helper()
	e := &ends{k: New(Device{}, Device{})}
	for i := range e.p {
		e.p[i] = start(t, e.k, "/dev/infiniband/uverbs"+string(rune('0'+i)))
		e.pd[i] = e.p[i].allocPD()
		e.cq[i] = e.p[i].cq(16)
		e.qp[i] = e.p[i].qp(e.pd[i], e.cq[i])
		e.mem[i] = pages(2 * pageSize)
		e.mr[i] = e.p[i].reg(e.pd[i], e.mem[i], localWrite|remoteWrite|remoteRead)
	}
	for i, q := range e.qp {
		q.p.must(q.toInit())
		q.p.must(q.toRTR(e.qp[1-i], gids[1-i]))
		q.p.must(q.toRTS())
	}
	return e
}

// span is a piece of an end's memory.
func (e *ends) span(i, off, n int) sge {
	return sge{addressOf(e.mem[i]) + uint64(off), uint32(n), e.mr[i].LKey}
}

// finish destroys everything and checks that nothing is left.
func (e *ends) finish(t *testing.T) {
	t.Helper()
	for i, p := range e.p {
		p.must(p.destroy(abi.UVERBS_OBJECT_QP, e.qp[i].handle))
		p.must(p.destroy(abi.UVERBS_OBJECT_CQ, e.cq[i].handle))
		p.must(p.destroy(abi.UVERBS_OBJECT_MR, e.mr[i].MRHandle))
		p.must(p.destroy(abi.UVERBS_OBJECT_PD, e.pd[i]))
		for _, r := range []*userRing{e.qp[i].sq, e.qp[i].rq, e.cq[i].userRing} {
			p.must(r.m.Detach())
		}
		p.must(p.f.Close())
	}
	if leaks := e.k.Leaks(); len(leaks) > 0 {
		t.Errorf("left over: %q", leaks)
	}
	if v := e.k.Violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}
}

func wantErr(t *testing.T, what string, got error, want syscall.Errno) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
