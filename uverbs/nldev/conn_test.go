package nldev

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/abi"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
)

func u8(typ uint16, x uint8) netlink.Attribute { return netlink.Attribute{Type: typ, Data: []byte{x}} }

func u64(typ uint16, x uint64) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: binary.NativeEndian.AppendUint64(nil, x)}
}

func table(typ uint16, attrs ...netlink.Attribute) netlink.Attribute {
	return netlink.Attribute{Type: typ | netlink.Nested, Data: pack(attrs...)}
}

func pack(attrs ...netlink.Attribute) []byte { return nltest.MustMarshalAttributes(attrs) }

// A fakeSocket answers requests by a function.
type fakeSocket struct {
	answer    func(request netlink.Message) []netlink.Message
	datagrams [][]byte
	closed    int
}

func dialFake(answer func(request netlink.Message) []netlink.Message) *Conn {
	return newConn(&fakeSocket{answer: answer})
}

// Send has every message of the answer in a datagram of its own, but the last two of a
// list in one.
func (s *fakeSocket) Send(b []byte) error {
	var request netlink.Message
	if err := request.UnmarshalBinary(b); err != nil {
		return err
	}
	answers := s.answer(request)
	for i, m := range answers {
		m.Header.Length = uint32(headerSize + len(m.Data))
		d, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		if last := len(s.datagrams) - 1; i > 0 && i == len(answers)-1 {
			s.datagrams[last] = append(s.datagrams[last], d...)
		} else {
			s.datagrams = append(s.datagrams, d)
		}
	}
	return nil
}

func (s *fakeSocket) Receive(b []byte) (int, error) {
	if len(s.datagrams) == 0 {
		return 0, io.ErrUnexpectedEOF // a socket would wait forever
	}
	d := s.datagrams[0]
	s.datagrams = s.datagrams[1:]
	copy(b, d)
	return len(d), nil
}

func (s *fakeSocket) Close() error {
	s.closed++
	return nil
}

// rxeLink, rxePort and rxeChardev are what Linux 6.1 says of a soft-RoCE
// device.
func rxeLink() []byte {
	return pack(
		u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 0),
		str(abi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe0"),
		u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1),
		u64(abi.RDMA_NLDEV_ATTR_CAP_FLAGS, 0x01223c76),
		u64(abi.RDMA_NLDEV_ATTR_NODE_GUID, 0x505400fffe123456),
		u64(abi.RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, 0x505400fffe123456),
		u8(abi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE, 1),
		u8(abi.RDMA_NLDEV_ATTR_DEV_DIM, 0),
		str(abi.RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce"),
		u32(1000, 7), // from a newer kernel
	)
}

func rxePort() []byte {
	return pack(
		u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 0),
		str(abi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe0"),
		u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1),
		u8(abi.RDMA_NLDEV_ATTR_PORT_STATE, 4),
		u8(abi.RDMA_NLDEV_ATTR_PORT_PHYS_STATE, 5),
		u32(abi.RDMA_NLDEV_ATTR_NDEV_INDEX, 2),
		str(abi.RDMA_NLDEV_ATTR_NDEV_NAME, "dummy0"),
	)
}

func rxeChardev() []byte {
	return pack(
		str(abi.RDMA_NLDEV_ATTR_CHARDEV_NAME, "uverbs0"),
		u64(abi.RDMA_NLDEV_ATTR_CHARDEV_ABI, 2),
		u64(abi.RDMA_NLDEV_ATTR_CHARDEV, 231<<8|192),
		u32(abi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 14),
	)
}

func rxeCounts() []byte {
	entry := func(name string, n uint64) netlink.Attribute {
		return table(abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY,
			str(abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name),
			u64(abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, n))
	}
	return pack(
		u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 0),
		table(abi.RDMA_NLDEV_ATTR_RES_SUMMARY, entry("qp", 1), entry("cm_id", 0), entry("pd", 1)),
	)
}

// answering makes a Conn whose kernel checks the request against op, flags and
// attrs, and answers with payloads.
func answering(t *testing.T, op int, flags netlink.HeaderFlags, attrs []byte, payloads ...[]byte) *Conn {
	t.Helper()
	return dialFake(func(req netlink.Message) []netlink.Message {
		h := req.Header
		if want := netlink.HeaderType(0x1400 + op); h.Type != want {
			t.Errorf("message type %#x, want %#x", h.Type, want)
		}
		if h.Flags != flags|netlink.Request {
			t.Errorf("flags %v, want %v", h.Flags, flags|netlink.Request)
		}
		if d := cmp.Diff(string(attrs), string(req.Data)); d != "" {
			t.Errorf("request (-want +got):\n%s", d)
		}
		if flags&netlink.Acknowledge != 0 {
			return refusal(0, req)
		}
		list := flags&netlink.Dump == netlink.Dump
		var out []netlink.Message
		for _, p := range payloads {
			out = append(out, netlink.Message{Header: netlink.Header{Type: h.Type, Sequence: h.Sequence}, Data: p})
		}
		if list {
			out = append(out, netlink.Message{Header: netlink.Header{Type: netlink.Done, Sequence: h.Sequence}, Data: make([]byte, 4)})
		}
		for i := range out {
			if list {
				out[i].Header.Flags = netlink.Multi
			}
		}
		return out
	})
}

// refusal is what a kernel says that refuses a request, or acknowledges it by errno 0.
func refusal(errno syscall.Errno, request netlink.Message) []netlink.Message {
	return []netlink.Message{{
		Header: netlink.Header{Type: netlink.Error, Sequence: request.Header.Sequence},
		Data:   append(binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))), request.Data...),
	}}
}

// refusing makes a Conn whose kernel answers everything with errno.
func refusing(errno syscall.Errno) *Conn {
	return dialFake(func(req netlink.Message) []netlink.Message { return refusal(errno, req) })
}

func TestLinks(t *testing.T) {
	c := answering(t, 1, netlink.Dump, nil, rxeLink(), rxeLink())
	got, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	l := Link{
		Name: "rxe0", Ports: 1, CapFlags: 0x01223c76, NodeGUID: 0x505400fffe123456,
		SysImageGUID: 0x505400fffe123456, NodeType: NodeCA, Protocol: "roce",
	}
	if d := cmp.Diff([]Link{l, l}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestNoLinks(t *testing.T) {
	got, err := answering(t, 1, netlink.Dump, nil).Links()
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPorts(t *testing.T) {
	ask := pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 0))
	got, err := answering(t, 5, netlink.Dump, ask, rxePort()).Ports(0)
	if err != nil {
		t.Fatal(err)
	}
	want := []Port{{
		Device: "rxe0", Index: 1, State: PortActive, PhysState: PhysLinkUp, NetdevIndex: 2, Netdev: "dummy0",
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPortOfAnotherDevice(t *testing.T) {
	ask := pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 3))
	if _, err := answering(t, 5, netlink.Dump, ask, rxePort()).Ports(3); !errors.Is(err, ErrMalformed) {
		t.Errorf("a port of device 0 in answer to device 3: %v", err)
	}
}

func TestChardev(t *testing.T) {
	ask := pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 9), str(abi.RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs"))
	wide := append(rxeChardev(), pack(u64(abi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 18))...)
	for driver, answer := range map[uint32][]byte{14: rxeChardev(), 18: wide} {
		got, err := answering(t, 15, 0, ask, answer).Chardev(9, "uverbs")
		if err != nil {
			t.Fatal(err)
		}
		want := Chardev{Name: "uverbs0", ABI: 2, Dev: 231<<8 | 192, DriverID: driver}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestNewAndDelLink(t *testing.T) {
	ask := pack(
		str(abi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe0"),
		str(abi.RDMA_NLDEV_ATTR_LINK_TYPE, "rxe"),
		str(abi.RDMA_NLDEV_ATTR_NDEV_NAME, "dummy0"))
	if err := answering(t, 3, netlink.Acknowledge, ask).NewLink("rxe0", "rxe", "dummy0"); err != nil {
		t.Error(err)
	}
	ask = pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 4))
	if err := answering(t, 4, netlink.Acknowledge, ask).DelLink(4); err != nil {
		t.Error(err)
	}
}

func TestNewLinkNames(t *testing.T) {
	c := refusing(syscall.EPERM)
	for _, n := range []struct{ name, netdev string }{
		{"", "eth0"}, {"a/b", "eth0"}, {"a b", "eth0"}, {"..", "eth0"}, {strings.Repeat("x", 64), "eth0"},
		{"rxe0", ""}, {"rxe0", "sixteen-letters-"}, {"rxe0", "a\x00b"},
	} {
		if err := c.NewLink(n.name, "rxe", n.netdev); err == nil || errors.Is(err, syscall.EPERM) {
			t.Errorf("NewLink(%q, %q) reached the kernel: %v", n.name, n.netdev, err)
		}
	}
}

func TestResourceCounts(t *testing.T) {
	ask := pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 2))
	got, err := answering(t, 9, 0, ask, rxeCounts()).ResourceCounts(2)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(ResourceCounts{"qp": 1, "cm_id": 0, "pd": 1}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestCounters(t *testing.T) {
	ask := pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 2), u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1))
	answer := pack(table(abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTERS,
		table(abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY,
			str(abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, "sent_pkts"),
			u64(abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, 1<<40))))
	got, err := answering(t, 17, 0, ask, answer).Counters(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Counters{"sent_pkts": 1 << 40}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestSystem(t *testing.T) {
	answer := pack(
		u8(abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1),
		u8(abi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1),
		u8(abi.RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE, 0))
	got, err := answering(t, 6, 0, nil, answer).System()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(System{NetnsShared: true, CopyOnFork: true}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestRefusalsKeepTheErrno(t *testing.T) {
	c := refusing(syscall.EPERM)
	calls := map[string]func() error{
		"list the devices":                        func() error { _, err := c.Links(); return err },
		"list the ports of device 1":              func() error { _, err := c.Ports(1); return err },
		"find the uverbs file of device 1":        func() error { _, err := c.Chardev(1, "uverbs"); return err },
		`add rxe link "rxe0" on eth0`:             func() error { return c.NewLink("rxe0", "rxe", "eth0") },
		"delete device 1":                         func() error { return c.DelLink(1) },
		"count the resources of device 1":         func() error { _, err := c.ResourceCounts(1); return err },
		"read the counters of port 2 of device 1": func() error { _, err := c.Counters(1, 2); return err },
		"read the system settings":                func() error { _, err := c.System(); return err },
	}
	for what, call := range calls {
		err := call()
		if !errors.Is(err, syscall.EPERM) || !strings.HasPrefix(err.Error(), "nldev: "+what+": ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An answer that is not to the request, or not what netlink's framing says, is refused; what came
// before it in a list is not returned, and a list that the kernel breaks off neither.
func TestWrongMessages(t *testing.T) {
	done := func(seq uint32, data ...byte) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: netlink.Done, Flags: netlink.Multi, Sequence: seq}, Data: data}
	}
	link := func(seq uint32) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: 0x1401, Flags: netlink.Multi, Sequence: seq}, Data: rxeLink()}
	}
	for what, c := range map[string]struct {
		answer func(seq uint32) []netlink.Message
		want   error
	}{
		"another type":    {func(seq uint32) []netlink.Message { m := link(seq); m.Header.Type++; return []netlink.Message{m} }, ErrMalformed},
		"another request": {func(seq uint32) []netlink.Message { return []netlink.Message{link(seq), link(seq - 1)} }, ErrMalformed},
		"an empty refusal": {func(seq uint32) []netlink.Message {
			m := done(seq)
			m.Header.Type = netlink.Error
			return []netlink.Message{m}
		}, ErrMalformed},
		"an end with an errno": {func(seq uint32) []netlink.Message {
			return []netlink.Message{link(seq), done(seq, errnoBytes(syscall.EMFILE)...)}
		}, syscall.EMFILE},
		"an end without errno": {func(seq uint32) []netlink.Message { return []netlink.Message{link(seq), done(seq)} }, nil},
		"a datagram, too large": {func(seq uint32) []netlink.Message {
			m := link(seq)
			m.Data = make([]byte, datagram)
			return []netlink.Message{m}
		}, ErrMalformed},
	} {
		conn := dialFake(func(req netlink.Message) []netlink.Message { return c.answer(req.Header.Sequence) })
		links, err := conn.Links()
		if !errors.Is(err, c.want) || (err == nil) != (len(links) == 1) {
			t.Errorf("%s: %d devices, %v, want error %v", what, len(links), err, c.want)
		}
	}
	many := answering(t, 6, 0, nil, nil, nil, nil)
	if _, err := many.System(); err != nil {
		t.Errorf("after the first answer: %v", err)
	}
	if _, err := many.System(); !errors.Is(err, ErrMalformed) {
		t.Errorf("a late answer to the question before: %v", err)
	}
}

func errnoBytes(errno syscall.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
}

// Wherever what was received is cut off, and whatever lengths it speaks of, it is refused.
func TestBadFraming(t *testing.T) {
	whole, err := makeMessage(netlink.Header{Type: 1, Sequence: 2}, []netlink.Attribute{str(3, "abc"), u32(4, 5)})
	if err != nil {
		t.Fatal(err)
	}
	want := netlink.Header{Length: uint32(len(whole)), Type: 1, Sequence: 2}
	if m, rest, err := nextMessage(whole); err != nil || m.Header != want || len(rest) != 0 || string(m.Data) != string(pack(str(3, "abc"), u32(4, 5))) {
		t.Fatalf("%+v, rest % x, %v", m, rest, err)
	}
	for n := range whole {
		if _, _, err := nextMessage(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	for _, length := range []uint32{0, 15, uint32(len(whole)) + 1, 1 << 31, 1<<32 - 1} {
		b := append([]byte(nil), whole...)
		binary.NativeEndian.PutUint32(b, length)
		if _, _, err := nextMessage(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("a message of %d bytes: %v", length, err)
		}
	}
	for _, length := range []uint16{0, 3, 9, 1<<16 - 1} {
		b := pack(u32(4, 5))
		binary.NativeEndian.PutUint16(b, length)
		if err := each(b, func(value) {}); !errors.Is(err, ErrMalformed) {
			t.Errorf("an attribute of %d bytes: %v", length, err)
		}
	}
	if err := errorOf(netlink.Message{Header: netlink.Header{Type: netlink.Done}, Data: []byte{1, 2}}); !errors.Is(err, ErrMalformed) {
		t.Errorf("half an errno: %v", err)
	}
}

// A closed Conn says so.
func TestClose(t *testing.T) {
	s := &fakeSocket{}
	c := newConn(s)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Links(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := c.Close(); !errors.Is(err, os.ErrClosed) || s.closed != 1 {
		t.Errorf("Close twice: %v, the socket closed %d times", err, s.closed)
	}
}

func TestEnumNames(t *testing.T) {
	for got, want := range map[string]string{
		NodeCA.String(): "ca", NodeType(99).String(): "NodeType(99)",
		PortActive.String(): "ACTIVE", PortState(9).String(): "PortState(9)",
		PhysLinkUp.String(): "LINK_UP", PortPhysState(200).String(): "PortPhysState(200)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
