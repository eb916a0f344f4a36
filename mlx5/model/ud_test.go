package model_test

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

const qkey = 0x1234

func (q *pair) readyUD() {
	q.c.t.Helper()
	q.c.must("INIT", q.modify(abi.UverbsModifyQP{AttrMask: initMaskUD, QPState: stateInit, PortNum: 1, QKey: qkey}))
	q.c.must("RTR", q.modify(modifyTo(stateRTR)))
	q.c.must("RTS", q.modify(abi.UverbsModifyQP{AttrMask: 1 | 1<<16, QPState: stateRTS}))
}

// av is an address vector.
type av struct {
	qkey, dqpn uint32
	slRate     uint8
	dlid       uint16
	mac        [6]byte
	class, hop uint8
	grh        uint32
	gid        [16]byte
}

func (a av) bytes() []byte {
	b := make([]byte, 48)
	be.PutUint32(b, a.qkey)
	be.PutUint32(b[8:], a.dqpn|1<<31)
	b[12] = a.slRate
	be.PutUint16(b[14:], a.dlid)
	copy(b[20:], a.mac[:])
	b[26], b[27] = a.class, a.hop
	be.PutUint32(b[28:], a.grh)
	copy(b[32:], a.gid[:])
	return b
}

// createAH has the kernel resolve an address.
func (c *client) createAH(gid [16]byte, index uint8) (mac [6]byte, err error) {
	r := abi.UverbsCreateAH{PDHandle: c.pd, Attr: abi.UverbsAHAttr{IsGlobal: 1, PortNum: 1, GRH: abi.UverbsGlobalRoute{DGID: gid, SGIDIndex: index}}}
	u := make([]byte, 16)
	err = ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_CREATE_AH, core(r.Bytes()), coreOut(make([]byte, 4)), uhwOut(u))...)
	copy(mac[:], u[4:])
	return mac, err
}

func newUD(t *testing.T, port model.PortConfig) *two {
	t.Helper()
	w := &two{m: newModel(t, model.DeviceConfig{Name: "sim0", Ports: []model.PortConfig{port}}, model.DeviceConfig{Name: "sim1", Ports: []model.PortConfig{port}})}
	w.a, w.b = open(t, w.m, "sim0"), open(t, w.m, "sim1")
	w.qa = w.a.qp(ud, w.a.cq(32, cqOptions{}), w.a.cq(64, cqOptions{}), qpOptions{})
	w.qb = w.b.qp(ud, w.b.cq(32, cqOptions{}), w.b.cq(64, cqOptions{}), qpOptions{})
	w.ma, w.mb = w.a.mr(1<<16, allAccess), w.b.mr(1<<16, allAccess)
	w.qa.readyUD()
	w.qb.readyUD()
	return w
}

func TestDatagrams(t *testing.T) {
	for _, c := range []struct {
		name   string
		index  uint8
		dlid   uint16
		source uint32 // flags_rqpn above the QPN
		header func(w *two, src, dst [16]byte) []byte
	}{
		{"RoCE v1", 0, 0, 1 << 28, func(w *two, src, dst [16]byte) []byte {
			return append(append([]byte{0x6a, 0xb0, 0, 7, 0, 32 + 5, 0x1b, 9}, src[:]...), dst[:]...)
		}},
		{"RoCE v2 on IPv6", 1, 0xc123, 1<<28 | 1<<24, func(w *two, src, dst [16]byte) []byte {
			return append(append([]byte{0x6a, 0xb0, 0, 7, 0, 32 + 5, 17, 9}, src[:]...), dst[:]...)
		}},
		{"RoCE v2 on IPv4", 2, 0xc123, 1<<28 | 2<<24, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newUD(t, model.PortConfig{})
			src, dst := w.a.gid(uint64(c.index)), w.b.gid(uint64(c.index))
			mac, err := w.a.createAH(dst, c.index)
			w.a.must("CREATE_AH", err)
			to := av{qkey: qkey, dqpn: w.qb.qpn, dlid: c.dlid, mac: mac, class: 0xab, hop: 9, grh: uint32(c.index)<<20 | 7, gid: dst}
			r := w.qb.recv(sge(w.mb, 0, 40), sge(w.mb, 1000, 100))
			i := w.qa.post(opSendImm, signaled, 0x1020, to.bytes(), inline("hello"))
			got := checkRecv(t, w.qb, w.qa, 3, r, 45, 0x1020)
			checkSend(t, w.qa, opSendImm, i, 0)
			if got.source>>24<<24 != c.source {
				t.Errorf("flags_rqpn %#x, want %#x", got.source, c.source)
			}
			if string(w.mb.b[1000:1005]) != "hello" {
				t.Errorf("data %q", w.mb.b[1000:1005])
			}
			if c.header != nil {
				if want := c.header(w, src, dst); !bytes.Equal(w.mb.b[:40], want) {
					t.Errorf("header %x, want %x", w.mb.b[:40], want)
				}
			} else if h := w.mb.b[20:40]; h[0] != 0x45 || !bytes.Equal(h[12:16], src[12:]) || !bytes.Equal(h[16:20], dst[12:]) || sum(h) != 0xffff || be.Uint16(h[2:]) != 20+32+5 {
				t.Errorf("header %x", h)
			}
			noViolations(t, w.m)

			// What is lost on the way, or dropped there, has succeeded here.
			bad := to
			bad.qkey++
			lost := []av{bad}
			bad = to
			bad.dqpn++
			lost = append(lost, bad)
			bad = to
			bad.mac[5]++
			lost = append(lost, bad)
			bad = to
			bad.gid[15]++
			lost = append(lost, bad)
			w.qb.recv(sge(w.mb, 0, 40))
			for _, a := range lost {
				checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0, a.bytes()), 0)
				w.qb.rcq.none()
			}
			// A Q_Key with the highest bit stands for the queue pair's own.
			own := to
			own.qkey = 1 << 31
			w.qa.post(opSend, 0, 0, own.bytes())
			w.qb.rcq.one()
			// Without a receive it is dropped.
			checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0, to.bytes()), 0)
			w.qb.rcq.none()
		})
	}
}

// sum is the ones' complement sum of a header.
func sum(b []byte) (s uint32) {
	for i := 0; i < len(b); i += 2 {
		s += uint32(be.Uint16(b[i:]))
	}
	return s&0xffff + s>>16
}

func TestDatagramsOnInfiniBand(t *testing.T) {
	w := newUD(t, model.PortConfig{InfiniBand: true})
	port := make([]byte, abi.SizeofUverbsQueryPortRespEx)
	w.b.must("QUERY_PORT", ioctl(w.b.f, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT, in(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, u64(1)), out(abi.UVERBS_ATTR_QUERY_PORT_RESP, port)))
	lid := ne.Uint16(port[22:])
	to := av{qkey: qkey, dqpn: w.qb.qpn, slRate: 5, dlid: lid}
	r := w.qb.recv(sge(w.mb, 0, 200))
	w.qa.post(opSend, 0, 0, to.bytes(), inline("plain"))
	if c := checkRecv(t, w.qb, w.qa, 2, r, 45, 0); c.source>>24 != 5 || be.Uint16(c.raw[22:]) == 0 {
		t.Errorf("flags_rqpn %#x, slid %d", c.source, be.Uint16(c.raw[22:]))
	}
	to.grh, to.gid = 1<<30, w.b.gid(0)
	r = w.qb.recv(sge(w.mb, 0, 200))
	w.qa.post(opSend, 0, 0, to.bytes(), inline("global"))
	if c := checkRecv(t, w.qb, w.qa, 2, r, 46, 0); c.source>>24 != 0x15 {
		t.Errorf("flags_rqpn %#x", c.source)
	}
	noViolations(t, w.m)
}

// A connection on InfiniBand goes by LIDs.
func TestRCOnInfiniBand(t *testing.T) {
	ib := []model.PortConfig{{InfiniBand: true, LID: 17}}
	m := newModel(t, model.DeviceConfig{Name: "sim0", Ports: ib}, model.DeviceConfig{Name: "sim1", Ports: []model.PortConfig{{InfiniBand: true, LID: 18}}})
	a, b := open(t, m, "sim0"), open(t, m, "sim1")
	qa, qb := a.qp(rc, a.cq(32, cqOptions{}), a.cq(64, cqOptions{}), qpOptions{}), b.qp(rc, b.cq(32, cqOptions{}), b.cq(64, cqOptions{}), qpOptions{})
	qa.init(usual)
	qb.init(usual)
	qa.joinTo(abi.UverbsQPDest{DLID: 18, SL: 3, PortNum: 1}, qb.qpn, usual)
	qb.joinTo(abi.UverbsQPDest{DLID: 17, SL: 3, PortNum: 1}, qa.qpn, usual)
	r := qb.recv()
	qa.post(opSend, 0, 0)
	if c := checkRecv(t, qb, qa, 2, r, 0, 0); c.source>>24 != 3 || be.Uint16(c.raw[22:]) != 17 {
		t.Errorf("flags_rqpn %#x, slid %d", c.source, be.Uint16(c.raw[22:]))
	}
}

func TestDatagramErrors(t *testing.T) {
	w := newUD(t, model.PortConfig{MTU: 1024})
	dst := w.b.gid(2)
	mac, err := w.a.createAH(dst, 2)
	w.a.must("CREATE_AH", err)
	to := av{qkey: qkey, dqpn: w.qb.qpn, dlid: 0xc000, mac: mac, grh: 2 << 20, gid: dst}
	again := func() {
		t.Helper()
		if w.qa.state() != stateSQE {
			t.Fatalf("state %d", w.qa.state())
		}
		w.qa.to(stateRTS)
	}
	// Beyond the MTU; what follows is flushed, and RTS mends it.
	i, first := w.qa.put(opSend, 0, 0, to.bytes(), sge(w.ma, 0, 1025))
	i2, first2 := w.qa.put(opSend, 0, 0, to.bytes())
	_ = first
	w.qa.ring(first2)
	checkError(t, w.qa.scq, 13, w.qa.qpn, i, 0x01, 0x6a)
	checkError(t, w.qa.scq, 13, w.qa.qpn, i2, 0x05, 0xf9)
	again()
	// An address that is no entry of the GID table.
	bad := to
	bad.grh = 9 << 20
	checkError(t, w.qa.scq, 13, w.qa.qpn, w.qa.post(opSend, 0, 0, bad.bytes()), 0x02, 0x74)
	again()
	// The GRH bit is InfiniBand's.
	bad = to
	bad.grh |= 1 << 30
	checkError(t, w.qa.scq, 13, w.qa.qpn, w.qa.post(opSend, 0, 0, bad.bytes()), 0x02, 0x77)
	again()
	// What UD has not.
	checkError(t, w.qa.scq, 13, w.qa.qpn, w.qa.post(opWrite, 0, 0, to.bytes(), raddr(w.mb, 0)), 0x02, 0x6d)
	again()
	// A receive without room for the header.
	w.qb.recv(sge(w.mb, 0, 39))
	checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0, to.bytes()), 0)
	checkError(t, w.qb.rcq, 14, w.qb.qpn, 0, 0x01, 0xd4)
	if w.qb.state() != stateErr {
		t.Errorf("state %d", w.qb.state())
	}
	if _, err := w.a.createAH([16]byte{0x20, 1}, 2); err == nil {
		t.Error("an address that nobody has was resolved")
	}
}

// Q_Keys with the highest bit set are for the privileged.
func TestPrivilegedQKey(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	for _, privileged := range []bool{false, true} {
		c := openWith(t, m, "sim0", &model.OpenOptions{Privileged: privileged})
		q := c.qp(ud, c.cq(8, cqOptions{}), c.cq(8, cqOptions{}), qpOptions{})
		want := request.EPERM
		if privileged {
			want = 0
		}
		wantErrno(t, "Q_Key", q.modify(abi.UverbsModifyQP{AttrMask: initMaskUD, QPState: stateInit, PortNum: 1, QKey: 1 << 31}), want)
	}
}

func TestUC(t *testing.T) {
	w := newTwo(t, uc, cqOptions{}, qpOptions{}, usual)
	copy(w.ma.b, "unreliable")
	r := w.qb.recv(sge(w.mb, 0, 100))
	i := w.qa.post(opSend, signaled, 0, sge(w.ma, 0, 10))
	checkRecv(t, w.qb, w.qa, 2, r, 10, 0)
	checkSend(t, w.qa, opSend, i, 0)
	checkSend(t, w.qa, opWrite, w.qa.post(opWrite, signaled, 0, raddr(w.mb, 100), sge(w.ma, 0, 10)), 0)
	if string(w.mb.b[:10]) != "unreliable" || string(w.mb.b[100:110]) != "unreliable" {
		t.Errorf("data %q, %q", w.mb.b[:10], w.mb.b[100:110])
	}
	// No receive, one that is too small, a bad key: lost, and nobody hears of it.
	checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0), 0)
	r = w.qb.recv(sge(w.mb, 0, 4))
	checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0, sge(w.ma, 0, 10)), 0)
	checkSend(t, w.qa, opWrite, w.qa.post(opWrite, signaled, 0, raddr(&region{key: 9}, 0), sge(w.ma, 0, 10)), 0)
	w.qb.rcq.none()
	// The receive is still there.
	checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0, sge(w.ma, 0, 4)), 0)
	checkRecv(t, w.qb, w.qa, 2, r, 4, 0)
	// What UC has not; then it goes on receiving.
	checkError(t, w.qa.scq, 13, w.qa.qpn, w.qa.post(opRead, 0, 0, raddr(w.mb, 0), sge(w.ma, 0, 8)), 0x02, 0x6d)
	if w.qa.state() != stateSQE {
		t.Errorf("state %d", w.qa.state())
	}
	r = w.qa.recv()
	w.qb.post(opSend, 0, 0)
	checkRecv(t, w.qa, w.qb, 2, r, 0, 0)
	w.qa.to(stateRTS)
	w.qb.recv()
	checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0), 0)
	noViolations(t, w.m)
}
