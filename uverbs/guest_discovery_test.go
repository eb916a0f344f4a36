package uverbs

import (
	"errors"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// sysAttr reads an attribute of the first port of a device.
func sysAttr(t *testing.T, d *Device, name string) string {
	t.Helper()
	b, err := readSysfs(d.kernel.Sysfs(), "class/infiniband/"+d.Name()+"/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Netlink and /sys tell the same of every device.
func TestGuestDiscovery(t *testing.T) {
	s := GuestSystem(t)
	s.onMachine(t, "it has no netlink")
	s.device(t)
	byNetlink, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	bySysfs, err := discover(kernel.Host(), func() (netlink, error) { return nil, errors.New("not for this test") })
	if err != nil {
		t.Fatal(err)
	}
	for i := range byNetlink {
		n := &byNetlink[i]
		t.Logf("%+v", *n)
		if n.Index < 0 || n.Driver == DriverUnknown || n.Protocol == "" || n.Ports < 1 || n.Rdev == 0 || n.NodeGUID == 0 {
			t.Errorf("something is missing: %+v", *n)
		}
		if n.Err != nil {
			t.Errorf("%s cannot be opened: %v", n.Name, n.Err)
		}
		n.Index, n.Protocol = -1, ""
	}
	if d := cmp.Diff(byNetlink, bySysfs); d != "" {
		t.Errorf("netlink and /sys differ (-netlink +sysfs):\n%s", d)
	}
}

func TestGuestOpenUnknownDevice(t *testing.T) {
	s := GuestSystem(t)
	d := s.device(t)
	if _, err := s.Open("nosuch0"); !errors.Is(err, ErrUnknownDevice) || !strings.Contains(err.Error(), d.Name()) {
		t.Errorf("%v", err)
	}
}

// The answers to queries agree with /sys.
func TestGuestPort(t *testing.T) {
	s := GuestSystem(t)
	d := s.device(t)
	p, err := d.PortAttr(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", p)
	for name, want := range map[string]string{
		"ports/1/link_layer": p.LinkLayer.String(),
		"ports/1/state":      strconv.Itoa(int(p.State)) + ": " + strings.TrimPrefix(p.State.String(), "PORT_"),
	} {
		if got := sysAttr(t, d, name); got != want {
			t.Errorf("%s is %q, the query says %q", name, got, want)
		}
	}
	if !s.Simulated { // which has no files of these
		rate, _, _ := strings.Cut(sysAttr(t, d, "ports/1/rate"), " ")
		if got, err := strconv.ParseFloat(rate, 64); err != nil || got != p.Gbps() {
			t.Errorf("rate is %q (%v), the query says %v", rate, err, p.Gbps())
		}
		phys, _, _ := strings.Cut(sysAttr(t, d, "ports/1/phys_state"), ":")
		if phys != strconv.Itoa(int(p.PhysState)) {
			t.Errorf("phys_state is %q, the query says %v", phys, p.PhysState)
		}
	}
	key, err := d.PKey(1, 0)
	if err != nil || key != 0xffff {
		t.Errorf("P_Key %#x, %v", key, err)
	}
	for i := range p.PKeys {
		if _, err := d.PKey(1, i); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.PKey(1, p.PKeys); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the P_Key after the last: %v", err)
	}
	if _, err := d.PortAttr(d.Attr().Ports + 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("the port after the last: %v", err)
	}
}

func TestGuestGIDTable(t *testing.T) {
	d := GuestSystem(t).device(t)
	table, err := d.GIDTable()
	if err != nil || len(table) == 0 {
		t.Fatalf("%v, %v", table, err)
	}
	for _, e := range table {
		dir := "ports/" + strconv.Itoa(e.Port) + "/"
		index := strconv.Itoa(e.Index)
		addr, err := netip.ParseAddr(sysAttr(t, d, dir+"gids/"+index))
		if err != nil || GIDFromAddr(addr) != e.GID {
			t.Errorf("%+v: /sys has %v, %v", e, addr, err)
		}
		if typ := sysAttr(t, d, dir+"gid_attrs/types/"+index); !strings.HasSuffix(typ, e.Type.String()) {
			t.Errorf("%+v: /sys has type %q", e, typ)
		}
		if one, err := d.GID(e.Port, e.Index); err != nil || one != e {
			t.Errorf("asked for alone it is %+v, %v; in the table %+v", one, err, e)
		}
	}
	last := table[len(table)-1]
	if _, err := d.GID(last.Port, last.Index+1); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty place: %v", err)
	}
}

func TestGuestAttr(t *testing.T) {
	d := GuestSystem(t).device(t)
	a := d.Attr()
	t.Logf("%+v", a)
	if a.NodeGUID.String() != sysAttr(t, d, "node_guid") || a.SysImageGUID.String() != sysAttr(t, d, "sys_image_guid") {
		t.Errorf("GUIDs %v and %v are not those of /sys", a.NodeGUID, a.SysImageGUID)
	}
	if a.NodeGUID != d.Info().NodeGUID {
		t.Errorf("the device says GUID %v, discovery %v", a.NodeGUID, d.Info().NodeGUID)
	}
	if !a.Extended || a.MaxQP < 1 || a.MaxCQE < 1 || a.MaxQPWR < 1 || a.MaxSGE < 1 || a.MaxMRSize == 0 || a.Ports < 1 {
		t.Errorf("%+v", a)
	}
	// The old query says the same as far as it goes.
	old := new(abi.UverbsExQueryDeviceResp)
	if err := d.command("query device", abi.IB_USER_VERBS_CMD_QUERY_DEVICE, new(abi.UverbsQueryDevice), &old.Base); err != nil {
		t.Fatal(err)
	}
	want := deviceAttr(old)
	want.Firmware, want.Extended = a.Firmware, true
	want.Caps, want.ODP, want.MaxDeviceMemory = a.Caps, a.ODP, a.MaxDeviceMemory
	want.TimestampMask, want.CoreClock = a.TimestampMask, a.CoreClock
	want.MaxModerationCount, want.MaxModerationPeriod = a.MaxModerationCount, a.MaxModerationPeriod
	if d := cmp.Diff(want, a); d != "" {
		t.Errorf("the two queries differ (-old +extended):\n%s", d)
	}
}
