package uverbs

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// openFake opens the one device of a fake kernel.
func openFake(t *testing.T, dev fakekernel.Device) (*fakekernel.Kernel, *Device) {
	t.Helper()
	k := fakekernel.New(dev)
	d, err := on(k).open("rxe0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return k, d
}

func TestAttr(t *testing.T) {
	_, d := openFake(t, fakekernel.Device{})
	a := d.Attr()
	if a.Ports != 1 || a.MaxCQE != 32767 || a.MaxQPWR != 1<<20 || a.MaxSGE != 32 || a.MaxQPReadDepth != 128 || a.Firmware != "0.0.0" ||
		a.NodeGUID != 0x020000fffe000001 || a.VendorID != 0xffffff || a.Atomic != AtomicHCA || !a.Extended || a.MaxMRSize != ^uint64(0) {
		t.Errorf("%+v", a)
	}
	if !strings.Contains(a.Caps.String(), "|MEM_WINDOW|") || a.Caps&CapMemWindowType2B == 0 {
		t.Errorf("capabilities %v", a.Caps)
	}
}

func TestAttrWithoutTheExtendedQuery(t *testing.T) {
	_, d := openFake(t, fakekernel.Device{LacksCommands: []uint32{extended(abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE)}})
	a := d.Attr()
	if a.Extended || a.MaxCQE != 32767 || a.NodeGUID == 0 || a.Caps == 0 {
		t.Errorf("%+v", a)
	}
}

// What lies past the length that the kernel says it filled means nothing.
func TestAttrOfAnOlderKernel(t *testing.T) {
	k, d := openFake(t, fakekernel.Device{})
	query := func(length uint32, change func(*abi.UverbsExQueryDeviceResp)) (DeviceAttr, error) {
		k.Tamper(func(c fakekernel.Call, attr uint16, out []byte) []byte {
			if c.Command != extended(abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE) {
				return out
			}
			var resp abi.UverbsExQueryDeviceResp
			copy(resp.Bytes(), out)
			resp.ResponseLength, resp.HCACoreClock, resp.MaxDMSize = length, 1, 2
			change(&resp)
			return resp.Bytes()
		})
		err := d.queryDevice()
		return d.attr, err
	}
	nothing := func(*abi.UverbsExQueryDeviceResp) {}
	if a, err := query(224, nothing); err != nil || a.CoreClock != 1 || a.MaxDeviceMemory != 0 || a.Caps == 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := query(175, nothing); !errors.Is(err, ErrMalformed) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := query(1<<31, func(r *abi.UverbsExQueryDeviceResp) { r.Base.MaxCQE = 1<<32 - 1 }); err != nil || a.MaxCQE <= 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestPortAttr(t *testing.T) {
	k, d := openFake(t, fakekernel.Device{MTU: 2048})
	p, err := d.PortAttr(1)
	if err != nil {
		t.Fatal(err)
	}
	want := PortAttr{
		Port: 1, State: PortActive, PhysState: PhysLinkUp, LinkLayer: LinkEthernet, MaxMTU: 4096, ActiveMTU: 2048, MaxMessage: 8 << 20,
		GIDs: 1024, PKeys: 1, MaxVLs: 1, Width: 1, LaneGbps: 2.5, Caps: PortCaps(abi.IB_UVERBS_PCF_CM_SUP), GRHRequired: true,
	}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	k.SetPort("rxe0", false)
	if p, err := d.PortAttr(1); err != nil || p.State != PortDown || p.PhysState != PhysDisabled {
		t.Errorf("%+v, %v", p, err)
	}
	for _, port := range []int{0, -1, 2, 256, 1<<31 - 1} {
		if _, err := d.PortAttr(port); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "rxe0 has 1, numbered from 1") {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

func TestPortAttrOfHardware(t *testing.T) {
	resp := &abi.UverbsQueryPortRespEx{LegacyResp: abi.UverbsQueryPortResp{
		MaxMTU: 9, ActiveMTU: 5, ActiveWidth: 2, ActiveSpeed: 128, MaxVLNum: 5, LinkLayer: 1, LID: 7, State: 99,
	}}
	p := portAttr(3, resp)
	if p.Gbps() != 400 || p.MaxMTU != 0 || p.ActiveMTU != 4096 || p.MaxVLs != 15 || p.LID != 7 || p.State.String() != "PortState(99)" {
		t.Errorf("%+v", p)
	}
	resp.ActiveSpeedEx = 256
	if p := portAttr(3, resp); p.Gbps() != 800 {
		t.Errorf("XDR: %v Gb/s", p.Gbps())
	}
	resp.LegacyResp.ActiveWidth = 3
	if p := portAttr(3, resp); p.Gbps() != 0 {
		t.Errorf("an unknown width: %v Gb/s", p.Gbps())
	}
}

func TestGIDTable(t *testing.T) {
	var addrs []netip.Addr
	var want []GIDEntry
	for i := range 200 { // more than are asked for at first
		a := netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
		if i == 3 {
			addrs = append(addrs, netip.IPv6Unspecified()) // an empty place
			continue
		}
		addrs = append(addrs, a)
		want = append(want, GIDEntry{GID: GIDFromAddr(a), Port: 1, Index: i, Type: GIDTypeRoCEv2, Ifindex: 2})
	}
	_, d := openFake(t, fakekernel.Device{Addrs: addrs})
	got, err := d.GIDTable()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	e, err := d.GID(1, 150)
	if err != nil || e != want[149] {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := d.GID(1, 3); !errors.Is(err, syscall.ENODATA) || !strings.Contains(err.Error(), "index 3 of port 1 is empty") {
		t.Errorf("an empty place: %v", err)
	}
	for _, c := range [][2]int{{0, 0}, {2, 0}, {1, -1}} {
		if _, err := d.GID(c[0], c[1]); !errors.Is(err, ErrInvalid) {
			t.Errorf("port %d index %d: %v", c[0], c[1], err)
		}
	}
}

func TestHostileGIDTable(t *testing.T) {
	for what, change := range map[string]func(attr uint16, out []byte) []byte{
		"more entries than there is room": func(attr uint16, out []byte) []byte {
			if attr == abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES {
				native.PutUint64(out, 1<<60)
			}
			return out
		},
		"port 0": func(attr uint16, out []byte) []byte {
			if attr == abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES {
				native.PutUint32(out[20:], 0)
			}
			return out
		},
		"nothing where two are promised": func(attr uint16, out []byte) []byte {
			if attr == abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES {
				return nil
			}
			return out
		},
		"a huge index": func(attr uint16, out []byte) []byte {
			if attr == abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES {
				native.PutUint32(out[16:], 1<<31)
			}
			return out
		},
	} {
		k, d := openFake(t, fakekernel.Device{})
		k.Tamper(func(c fakekernel.Call, attr uint16, out []byte) []byte {
			if c.Method.Method == abi.UVERBS_METHOD_QUERY_GID_TABLE && c.Method.Object == abi.UVERBS_OBJECT_DEVICE {
				return change(attr, out)
			}
			return out
		})
		if table, err := d.GIDTable(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", what, table, err)
		}
	}
}

func TestGIDText(t *testing.T) {
	for text, addr := range map[string]string{"fe80::1": "fe80::1", "::ffff:10.0.0.1": "10.0.0.1"} {
		g := GIDFromAddr(netip.MustParseAddr(addr))
		a, ok := g.Addr()
		if g.String() != text || !ok || a.String() != addr {
			t.Errorf("%v, %v, %v", g, a, ok)
		}
	}
	if _, ok := (GID{}).Addr(); ok || !(GID{}).IsZero() {
		t.Error("the zero GID is an address")
	}
	for typ, want := range map[GIDType]string{GIDTypeIB: "IB", GIDTypeRoCEv1: "RoCE v1", GIDTypeRoCEv2: "RoCE v2", 9: "GIDType(9)"} {
		if typ.String() != want {
			t.Errorf("%v, want %s", typ, want)
		}
	}
}

// The queries fail with the kernel's reason, and never with half an answer.
func TestQueriesThatFail(t *testing.T) {
	k, d := openFake(t, fakekernel.Device{})
	for what, query := range map[string]func() error{
		"query device":    d.queryDevice,
		"query port":      func() error { _, err := d.PortAttr(1); return err },
		"query GID table": func() error { _, err := d.GIDTable(); return err },
		"query GID":       func() error { _, err := d.GID(1, 0); return err },
	} {
		k.FailAt(fakekernel.Ioctl, 1, syscall.ENOMEM)
		if err := query(); !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "goverbs: rxe0: "+what+": ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	k.Fail(nil)
	d.Close()
	if _, err := d.PortAttr(1); !isClosed(err) {
		t.Errorf("after Close: %v", err)
	}
}

// A code of several bits, of none, or of one that nobody knows stands for nothing.
func TestPortCodes(t *testing.T) {
	for code, want := range map[uint32]float64{
		0: 0, 1: 2.5, 2: 5, 4: 10, 8: 10, 16: 14, 32: 25, 64: 50, 128: 100, 256: 200, 512: 0, 3: 0, 384: 0, 1 << 31: 0, 1<<32 - 1: 0,
	} {
		if got := laneGbps(code); got != want {
			t.Errorf("speed %#x: %v Gb/s a lane, want %v", code, got, want)
		}
	}
	for code, want := range map[uint8]int{0: 0, 1: 1, 2: 4, 4: 8, 8: 12, 16: 2, 32: 0, 3: 0, 128: 0, 255: 0} {
		if got := lanes(code); got != want {
			t.Errorf("width %#x: %d lanes, want %d", code, got, want)
		}
	}
}
