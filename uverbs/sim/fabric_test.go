package sim_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// newFabric makes a fabric that is looked at afterwards: the library breaks no rules, and
// leaves nothing on a device.
func newFabric(t *testing.T, opts *sim.Options) *sim.Fabric {
	t.Helper()
	f, err := sim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, v := range f.Model().Violations() {
			t.Error(v)
		}
		noObjects(t, f)
	})
	return f
}

// noObjects says what programs hold, though they closed all.
func noObjects(t *testing.T, f *sim.Fabric) {
	t.Helper()
	for _, d := range f.Model().Devices() {
		if left := d.Objects(); len(left) != 0 {
			t.Errorf("%s: still there: %v", d.Name(), left)
		}
	}
}

// open opens a device that is closed at the end of the test.
func open(t *testing.T, f *sim.Fabric, name string) *uverbs.Device {
	t.Helper()
	d, err := f.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func gid(t *testing.T, addr string, typ model.GIDType) model.GID {
	t.Helper()
	a, err := netip.ParseAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	return model.GID{Addr: a.As16(), Type: typ}
}

func TestDefaultDevices(t *testing.T) {
	for _, opts := range []*sim.Options{nil, {}} {
		f := newFabric(t, opts)
		list, err := f.Devices()
		if err != nil {
			t.Fatal(err)
		}
		var want []uverbs.DeviceInfo
		for i, name := range []string{"sim0", "sim1"} {
			guid := uverbs.GUID(f.Model().Device(name).GUID())
			want = append(want, uverbs.DeviceInfo{
				Name: name, Index: -1, Driver: uverbs.DriverMlx5, UverbsName: "uverbs" + name[3:], Path: "/dev/infiniband/uverbs" + name[3:],
				Rdev: 231<<8 | uint64(192+i), ABIVersion: 1, NodeType: nldev.NodeCA, NodeGUID: guid, SysImageGUID: guid,
				Firmware: f.Model().Device(name).Firmware(), Ports: 1,
			})
		}
		if d := cmp.Diff(want, list); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		for i, name := range []string{"sim0", "sim1"} {
			d := open(t, f, name)
			if d.Name() != name || d.Info() != want[i] || d.Attr().Firmware != want[i].Firmware || d.Attr().NodeGUID != want[i].NodeGUID || d.CompletionVectors() != 4 {
				t.Errorf("%s: %+v, %+v, %d vectors", d.Name(), d.Info(), d.Attr(), d.CompletionVectors())
			}
		}
	}
}

// What programs see is what the model was told.
func TestConfiguredDevices(t *testing.T) {
	f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{
		{Name: "mlx5_bond_0", GUID: 0xb8cef6_0300_123456, Vectors: 7, MaxCQE: 255, Ports: []model.PortConfig{
			{MTU: 1024, GIDs: []model.GID{gid(t, "fe80::7", model.GIDRoCE1), {}, gid(t, "::ffff:192.0.2.1", model.GIDRoCE2)}},
			{Down: true, PKeys: []uint16{0xffff, 0x8001}},
		}},
		{Ports: []model.PortConfig{{InfiniBand: true, LID: 17, PKeys: []uint16{0x7fff}}, {InfiniBand: true}}},
	}})
	list, err := f.Devices()
	if err != nil || len(list) != 2 || list[0].Name != "mlx5_bond_0" || list[1].Name != "sim1" {
		t.Fatalf("%+v, %v", list, err)
	}
	a, b := open(t, f, "mlx5_bond_0"), open(t, f, "sim1")
	if i := a.Info(); i.Ports != 2 || i.NodeGUID.String() != "b8ce:f603:0012:3456" || i.Driver != uverbs.DriverMlx5 {
		t.Errorf("%+v", i)
	}
	if a.Attr().Ports != 2 || a.Attr().MaxCQE != 255 || a.CompletionVectors() != 7 {
		t.Errorf("%+v, %d vectors", a.Attr(), a.CompletionVectors())
	}
	table, err := a.GIDTable()
	if err != nil || len(table) < 2 {
		t.Fatalf("%v, %v", table, err)
	}
	want := []uverbs.GIDEntry{
		{GID: uverbs.GIDFromAddr(netip.MustParseAddr("fe80::7")), Port: 1, Index: 0, Type: uverbs.GIDTypeRoCEv1, Ifindex: table[0].Ifindex},
		{GID: uverbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1")), Port: 1, Index: 2, Type: uverbs.GIDTypeRoCEv2, Ifindex: table[0].Ifindex},
	}
	if d := cmp.Diff(want, table[:2]); d != "" || table[2].Port != 2 {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := a.GID(1, 1); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("an empty entry: %v", err)
	}
	if table, err := b.GIDTable(); err != nil || len(table) != 2 || table[0].Type != uverbs.GIDTypeIB || table[1].Port != 2 || table[0].Ifindex != 0 {
		t.Errorf("InfiniBand: %v, %v", table, err)
	}
	for _, c := range []struct {
		dev  *uverbs.Device
		port int
		ok   func(uverbs.PortAttr) bool
	}{
		{a, 1, func(p uverbs.PortAttr) bool {
			return p.State == uverbs.PortActive && p.PhysState == uverbs.PhysLinkUp && p.ActiveMTU == 1024 && p.LinkLayer == uverbs.LinkEthernet && p.PKeys == 1
		}},
		{a, 2, func(p uverbs.PortAttr) bool {
			return p.State == uverbs.PortDown && p.PhysState == uverbs.PhysDisabled && p.ActiveMTU == 4096 && p.PKeys == 2
		}},
		{b, 1, func(p uverbs.PortAttr) bool {
			return p.State == uverbs.PortActive && p.LinkLayer == uverbs.LinkInfiniBand && p.LID == 17
		}},
		{b, 2, func(p uverbs.PortAttr) bool {
			return p.LinkLayer == uverbs.LinkInfiniBand && p.LID != 0 && p.LID != 17
		}},
	} {
		if p, err := c.dev.PortAttr(c.port); err != nil || !c.ok(p) {
			t.Errorf("%s port %d: %+v, %v", c.dev.Name(), c.port, p, err)
		}
		if n, err := c.dev.Counters(c.port); err != nil || len(n.Port)+len(n.Hardware) != 0 {
			t.Errorf("%s port %d: counters %v, %v", c.dev.Name(), c.port, n, err)
		}
	}
	for _, c := range []struct {
		dev         *uverbs.Device
		port, index int
		want        uint16
	}{{a, 1, 0, 0xffff}, {a, 2, 1, 0x8001}, {b, 1, 0, 0x7fff}} {
		if k, err := c.dev.PKey(c.port, c.index); err != nil || k != c.want {
			t.Errorf("%s port %d P_Key %d: %#x, %v", c.dev.Name(), c.port, c.index, k, err)
		}
	}
	if _, err := a.PKey(1, 1); err == nil {
		t.Error("a P_Key that is not there")
	}
	if _, err := a.PortAttr(3); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("port 3: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	long := strings.Repeat("x", 64)
	for want, devices := range map[string][]model.DeviceConfig{
		`sim: device 1: the name "a/b": want 1 to 63`: {{}, {Name: "a/b"}},
		`the name ".."`:                        {{Name: ".."}},
		`the name "a b"`:                       {{Name: "a b"}},
		`the name "` + long + `"`:              {{Name: long}},
		"two devices are called x":             {{Name: "x"}, {Name: "x"}},
		"two devices are called sim1":          {{Name: "sim1"}, {}},
		"device sim0 has 3 ports: 1 or 2":      {{Ports: make([]model.PortConfig, 3)}},
		"MTU 9000":                             {{Ports: []model.PortConfig{{MTU: 9000}}}},
		"LID 5 is taken":                       {{Ports: []model.PortConfig{{InfiniBand: true, LID: 5}, {InfiniBand: true, LID: 5}}}},
		"its ports have different link layers": {{Ports: []model.PortConfig{{InfiniBand: true}, {}}}},
	} {
		if f, err := sim.New(&sim.Options{Devices: devices}); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "sim: ") {
			t.Errorf("%v, %v: want %q", f, err, want)
		}
	}
}

// New keeps nothing of its options and changes nothing there.
func TestNewKeepsOptions(t *testing.T) {
	opts := &sim.Options{Devices: []model.DeviceConfig{{}}}
	f := newFabric(t, opts)
	if d := cmp.Diff([]model.DeviceConfig{{}}, opts.Devices); d != "" {
		t.Errorf("New changed its options:\n%s", d)
	}
	opts.Devices[0].Name = "other"
	open(t, f, "sim0")
}

func TestOpenRefuses(t *testing.T) {
	f := newFabric(t, nil)
	for _, name := range []string{"", "sim2", "sim", "../sim0", "uverbs0"} {
		if d, err := f.Open(name, nil); !errors.Is(err, uverbs.ErrUnknownDevice) || !strings.Contains(err.Error(), "sim0, sim1") {
			t.Errorf("%q: %v, %v", name, d, err)
		}
	}
	for _, f := range []*sim.Fabric{nil, {}} {
		if _, err := f.Open("sim0", nil); err == nil || !strings.Contains(err.Error(), "not made by New") {
			t.Errorf("%v", err)
		}
		if _, err := f.Devices(); err == nil || !strings.Contains(err.Error(), "not made by New") {
			t.Errorf("%v", err)
		}
	}
}

// Two fabrics know nothing of each other, nor of the machine.
func TestFabricsAreApart(t *testing.T) {
	a := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{{Name: "a"}}})
	b := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{{Name: "b"}}})
	for f, name := range map[*sim.Fabric]string{a: "a", b: "b"} {
		if list, err := f.Devices(); err != nil || len(list) != 1 || list[0].Name != name {
			t.Errorf("%v, %v", list, err)
		}
	}
	if _, err := a.Open("b", nil); !errors.Is(err, uverbs.ErrUnknownDevice) {
		t.Errorf("%v", err)
	}
	list, err := uverbs.Devices()
	for _, d := range list {
		if d.Name == "a" || d.Name == "b" {
			t.Errorf("%+v on the machine: %v", d, err)
		}
	}
}

// A device is found by an address of one of its ports.
func TestOpenAddr(t *testing.T) {
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sim0", "sim1"} {
		p, err := f.Model().Device(name).Port(1)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, g := range p.GIDs {
			if g.Type != model.GIDRoCE2 {
				continue
			}
			d, err := f.OpenAddr(netip.AddrFrom16(g.Addr), nil)
			if err != nil {
				t.Fatal(err)
			}
			if d.Name() != name {
				t.Errorf("%v is an address of %s, not of %s", netip.AddrFrom16(g.Addr), d.Name(), name)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			found++
		}
		if found == 0 {
			t.Errorf("%s has no address: %+v", name, p)
		}
	}
	if _, err := f.OpenAddr(netip.MustParseAddr("192.0.2.1"), nil); !errors.Is(err, uverbs.ErrUnknownDevice) || !strings.Contains(err.Error(), "sim1") {
		t.Errorf("an address that nobody has: %v", err)
	}
	if _, err := new(sim.Fabric).OpenAddr(netip.MustParseAddr("192.0.2.1"), nil); err == nil {
		t.Error("a fabric that was not made by New opens")
	}
}
