package nldev

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/abi"
	"github.com/mdlayher/netlink"
)

// plain is a nested table as the kernel sends those of objects: without the
// flag that says so.
func plain(typ uint16, attrs ...netlink.Attribute) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: pack(attrs...)}
}

// answer is one answer about objects of device 3.
func answer(t objectTable, entries ...[]netlink.Attribute) []byte {
	var all []netlink.Attribute
	for _, e := range entries {
		all = append(all, plain(t.entry, e...))
	}
	return pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 3), str(abi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe3"), plain(t.table, all...))
}

type attrs = []netlink.Attribute

// sockaddrs has what the kernel sends of an address: 128 bytes.
func sockaddr(typ, family, port uint16, at int, addr []byte, zone uint32) netlink.Attribute {
	b := make([]byte, 128)
	binary.NativeEndian.PutUint16(b, family)
	binary.BigEndian.PutUint16(b[2:], port)
	copy(b[at:], addr)
	if zone != 0 {
		binary.NativeEndian.PutUint32(b[24:], zone)
	}
	return netlink.Attribute{Type: typ, Data: b}
}

// The objects that Linux 6.12 lists while programs run, as it lists them.
var (
	contextEntries = []attrs{{u32(abi.RDMA_NLDEV_ATTR_RES_CTXN, 0), u32(abi.RDMA_NLDEV_ATTR_RES_PID, 173)}, {u32(abi.RDMA_NLDEV_ATTR_RES_CTXN, 7)}}
	pdEntries      = []attrs{
		{u64(abi.RDMA_NLDEV_ATTR_RES_USECNT, 3), u32(abi.RDMA_NLDEV_ATTR_RES_PDN, 0), str(abi.RDMA_NLDEV_ATTR_RES_KERN_NAME, "ib_core")},
		{u32(abi.RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY, 0), u64(abi.RDMA_NLDEV_ATTR_RES_USECNT, 2), u32(abi.RDMA_NLDEV_ATTR_RES_PDN, 5), u32(abi.RDMA_NLDEV_ATTR_RES_CTXN, 2), u32(abi.RDMA_NLDEV_ATTR_RES_PID, 175)},
	}
	cqEntries = []attrs{
		{u32(abi.RDMA_NLDEV_ATTR_RES_CQE, 255), u64(abi.RDMA_NLDEV_ATTR_RES_USECNT, 4), u8(abi.RDMA_NLDEV_ATTR_RES_POLL_CTX, 2), u8(abi.RDMA_NLDEV_ATTR_DEV_DIM, 1), u32(abi.RDMA_NLDEV_ATTR_RES_CQN, 0), str(abi.RDMA_NLDEV_ATTR_RES_KERN_NAME, "ib_core")},
		{u32(abi.RDMA_NLDEV_ATTR_RES_CQE, 511), u64(abi.RDMA_NLDEV_ATTR_RES_USECNT, 2), u8(abi.RDMA_NLDEV_ATTR_DEV_DIM, 0), u32(abi.RDMA_NLDEV_ATTR_RES_CQN, 3), u32(abi.RDMA_NLDEV_ATTR_RES_CTXN, 2), u32(abi.RDMA_NLDEV_ATTR_RES_PID, 175), u32(1000, 7)},
	}
	qpEntries = []attrs{{
		u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1), u32(abi.RDMA_NLDEV_ATTR_RES_LQPN, 17), u32(abi.RDMA_NLDEV_ATTR_RES_PDN, 5), u32(abi.RDMA_NLDEV_ATTR_RES_RQPN, 18),
		u32(abi.RDMA_NLDEV_ATTR_RES_RQ_PSN, 100), u32(abi.RDMA_NLDEV_ATTR_RES_SQ_PSN, 200), u8(abi.RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, 0), u8(abi.RDMA_NLDEV_ATTR_RES_TYPE, 2),
		u8(abi.RDMA_NLDEV_ATTR_RES_STATE, 3), u32(abi.RDMA_NLDEV_ATTR_RES_PID, 175),
	}, {
		u32(abi.RDMA_NLDEV_ATTR_RES_LQPN, 1), u8(abi.RDMA_NLDEV_ATTR_RES_TYPE, 1), u8(abi.RDMA_NLDEV_ATTR_RES_STATE, 200), str(abi.RDMA_NLDEV_ATTR_RES_KERN_NAME, "ib_core"),
		str(abi.RDMA_NLDEV_ATTR_RES_SUBTYPE, "REG_DCT"),
	}}
	mrEntries = []attrs{
		{u64(abi.RDMA_NLDEV_ATTR_RES_MRLEN, 1<<40), u32(abi.RDMA_NLDEV_ATTR_RES_MRN, 9), u32(abi.RDMA_NLDEV_ATTR_RES_PDN, 5), u32(abi.RDMA_NLDEV_ATTR_RES_PID, 175)},
		{u32(abi.RDMA_NLDEV_ATTR_RES_RKEY, 0x1234), u32(abi.RDMA_NLDEV_ATTR_RES_LKEY, 0x1200), u64(abi.RDMA_NLDEV_ATTR_RES_MRLEN, 4096), u32(abi.RDMA_NLDEV_ATTR_RES_MRN, 10), u32(abi.RDMA_NLDEV_ATTR_RES_PDN, 5), u32(abi.RDMA_NLDEV_ATTR_RES_PID, 175)},
	}
	srqEntries = []attrs{{
		u32(abi.RDMA_NLDEV_ATTR_RES_SRQN, 4), u8(abi.RDMA_NLDEV_ATTR_RES_TYPE, 1), u32(abi.RDMA_NLDEV_ATTR_RES_PDN, 5), u32(abi.RDMA_NLDEV_ATTR_RES_CQN, 3),
		plain(abi.RDMA_NLDEV_ATTR_RES_QP, plain(abi.RDMA_NLDEV_ATTR_RES_QP_ENTRY, u32(abi.RDMA_NLDEV_ATTR_RES_LQPN, 17)),
			plain(abi.RDMA_NLDEV_ATTR_RES_QP_ENTRY, u32(abi.RDMA_NLDEV_ATTR_MIN_RANGE, 20), u32(abi.RDMA_NLDEV_ATTR_MAX_RANGE, 29))),
		u32(abi.RDMA_NLDEV_ATTR_RES_PID, 175),
	}}
	cmidEntries = []attrs{{
		u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1), u32(abi.RDMA_NLDEV_ATTR_RES_LQPN, 17), u8(abi.RDMA_NLDEV_ATTR_RES_TYPE, 2), u32(abi.RDMA_NLDEV_ATTR_RES_PS, 262), u8(abi.RDMA_NLDEV_ATTR_RES_STATE, 5),
		sockaddr(abi.RDMA_NLDEV_ATTR_RES_SRC_ADDR, 2, 7471, 4, []byte{10, 0, 0, 1}, 0), sockaddr(abi.RDMA_NLDEV_ATTR_RES_DST_ADDR, 2, 40000, 4, []byte{10, 0, 0, 2}, 0),
		u32(abi.RDMA_NLDEV_ATTR_RES_CM_IDN, 6), u32(abi.RDMA_NLDEV_ATTR_RES_PID, 175),
	}, {
		u32(abi.RDMA_NLDEV_ATTR_RES_PS, 262), u8(abi.RDMA_NLDEV_ATTR_RES_STATE, 8), u32(abi.RDMA_NLDEV_ATTR_RES_CM_IDN, 7), str(abi.RDMA_NLDEV_ATTR_RES_KERN_NAME, "rdma_ucm"),
		sockaddr(abi.RDMA_NLDEV_ATTR_RES_SRC_ADDR, 10, 7471, 8, []byte{0xfe, 0x80, 15: 1}, 2), sockaddr(abi.RDMA_NLDEV_ATTR_RES_DST_ADDR, 27, 1, 8, nil, 0),
	}}
)

// list asks a Conn that answers in two parts, and checks question and answer.
func list[T any](t *testing.T, table objectTable, entries []attrs, list func(*Conn) ([]T, error), want ...T) {
	t.Helper()
	ask := pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 3))
	got, err := list(answering(t, table.op, netlink.Dump, ask, answer(table, entries[:1]...), answer(table, entries[1:]...)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
		t.Errorf("%s (-want +got):\n%s", table.kind, d)
	}
	if got, err := list(answering(t, table.op, netlink.Dump, ask)); err != nil || len(got) != 0 {
		t.Errorf("no %s: %v, %v", table.kind, got, err)
	}
	other := answer(table, entries[0])
	binary.NativeEndian.PutUint32(other[4:], 2)
	if got, err := list(answering(t, table.op, netlink.Dump, ask, other)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%s of another device: %v, %v", table.kind, got, err)
	}
	_, err = list(refusing(syscall.EINVAL))
	if !errors.Is(err, syscall.EINVAL) || !strings.HasPrefix(err.Error(), "nldev: list the "+table.kind+" of device 3: ") {
		t.Errorf("refused: %v", err)
	}
}

func TestObjects(t *testing.T) {
	mine, kernels := Owner{TID: 175}, Owner{Kernel: "ib_core"}
	list(t, contextTable, contextEntries, func(c *Conn) ([]Context, error) { return c.Contexts(3) },
		Context{Owner: Owner{TID: 173}}, Context{ID: 7})
	list(t, pdTable, pdEntries, func(c *Conn) ([]PD, error) { return c.PDs(3) },
		PD{Owner: kernels, Users: 3}, PD{Owner: mine, ID: 5, Context: 2, Users: 2})
	list(t, cqTable, cqEntries, func(c *Conn) ([]CQ, error) { return c.CQs(3) },
		CQ{Owner: kernels, Depth: 255, Users: 4, AdaptiveModeration: true}, CQ{Owner: mine, ID: 3, Context: 2, Depth: 511, Users: 2})
	list(t, qpTable, qpEntries, func(c *Conn) ([]QP, error) { return c.QPs(3) },
		QP{Owner: mine, Num: 17, Port: 1, Type: QPRC, State: QPRTS, PD: 5, Remote: 18, RecvPSN: 100, SendPSN: 200},
		QP{Owner: kernels, Num: 1, Type: QPGSI, State: 200, Subtype: "REG_DCT"})
	list(t, mrTable, mrEntries, func(c *Conn) ([]MR, error) { return c.MRs(3) },
		MR{Owner: mine, ID: 9, Length: 1 << 40, PD: 5}, MR{Owner: mine, ID: 10, Length: 4096, PD: 5, LKey: 0x1200, RKey: 0x1234, HasKeys: true})
	list(t, srqTable, srqEntries, func(c *Conn) ([]SRQ, error) { return c.SRQs(3) },
		SRQ{Owner: mine, ID: 4, Type: SRQXRC, PD: 5, CQ: 3, QPs: [][2]uint32{{17, 17}, {20, 29}}})
	list(t, cmidTable, cmidEntries, func(c *Conn) ([]CMID, error) { return c.CMIDs(3) },
		CMID{Owner: mine, ID: 6, Port: 1, QP: 17, Type: QPRC, PortSpace: PortSpaceTCP, State: CMConnect, Local: netip.MustParseAddrPort("10.0.0.1:7471"), Peer: netip.MustParseAddrPort("10.0.0.2:40000")},
		CMID{Owner: Owner{Kernel: "rdma_ucm"}, ID: 7, PortSpace: PortSpaceTCP, State: CMListen, Local: netip.MustParseAddrPort("[fe80::1%2]:7471")})
}

// parsers are those of all kinds of objects, as one that forgets what it read.
var parsers = []struct {
	table   objectTable
	entries []attrs
	parse   func(b []byte) (objects int, owners []Owner, err error)
}{
	{contextTable, contextEntries, parser(contextTable, parseContext, func(x Context) Owner { return x.Owner })},
	{pdTable, pdEntries, parser(pdTable, parsePD, func(x PD) Owner { return x.Owner })},
	{cqTable, cqEntries, parser(cqTable, parseCQ, func(x CQ) Owner { return x.Owner })},
	{qpTable, qpEntries, parser(qpTable, parseQP, func(x QP) Owner { return x.Owner })},
	{mrTable, mrEntries, parser(mrTable, parseMR, func(x MR) Owner { return x.Owner })},
	{srqTable, srqEntries, parser(srqTable, parseSRQ, func(x SRQ) Owner { return x.Owner })},
	{cmidTable, cmidEntries, parser(cmidTable, parseCMID, func(x CMID) Owner { return x.Owner })},
}

func parser[T any](t objectTable, parse func(value) T, owner func(T) Owner) func(b []byte) (int, []Owner, error) {
	return func(b []byte) (int, []Owner, error) {
		all, err := appendObjects(nil, t, 3, b, parse)
		var owners []Owner
		for _, x := range all {
			owners = append(owners, owner(x))
		}
		return len(all), owners, err
	}
}

func TestGarbageObjects(t *testing.T) {
	for _, p := range parsers {
		whole := answer(p.table, p.entries...)
		for what, b := range map[string][]byte{
			"nothing":                nil,
			"no device":              pack(plain(p.table.table)),
			"no number":              answer(p.table, attrs{u32(abi.RDMA_NLDEV_ATTR_RES_PID, 1)}),
			"a short thread id":      answer(p.table, append(p.entries[0][:len(p.entries[0]):len(p.entries[0])], u8(abi.RDMA_NLDEV_ATTR_RES_PID, 1))),
			"an escape sequence":     answer(p.table, append(p.entries[0][:len(p.entries[0]):len(p.entries[0])], str(abi.RDMA_NLDEV_ATTR_RES_KERN_NAME, "\x1b[2J"))),
			"an entry that is short": append(whole[:len(whole):len(whole)], pack(plain(p.table.table, u8(p.table.entry, 1)))...),
		} {
			if n, _, err := p.parse(b); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s, %s: %d objects, %v", p.table.kind, what, n, err)
			}
		}
		// Wherever an answer ends: an error, or fewer objects.
		for i := range whole {
			if n, _, err := p.parse(whole[:i:i]); err == nil && n >= len(p.entries) {
				t.Errorf("%s: %d of %d bytes have %d objects", p.table.kind, i, len(whole), n)
			}
		}
	}
	for what, a := range map[string]netlink.Attribute{
		"an address of one byte":         {Type: abi.RDMA_NLDEV_ATTR_RES_SRC_ADDR, Data: []byte{2}},
		"a short address of IP":          {Type: abi.RDMA_NLDEV_ATTR_RES_SRC_ADDR, Data: binary.NativeEndian.AppendUint32(nil, 2)},
		"a short address of IPv6":        {Type: abi.RDMA_NLDEV_ATTR_RES_DST_ADDR, Data: sockaddr(0, 10, 1, 8, nil, 0).Data[:16]},
		"a state of more than one byte":  u32(abi.RDMA_NLDEV_ATTR_RES_STATE, 1),
		"a port space of one byte":       u8(abi.RDMA_NLDEV_ATTR_RES_PS, 1),
		"a number of a queue pair, long": u64(abi.RDMA_NLDEV_ATTR_RES_LQPN, 1),
	} {
		if x, err := appendObjects(nil, cmidTable, 3, answer(cmidTable, attrs{u32(abi.RDMA_NLDEV_ATTR_RES_CM_IDN, 1), a}), parseCMID); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", what, x, err)
		}
	}
	upside := plain(abi.RDMA_NLDEV_ATTR_RES_QP, plain(abi.RDMA_NLDEV_ATTR_RES_QP_ENTRY, u32(abi.RDMA_NLDEV_ATTR_MIN_RANGE, 2), u32(abi.RDMA_NLDEV_ATTR_MAX_RANGE, 1)))
	if x, err := appendObjects(nil, srqTable, 3, answer(srqTable, attrs{u32(abi.RDMA_NLDEV_ATTR_RES_SRQN, 1), upside}), parseSRQ); !errors.Is(err, ErrMalformed) {
		t.Errorf("a run from 2 to 1: %+v, %v", x, err)
	}
}

// FuzzObjects gives the parsers of all kinds of objects the bytes of an answer:
// what is accepted is text for terminals, and not more than fits into the bytes.
func FuzzObjects(f *testing.F) {
	for _, p := range parsers {
		f.Add(answer(p.table, p.entries...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range parsers {
			n, owners, err := p.parse(b)
			if err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Error(err)
				}
				continue
			}
			if n > len(b)/12 {
				t.Errorf("%d %s out of %d bytes", n, p.table.kind, len(b))
			}
			for _, o := range owners {
				checkText(t, o.Kernel)
			}
		}
	})
}

func TestObjectEnumNames(t *testing.T) {
	for got, want := range map[string]string{
		QPRC.String(): "RC", QPDriver.String(): "DRIVER", QPType(5).String(): "QPType(5)",
		QPRTS.String(): "RTS", QPState(7).String(): "QPState(7)",
		SRQTagMatching.String(): "TM", SRQType(3).String(): "SRQType(3)",
		CMListen.String(): "LISTEN", CMState(99).String(): "CMState(99)",
		PortSpaceTCP.String(): "TCP", PortSpace(1 << 31).String(): "PortSpace(2147483648)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
