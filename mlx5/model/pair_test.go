package model_test

import (
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

const (
	rc = 2
	uc = 3
	ud = 4
)

const (
	stateReset = iota
	stateInit
	stateRTR
	stateRTS
	stateSQD
	stateSQE
	stateErr
)

// qpOptions are what a queue pair of the tests can be.
type qpOptions struct {
	blocks, receives, shift uint32 // 64, 16, 6
	flags                   uint32 // of mlx5_ib_create_qp
	asked                   uint32 // receives that are asked for; as many as there is room
	sigAll, notSelf         bool
	srq                     *shared
	pd                      *uint32
}

// pair is a queue pair of the client.
type pair struct {
	c                       *client
	typ                     uint64
	b, db                   []byte
	blocks, receives, shift uint32
	qpn, handle, uidx       uint32
	scq, rcq                *ring
	pi, recvPI              uint16
	page, register          uint32
	user                    uint64
	toggle                  bool
}

func (c *client) qp(typ uint64, scq, rcq *ring, o qpOptions) *pair {
	c.t.Helper()
	q, err := c.tryQP(typ, scq, rcq, o)
	c.must("QP CREATE", err)
	return q
}

func (c *client) tryQP(typ uint64, scq, rcq *ring, o qpOptions) (*pair, error) {
	c.t.Helper()
	q := &pair{c: c, typ: typ, db: pages(c.t, 64), blocks: 64, receives: 16, shift: 6, scq: scq, rcq: rcq, uidx: c.uidx, user: 0x99000000 + uint64(c.uidx), page: c.ncID, register: 0x800}
	c.uidx++
	if o.blocks != 0 {
		q.blocks, q.receives, q.shift = o.blocks, o.receives, o.shift
	}
	if o.srq != nil {
		q.receives = 0
	}
	q.b = pages(c.t, int(q.receives<<q.shift+q.blocks*64))
	u := abi.MLX5IBCreateQP{
		BufAddr: at(q.b), DBAddr: at(q.db), SQWQECount: q.blocks, RQWQECount: q.receives, RQWQEShift: q.shift,
		Flags: abi.MLX5_QP_FLAG_UAR_PAGE_INDEX | o.flags, Uidx: q.uidx, BfregIndex: c.ncID,
	}
	if c.ctx.TotBfregs > 0 {
		u.Flags, u.BfregIndex = o.flags, 0
	}
	if c.ctx.CQEVersion == 0 {
		u.Uidx = 0xffffff
	}
	caps := abi.UverbsQPCap{MaxSendWR: q.blocks / 4, MaxRecvWR: q.receives, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 60}
	if o.asked > 0 {
		caps.MaxRecvWR, caps.MaxRecvSGE = o.asked, 1
	}
	pd := c.pd
	if o.pd != nil {
		pd = *o.pd
	}
	var h uint64
	number, resp := make([]byte, 4), make([]byte, abi.SizeofMLX5IBCreateQPResp)
	attrs := []attr{
		fresh(abi.UVERBS_ATTR_CREATE_QP_HANDLE, &h), object(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd),
		object(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, scq.handle), object(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, rcq.handle),
		in(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, u64(q.user)), in(abi.UVERBS_ATTR_CREATE_QP_CAP, caps.Bytes()),
		in(abi.UVERBS_ATTR_CREATE_QP_TYPE, u64(typ)), out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, make([]byte, abi.SizeofUverbsQPCap)),
		out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number), uhw(u.Bytes()), uhwOut(resp),
	}
	var flags abi.UverbsQPCreateFlags
	if o.sigAll {
		flags |= abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL
	}
	if o.notSelf {
		flags |= abi.IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK
	}
	if flags != 0 {
		attrs = append(attrs, in(abi.UVERBS_ATTR_CREATE_QP_FLAGS, u32(uint32(flags))))
	}
	if o.srq != nil {
		attrs = append(attrs, object(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, o.srq.handle))
	}
	if err := ioctl(c.f, abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE, attrs...); err != nil {
		return nil, err
	}
	q.handle, q.qpn = uint32(h), ne.Uint32(number)
	if i := ne.Uint32(resp); c.ctx.TotBfregs > 0 {
		p, err := c.f.Map(int64(i/4)<<12, 4096, true)
		c.must("map of a static UAR", err)
		q.page, q.register = p.ID, 0x800+i%4*uint32(c.ctx.BfRegSize)
	}
	return q, nil
}

// modify runs MODIFY_QP.
func (q *pair) modify(m abi.UverbsModifyQP) error {
	m.QPHandle = q.handle
	return ioctl(q.c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_MODIFY_QP, core(m.Bytes()))...)
}

func (q *pair) to(state uint8) {
	q.c.t.Helper()
	q.c.must("MODIFY_QP", q.modify(abi.UverbsModifyQP{AttrMask: 1, QPState: state}))
}

// state asks for the state.
func (q *pair) state() uint8 { return q.query().QPState }

func (q *pair) query() (r abi.UverbsQueryQPResp) {
	q.c.t.Helper()
	b := make([]byte, abi.SizeofUverbsQueryQPResp)
	r1 := abi.UverbsQueryQP{QPHandle: q.handle}
	q.c.must("QUERY_QP", ioctl(q.c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_QUERY_QP, core(r1.Bytes()), coreOut(b))...))
	copy(r.Bytes(), b)
	return r
}

// path is how a connection is made.
type path struct {
	timeout, retry, rnr, minRNR uint8
	access                      uint32
	mtu                         uint8
	reads                       uint8
	sgid                        uint8
}

var usual = path{timeout: 14, retry: 3, rnr: 3, minRNR: 12, access: remoteWrite | remoteRead | remoteAtomic, mtu: 5, reads: 4, sgid: 2}

// Masks of the three steps of a connection.
const (
	initMask   = 1 | 1<<3 | 1<<4 | 1<<5
	rtrMask    = 1 | 1<<7 | 1<<8 | 1<<20 | 1<<12 | 1<<17 | 1<<15
	rtrMaskUC  = 1 | 1<<7 | 1<<8 | 1<<20 | 1<<12
	rtsMask    = 1 | 1<<9 | 1<<10 | 1<<11 | 1<<16 | 1<<13
	rtsMaskUC  = 1 | 1<<16
	initMaskUD = 1 | 1<<4 | 1<<5 | 1<<6
)

// gid is the address of the first port at an index.
func (c *client) gid(index uint64) (g [16]byte) {
	c.t.Helper()
	b := make([]byte, abi.SizeofUverbsGIDEntry)
	c.must("QUERY_GID_ENTRY", ioctl(c.f, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_ENTRY, in(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT, u64(1)),
		in(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, u64(index)), in(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, u32(0)), out(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, b)))
	copy(g[:], b)
	return g
}

func (q *pair) init(p path) {
	q.c.t.Helper()
	q.c.must("INIT", q.modify(abi.UverbsModifyQP{AttrMask: initMask, QPState: stateInit, PortNum: 1, QPAccessFlags: p.access}))
}

// join connects q to its peer, up to RTS.
func (q *pair) join(peer *pair, p path) {
	q.c.t.Helper()
	dest := abi.UverbsQPDest{DGID: peer.c.gid(uint64(p.sgid)), SGIDIndex: p.sgid, HopLimit: 64, IsGlobal: 1, PortNum: 1}
	q.joinTo(dest, peer.qpn, p)
}

func (q *pair) joinTo(dest abi.UverbsQPDest, qpn uint32, p path) {
	q.c.t.Helper()
	r := abi.UverbsModifyQP{AttrMask: rtrMask, QPState: stateRTR, Dest: dest, PathMTU: p.mtu, DestQPNum: qpn, RQPSN: 7, MaxDestRdAtomic: p.reads, MinRNRTimer: p.minRNR}
	s := abi.UverbsModifyQP{AttrMask: rtsMask, QPState: stateRTS, Timeout: p.timeout, RetryCnt: p.retry, RNRRetry: p.rnr, SQPSN: 7, MaxRdAtomic: p.reads}
	if q.typ == uc {
		r.AttrMask, s.AttrMask = rtrMaskUC, rtsMaskUC
	}
	q.c.must("RTR", q.modify(r))
	q.c.must("RTS", q.modify(s))
}

func connect(a, b *pair, p path) {
	a.c.t.Helper()
	a.init(p)
	b.init(p)
	a.join(b, p)
	b.join(a, p)
}

// Segments of requests.

func sge(r *region, off, n int) []byte {
	b := be.AppendUint32(nil, uint32(n))
	b = be.AppendUint32(b, r.key)
	return be.AppendUint64(b, r.addr+uint64(off))
}

func raddr(r *region, off int) []byte {
	b := be.AppendUint64(nil, r.addr+uint64(off))
	b = be.AppendUint32(b, r.key)
	return be.AppendUint32(b, 0)
}

func inline(data string) []byte {
	b := be.AppendUint32(nil, uint32(len(data))|1<<31)
	b = append(b, data...)
	return append(b, make([]byte, -len(b)&15)...)
}

func atomicOperands(swapAdd, compare uint64) []byte {
	return be.AppendUint64(be.AppendUint64(nil, swapAdd), compare)
}

const (
	signaled  = 0x08
	solicited = 0x02

	opNop, opSendInv, opWrite, opWriteImm, opSend, opSendImm, opRead, opCAS, opFAA, opUMR = 0, 1, 8, 9, 0xa, 0xb, 0x10, 0x11, 0x12, 0x25
)

// put writes a request into the ring.
func (q *pair) put(opcode, flags uint8, imm uint32, segments ...[]byte) (index uint16, first uint64) {
	var b []byte
	ds := 1
	for _, s := range segments {
		ds += len(s) / 16
	}
	index = q.pi
	b = be.AppendUint32(b, uint32(index)<<8|uint32(opcode))
	b = be.AppendUint32(b, q.qpn<<8|uint32(ds))
	b = append(b, 0, 0, 0, flags)
	b = be.AppendUint32(b, imm)
	for _, s := range segments {
		b = append(b, s...)
	}
	return index, q.raw(b)
}

// raw writes the bytes of a request into the ring.
func (q *pair) raw(b []byte) (first uint64) {
	send := q.b[q.receives<<q.shift:]
	start := int(uint32(q.pi) % q.blocks * 64)
	copy(send, b[copy(send[start:], b):])
	q.pi += uint16((len(b) + 63) / 64)
	store(q.db[4:], uint32(q.pi))
	return be.Uint64(b)
}

// ring rings the doorbell.
func (q *pair) ring(first uint64) {
	off := q.register
	if q.toggle {
		off += 0x100
	}
	q.toggle = !q.toggle
	q.c.f.Ring(q.page, int(off), first)
}

// post is put and ring.
func (q *pair) post(opcode, flags uint8, imm uint32, segments ...[]byte) uint16 {
	index, first := q.put(opcode, flags, imm, segments...)
	q.ring(first)
	return index
}

// recv posts a receive.
func (q *pair) recv(segments ...[]byte) uint16 {
	slot := q.b[uint32(q.recvPI)%q.receives<<q.shift:][:1<<q.shift]
	n := 0
	for _, s := range segments {
		n += copy(slot[n:], s)
	}
	if n < len(slot) {
		be.PutUint32(slot[n:], 0)
		be.PutUint32(slot[n+4:], 0x100)
		be.PutUint64(slot[n+8:], 0)
	}
	q.recvPI++
	store(q.db, uint32(q.recvPI))
	return q.recvPI - 1
}

// two are two devices with a connected queue pair each.
type two struct {
	m      *model.Model
	a, b   *client
	qa, qb *pair
	ma, mb *region
}

func newTwo(t testing.TB, typ uint64, cq cqOptions, qp qpOptions, p path) *two {
	t.Helper()
	w := &two{m: newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "sim1"})}
	w.a, w.b = open(t, w.m, "sim0"), open(t, w.m, "sim1")
	w.qa = w.a.qp(typ, w.a.cq(32, cq), w.a.cq(64, cq), qp)
	w.qb = w.b.qp(typ, w.b.cq(32, cq), w.b.cq(64, cq), qp)
	w.ma, w.mb = w.a.mr(1<<16, allAccess), w.b.mr(1<<16, allAccess)
	connect(w.qa, w.qb, p)
	return w
}
