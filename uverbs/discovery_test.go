package uverbs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// devicesOn lists the devices of a made-up system.
func devicesOn(k *fakekernel.Kernel) ([]DeviceInfo, error) {
	s := on(k)
	return discover(s.kernel, s.dial)
}

func TestDiscoverByNetlink(t *testing.T) {
	k := fakekernel.New(fakekernel.Device{}, fakekernel.Device{Name: "mlx5_0", Driver: abi.RDMA_DRIVER_MLX5, Netdev: "ens1"})
	got, err := devicesOn(k)
	if err != nil {
		t.Fatal(err)
	}
	want := []DeviceInfo{
		{
			Name: "rxe0", Driver: DriverRXE, UverbsName: "uverbs0", Path: "/dev/infiniband/uverbs0", Rdev: 231<<8 | 192,
			ABIVersion: 2, NodeType: nldev.NodeCA, NodeGUID: 0x020000fffe000001, SysImageGUID: 0x020000fffe000001,
			Protocol: "roce", Ports: 1, Netdev: "eth0",
		},
		{
			Name: "mlx5_0", Index: 1, Driver: DriverMlx5, UverbsName: "uverbs1", Path: "/dev/infiniband/uverbs1", Rdev: 231<<8 | 193,
			ABIVersion: 2, NodeType: nldev.NodeCA, NodeGUID: 0x020000fffe000002, SysImageGUID: 0x020000fffe000002,
			Protocol: "roce", Ports: 1, Netdev: "ens1",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if leaks := k.Leaks(); len(leaks) > 0 {
		t.Errorf("left open: %q", leaks)
	}

	// /sys tells the same, but for what only netlink knows.
	k.SetNetlink(syscall.EPROTONOSUPPORT)
	got, err = devicesOn(k)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].Index, want[i].Protocol = -1, ""
	}
	want[1].Driver = DriverUnknown // there is no PCI device to look at
	slices.Reverse(want)           // by name
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("by /sys (-want +got):\n%s", d)
	}
}

func TestDevicesThatDoNotOpen(t *testing.T) {
	for what, c := range map[string]struct {
		dev  fakekernel.Device
		want string
		is   error
	}{
		"permission": {
			fakekernel.Device{NoPermission: true},
			"goverbs: rxe0: open /dev/infiniband/uverbs0: permission denied (this user may not open it", fs.ErrPermission,
		},
		"no file": {
			fakekernel.Device{NoNode: true},
			"(there is no such file: is udev running? A container needs the device passed in (docker run --device /dev/infiniband/uverbs0))", fs.ErrNotExist,
		},
		"no uverbs": {
			fakekernel.Device{NoUverbs: true}, "goverbs: rxe0 has no uverbs file: is the module ib_uverbs loaded?", nil,
		},
	} {
		for _, netlink := range []error{nil, syscall.EPERM} {
			t.Run(fmt.Sprintf("%s, netlink %v", what, netlink), func(t *testing.T) {
				k := fakekernel.New(c.dev, fakekernel.Device{})
				k.SetNetlink(netlink)
				list, err := devicesOn(k)
				if err != nil || len(list) != 2 {
					t.Fatalf("%v, %v", list, err)
				}
				err = list[0].Err
				if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%v,\nwant %s", err, c.want)
				}
				if list[1].Err != nil {
					t.Errorf("the other device: %v", list[1].Err)
				}
				if _, err := on(k).open("rxe0", nil); err == nil {
					t.Error("it opens nevertheless")
				}
			})
		}
	}
}

func TestNoDevices(t *testing.T) {
	k := fakekernel.New()
	for what, c := range map[string]struct {
		netlink error
		want    string
	}{
		"RDMA without devices": {nil, "no device in this network namespace"},
		"no RDMA":              {nldev.ErrNoRDMA, "ib_core is not loaded; /sys/class/infiniband does not exist"},
	} {
		k.SetNetlink(c.netlink)
		list, err := devicesOn(k)
		if len(list) != 0 || !errors.Is(err, ErrNoDevices) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", what, list, err)
		}
		if !strings.Contains(err.Error(), "rdma link add") {
			t.Errorf("%s: no way out is named: %v", what, err)
		}
	}
}

func TestOpenUnknownDevice(t *testing.T) {
	k := fakekernel.New(fakekernel.Device{}, fakekernel.Device{})
	_, err := on(k).open("mlx5_7", nil)
	if !errors.Is(err, ErrUnknownDevice) || !strings.Contains(err.Error(), `"mlx5_7": there are rxe0, rxe1`) {
		t.Error(err)
	}
}

// A driver that discovery cannot name is found by trying.
func TestOpenWithoutKnowingTheDriver(t *testing.T) {
	k := fakekernel.New(fakekernel.Device{Name: "eth_rdma", Driver: abi.RDMA_DRIVER_MANA})
	k.SetNetlink(syscall.EPERM)
	d, err := on(k).open("eth_rdma", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Info().Driver != DriverMANA {
		t.Errorf("driver %v", d.Info().Driver)
	}
}

// brokenNetlink answers some questions with errors.
type brokenNetlink struct {
	netlink
	links, ports, chardev error
}

func (b brokenNetlink) Links() ([]nldev.Link, error) {
	if b.links != nil {
		return nil, b.links
	}
	return b.netlink.Links()
}

func (b brokenNetlink) Ports(i uint32) ([]nldev.Port, error) {
	if b.ports != nil {
		return nil, b.ports
	}
	return b.netlink.Ports(i)
}

func (b brokenNetlink) Chardev(i uint32, kind string) (nldev.Chardev, error) {
	if b.chardev != nil {
		return nldev.Chardev{}, b.chardev
	}
	return b.netlink.Chardev(i, kind)
}

func TestBrokenNetlink(t *testing.T) {
	for what, c := range map[string]struct {
		broken brokenNetlink
		index  int // -1 says that /sys answered
		err    bool
	}{
		"garbage for links":      {brokenNetlink{links: nldev.ErrMalformed}, -1, false},
		"no answer about files":  {brokenNetlink{chardev: syscall.EINVAL}, -1, false},
		"garbage about the file": {brokenNetlink{chardev: fmt.Errorf("%w", nldev.ErrMalformed)}, -1, false},
		"gone meanwhile":         {brokenNetlink{chardev: syscall.ENODEV}, 0, true},
		"no answer about ports":  {brokenNetlink{ports: syscall.EINVAL}, 0, false},
	} {
		k := fakekernel.New(fakekernel.Device{})
		list, err := discover(k, func() (netlink, error) {
			n, err := on(k).dial()
			c.broken.netlink = n
			return c.broken, err
		})
		if err != nil || len(list) != 1 || list[0].Index != c.index || (list[0].Err != nil) != c.err {
			t.Errorf("%s: %+v, %v", what, list, err)
		}
	}
}

// renamed is a system whose udev has named a device file otherwise.
type renamed struct {
	kernel.Kernel
	opened []string
}

func (r *renamed) Open(path string, rdev uint64) (kernel.File, error) {
	r.opened = append(r.opened, path)
	if path == "/dev/char/231:192" {
		path = "/dev/infiniband/uverbs0"
		return r.Kernel.Open(path, rdev)
	}
	return nil, syscall.ENXIO
}

func TestRenamedDeviceFile(t *testing.T) {
	k := fakekernel.New(fakekernel.Device{})
	r := &renamed{Kernel: k}
	list, err := discover(r, on(k).dial)
	if err != nil || list[0].Err != nil || list[0].Path != "/dev/char/231:192" {
		t.Errorf("%+v, %v", list, err)
	}
	if d := cmp.Diff([]string{"/dev/infiniband/uverbs0", "/dev/char/231:192"}, r.opened); d != "" {
		t.Error(d)
	}
}

// askedNetlink notes of which devices something is asked.
type askedNetlink struct {
	netlink
	asked map[uint32]int
}

func (a askedNetlink) Ports(index uint32) ([]nldev.Port, error) {
	a.asked[index]++
	return a.netlink.Ports(index)
}

func (a askedNetlink) Chardev(index uint32, kind string) (nldev.Chardev, error) {
	a.asked[index]++
	return a.netlink.Chardev(index, kind)
}

// Open by a name asks nothing of other devices, and opens no file but that of its own, wherever udev
// has put it, once.
func TestOpenAsksOfOneDevice(t *testing.T) {
	k := fakekernel.New(fakekernel.Device{}, fakekernel.Device{Name: "rxe1"}, fakekernel.Device{Name: "rxe2"})
	r := &renamed{Kernel: k}
	asked := map[uint32]int{}
	s := system{kernel: r, dial: func() (netlink, error) {
		n, err := on(k).dial()
		return askedNetlink{n, asked}, err
	}}
	d, err := s.open("rxe0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if asked[0] != 1 {
		t.Errorf("%d questions about the device, want that for its file alone", asked[0])
	}
	for range 2 {
		if info := d.Info(); info.Path != "/dev/char/231:192" || info.Netdev != "eth0" {
			t.Errorf("%+v", info)
		}
		if asked[0] != 2 {
			t.Errorf("%d questions about the device, want one more, for its network device", asked[0])
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"/dev/infiniband/uverbs0", "/dev/char/231:192"}, r.opened); d != "" {
		t.Error(d)
	}
	if len(asked) != 1 {
		t.Errorf("asked of devices: %v", asked)
	}
	if _, err := s.open("rxe7", nil); !errors.Is(err, ErrUnknownDevice) || !strings.Contains(err.Error(), "rxe0, rxe1, rxe2") {
		t.Error(err)
	}
}

func TestGarbageInSysfs(t *testing.T) {
	for name, text := range map[string]string{
		"class/infiniband/rxe0/node_guid":                 "hello",
		"class/infiniband/rxe0/node_type":                 "CA",
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": "../eth0",
		"class/infiniband/rxe0/fw_ver":                    "\x1b[2J",
		"class/infiniband_verbs/uverbs0/dev":              "231",
		"class/infiniband_verbs/uverbs0/ibdev":            "a/b",
		"class/infiniband_verbs/uverbs0/abi_version":      "-1",
		"class/infiniband_verbs/uverbs 1/abi_version":     "1",
		"class/infiniband/rx\x01e/node_type":              "1: CA",
		"class/infiniband/rxe0/sys_image_guid":            strings.Repeat("0", 5000),
	} {
		k := fakekernel.New(fakekernel.Device{})
		files := k.Sysfs().(fstest.MapFS)
		files[name] = &fstest.MapFile{Data: []byte(text)}
		if list, err := sysfsDevices(files); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s is %.20q: %v, %v", name, text, list, err)
		}
	}
}

func TestDriverNames(t *testing.T) {
	for d, want := range map[Driver]string{DriverRXE: "rxe", DriverMlx5: "mlx5", DriverIonic: "ionic", 99: "Driver(99)", 1 << 31: "Driver(2147483648)"} {
		if d.String() != want {
			t.Errorf("%v, want %s", d, want)
		}
	}
	for d := range driverNames {
		if driverNames[d] == "" {
			t.Errorf("driver %d has no name", d)
		}
	}
}
