package model_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// The client is a program as the tests need it: it makes requests and queues byte by
// byte, without package mlx5.

var (
	ne = binary.NativeEndian
	be = binary.BigEndian
)

// attr is an attribute of a request.
type attr struct {
	id   uint16
	in   []byte // inputs; inline up to eight bytes
	out  []byte // where an output goes
	data uint64 // handles and descriptors
	kind int
	got  *uint64
}

const (
	kindIn = iota
	kindOut
	kindObject
)

func in(id uint16, b []byte) attr  { return attr{id: id, in: b, kind: kindIn} }
func out(id uint16, b []byte) attr { return attr{id: id, out: b, kind: kindOut} }
func object(id uint16, handle uint32) attr {
	return attr{id: id, data: uint64(handle), kind: kindObject}
}
func fresh(id uint16, handle *uint64) attr { return attr{id: id, got: handle, kind: kindObject} }
func u32(v uint32) []byte                  { return ne.AppendUint32(nil, v) }
func u64(v uint64) []byte                  { return ne.AppendUint64(nil, v) }
func write(number uint32, a ...attr) []attr {
	return append([]attr{in(abi.UVERBS_ATTR_WRITE_CMD, u64(uint64(number)))}, a...)
}
func core(b []byte) attr    { return in(abi.UVERBS_ATTR_CORE_IN, b) }
func coreOut(b []byte) attr { return out(abi.UVERBS_ATTR_CORE_OUT, b) }
func uhw(b []byte) attr     { return in(abi.UVERBS_ATTR_UHW_IN, b) }
func uhwOut(b []byte) attr  { return out(abi.UVERBS_ATTR_UHW_OUT, b) }

// ioctl makes a request of bytes and runs it.
func ioctl(f *model.File, object, method uint16, attrs ...attr) error {
	const header, size, mandatory = 24, 16, 1
	b := make([]byte, header+size*len(attrs))
	ne.PutUint16(b, uint16(len(b)))
	ne.PutUint16(b[2:], object)
	ne.PutUint16(b[4:], method)
	ne.PutUint16(b[6:], uint16(len(attrs)))
	ne.PutUint32(b[16:], 1) // RDMA_DRIVER_MLX5
	copies := make([][]byte, len(attrs))
	for i, a := range attrs {
		r := b[header+size*i:]
		ne.PutUint16(r, a.id)
		ne.PutUint16(r[4:], mandatory)
		switch {
		case a.kind == kindObject:
			ne.PutUint64(r[8:], a.data)
			continue
		case a.kind == kindIn && len(a.in) <= 8:
			ne.PutUint16(r[2:], uint16(len(a.in)))
			copy(r[8:16], a.in)
			continue
		case a.kind == kindIn:
			copies[i] = append(onHeap(len(a.in))[:0], a.in...)
		default:
			copies[i] = onHeap(max(1, len(a.out)))[:len(a.out)]
		}
		ne.PutUint16(r[2:], uint16(len(copies[i])))
		ne.PutUint64(r[8:], at(copies[i]))
	}
	err := f.Ioctl(b)
	runtime.KeepAlive(copies)
	for i, a := range attrs {
		switch {
		case a.kind == kindOut:
			copy(a.out, copies[i])
		case a.got != nil:
			*a.got = ne.Uint64(b[header+size*i+8:])
		}
	}
	return err
}

func wantErrno(t testing.TB, what string, err error, want request.Errno) {
	t.Helper()
	if got := request.ErrnoOf(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

// client is a verbs context.
type client struct {
	t     testing.TB
	m     *model.Model
	d     *model.Device
	f     *model.File
	async *model.EventQueue
	ncID  uint32 // UAR at which queues are armed and rung
	pd    uint32
	uidx  uint32
	ctx   abi.MLX5IBAllocUcontextResp
}

// newModel makes a fabric of n RoCE devices sim0, sim1 ...
func newModel(t testing.TB, configs ...model.DeviceConfig) *model.Model {
	t.Helper()
	m, err := model.New(configs...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (c *client) must(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

// open opens a device with dynamic UARs and makes a PD.
func open(t testing.TB, m *model.Model, name string) *client {
	t.Helper()
	return openWith(t, m, name, nil)
}

func openWith(t testing.TB, m *model.Model, name string, o *model.OpenOptions) *client {
	t.Helper()
	return openIn(t, m, name, model.Local{}, o)
}

func openIn(t testing.TB, m *model.Model, name string, mem model.Memory, o *model.OpenOptions) *client {
	t.Helper()
	c := &client{t: t, m: m, d: m.Device(name)}
	var err error
	c.f, err = c.d.Open(mem, o)
	c.must("open", err)
	req := abi.MLX5IBAllocUcontextReqV2{TotalNumBfregs: 16, NumLowLatencyBfregs: 4, MaxCQEVersion: 1, LibCaps: 3}
	resp := make([]byte, abi.SizeofMLX5IBAllocUcontextResp)
	c.must("GET_CONTEXT", ioctl(c.f, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT,
		out(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, make([]byte, 4)), out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, make([]byte, 8)),
		uhw(req.Bytes()), uhwOut(resp)))
	copy(c.ctx.Bytes(), resp)
	var fd uint64
	c.must("ASYNC_EVENT_ALLOC", ioctl(c.f, abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, fresh(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, &fd)))
	c.async = c.f.EventQueue(int32(fd))
	if c.ctx.TotBfregs == 0 {
		c.ncID, _ = c.uar(uint64(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC))
	}
	c.pd = c.allocPD()
	return c
}

func (c *client) allocPD() uint32 {
	c.t.Helper()
	b := make([]byte, 4)
	c.must("ALLOC_PD", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_ALLOC_PD, core(make([]byte, 8)), coreOut(b), uhwOut(make([]byte, 4)))...))
	return ne.Uint32(b)
}

// uar makes a UAR and checks that it can be mapped.
func (c *client) uar(typ uint64) (id, handle uint32) {
	c.t.Helper()
	var h uint64
	offset, length, page := make([]byte, 8), make([]byte, 4), make([]byte, 4)
	c.must("UAR ALLOC", ioctl(c.f, abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC,
		fresh(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, &h), in(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, u64(typ)),
		out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset), out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length), out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page)))
	p, err := c.f.Map(int64(ne.Uint64(offset)), int(ne.Uint32(length)), true)
	c.must("map of a UAR", err)
	if p.Kind != model.MapRegisters || p.ID != ne.Uint32(page) {
		c.t.Fatalf("the mapping is of UAR %#x, not %#x", p.ID, ne.Uint32(page))
	}
	return p.ID, uint32(h)
}

// region is registered memory.
type region struct {
	b      []byte
	addr   uint64
	key    uint32
	handle uint32
}

const (
	localWrite   = 1
	remoteWrite  = 2
	remoteRead   = 4
	remoteAtomic = 8
	mwBind       = 16
	allAccess    = 15
)

func (c *client) mr(n int, access uint32) *region {
	c.t.Helper()
	return c.mrIn(c.pd, n, access)
}

func (c *client) mrIn(pd uint32, n int, access uint32) *region {
	c.t.Helper()
	r := &region{b: pages(c.t, n)}
	r.addr = at(r.b)
	q := abi.UverbsRegMR{Start: r.addr, Length: uint64(n), HCAVA: r.addr, PDHandle: pd, AccessFlags: access}
	var resp abi.UverbsRegMRResp
	b := make([]byte, abi.SizeofUverbsRegMRResp)
	c.must("REG_MR", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_REG_MR, core(q.Bytes()), coreOut(b))...))
	copy(resp.Bytes(), b)
	r.key, r.handle = resp.LKey, resp.MRHandle
	return r
}

// cqOptions are what a completion queue of the tests can be.
type cqOptions struct {
	size       uint32 // of an entry: 64
	channel    bool
	compress   bool
	oi         bool
	timestamps bool
	realTime   bool
	dirty      bool // leave the owner bytes alone
}

// ring is a completion queue of the client.
type ring struct {
	c       *client
	b       []byte
	db      []byte
	n, size uint32
	ci      uint32
	cqn     uint32
	handle  uint32
	user    uint64
	channel *model.EventQueue
	serial  uint32
}

func newRing(t testing.TB, n, size uint32) []byte {
	b := pages(t, int(n*size))
	for i := range n {
		b[(i+1)*size-1] = 0xf0
	}
	return b
}

func (c *client) cq(n uint32, o cqOptions) *ring {
	c.t.Helper()
	q := &ring{c: c, n: n, size: 64, db: pages(c.t, 64), user: 0xc0ffee00 + uint64(n)}
	if o.size != 0 {
		q.size = o.size
	}
	q.b = newRing(c.t, n, q.size)
	if o.dirty {
		clear(q.b)
	}
	u := abi.MLX5IBCreateCQ{BufAddr: at(q.b), DBAddr: at(q.db), CQESize: q.size, Flags: 2, UARPageIndex: uint16(c.ncID)}
	if c.ctx.TotBfregs > 0 {
		u.Flags, u.UARPageIndex = 0, 0
	}
	if o.compress {
		u.CQECompEn, u.CQECompResFormat = 1, 1
	}
	if o.realTime {
		u.Flags |= 4
	}
	var h uint64
	resp := make([]byte, 8)
	attrs := []attr{
		fresh(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, &h), in(abi.UVERBS_ATTR_CREATE_CQ_CQE, u32(n-1)), in(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, u64(q.user)),
		in(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, u32(0)), out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, make([]byte, 4)), uhw(u.Bytes()), uhwOut(resp),
	}
	flags := uint32(0)
	if o.timestamps {
		flags |= 1
	}
	if o.oi {
		flags |= 2
	}
	if flags != 0 {
		attrs = append(attrs, in(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, u32(flags)))
	}
	if o.channel {
		b := make([]byte, 4)
		c.must("CREATE_COMP_CHANNEL", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, core(make([]byte, 8)), coreOut(b))...))
		q.channel = c.f.EventQueue(int32(ne.Uint32(b)))
		attrs = append(attrs, object(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, ne.Uint32(b)))
	}
	c.must("CQ CREATE", ioctl(c.f, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, attrs...))
	q.handle, q.cqn = uint32(h), ne.Uint32(resp)
	return q
}

// cqe is a completion as the client reads it.
type cqe struct {
	opcode, format, sendOp uint8
	qpn, uidx, bytes, imm  uint32
	counter                uint16
	syndrome, vendor       uint8
	source                 uint32
	solicited              bool
	stamp                  uint64
	raw                    []byte
	before                 []byte
}

// peek reads the entry at an index, if it is the program's.
func (q *ring) peek(index uint32) (c cqe, ok bool) {
	e := q.b[index%q.n*q.size:][:q.size]
	b := e[q.size-64:]
	own := load(b[60:])[3]
	if own>>4 == 15 || uint32(own&1) != index/q.n&1 {
		return c, false
	}
	return cqe{
		opcode: b[63] >> 4, format: b[63] & 0xc, solicited: b[63]&2 != 0, sendOp: b[56], qpn: be.Uint32(b[56:]) & 0xffffff,
		uidx: be.Uint32(b[32:]), bytes: be.Uint32(b[44:]), imm: be.Uint32(b[36:]), counter: be.Uint16(b[60:]),
		syndrome: b[55], vendor: b[54], source: be.Uint32(b[24:]), stamp: be.Uint64(b[48:]),
		raw: append([]byte(nil), b...), before: append([]byte(nil), e[:q.size-64]...),
	}, true
}

// poll takes one completion.
func (q *ring) poll() (cqe, bool) {
	c, ok := q.peek(q.ci)
	if ok {
		q.ci++
		store(q.db, q.ci&0xffffff)
	}
	return c, ok
}

// all takes all completions.
func (q *ring) all() (list []cqe) {
	for {
		c, ok := q.poll()
		if !ok {
			return list
		}
		list = append(list, c)
	}
}

// one takes the one completion that there is.
func (q *ring) one() cqe {
	q.c.t.Helper()
	c, ok := q.poll()
	if !ok {
		q.c.t.Fatal("there is no completion")
	}
	return c
}

func (q *ring) none() {
	q.c.t.Helper()
	if c, ok := q.poll(); ok {
		q.c.t.Fatalf("a completion too many: %+v", c)
	}
}

// arm asks for an event, any or solicited.
func (q *ring) arm(solicited bool) {
	word := q.serial&3<<28 | q.ci&0xffffff
	if solicited {
		word |= 1 << 24
	}
	store(q.db[4:], word)
	q.c.f.Ring(q.c.ncID, 0x20, uint64(word)<<32|uint64(q.cqn))
}

// event reads a completion event if there is one.
func (q *ring) event() bool {
	q.c.t.Helper()
	var b [8]byte
	_, err := q.channel.Read(b[:])
	if errors.Is(err, request.EAGAIN) {
		return false
	}
	if err != nil || ne.Uint64(b[:]) != q.user {
		q.c.t.Fatalf("event of %#x: %v", ne.Uint64(b[:]), err)
	}
	q.serial++
	return true
}

// asyncEvent reads an asynchronous event if there is one.
func (c *client) asyncEvent() (element uint64, typ uint32, ok bool) {
	c.t.Helper()
	var b [16]byte
	if _, err := c.async.Read(b[:]); err != nil {
		if !errors.Is(err, request.EAGAIN) {
			c.t.Fatal(err)
		}
		return 0, 0, false
	}
	return ne.Uint64(b[:]), ne.Uint32(b[8:]), true
}

func (c *client) wantAsync(element uint64, typ uint32) {
	c.t.Helper()
	if e, ty, ok := c.asyncEvent(); !ok || ty != typ || e != element {
		c.t.Fatalf("asynchronous event %d of %#x (%v), want %d of %#x", ty, e, ok, typ, element)
	}
}

// noViolations fails the test if the client did what a program should not.
func noViolations(t testing.TB, m *model.Model) {
	t.Helper()
	for _, v := range m.Violations() {
		t.Error("violation:", v)
	}
}
