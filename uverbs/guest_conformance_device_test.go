package uverbs_test

import (
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// The tests that are named TestGuestConformance check what rdma-core's own tests check
// and no other test here does, on whatever device the guest tests have.
// testdata/conformance.md says which of those tests that is.

// list is what discovery says of the machine's devices, or of the fabric's.
func (s *system) list(t *testing.T) []uverbs.DeviceInfo {
	t.Helper()
	list := uverbs.Devices
	if s.fabric != nil {
		list = s.fabric.Devices
	}
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The list of devices has ours, once, and every device in it opens as the one that it
// says.
func TestGuestConformanceDevice_List(t *testing.T) {
	s := guestSystem(t)
	seen := make(map[string]bool)
	for _, info := range s.list(t) {
		if seen[info.Name] {
			t.Errorf("%s is listed twice", info.Name)
		}
		seen[info.Name] = true
		d, err := s.open(info.Name)
		if err != nil {
			t.Errorf("open %s: %v", info.Name, err)
			continue
		}
		if got := d.Info(); d.Name() != info.Name || got.NodeGUID != info.NodeGUID || got.Driver != info.Driver || got.Ports != info.Ports {
			t.Errorf("%s opened is %+v, the list says %+v", info.Name, got, info)
		}
		if err := d.Close(); err != nil {
			t.Errorf("close %s: %v", info.Name, err)
		}
		if err := d.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("close %s again: %v", info.Name, err)
		}
	}
	if !seen[s.name] {
		t.Errorf("%s is not in the list: %v", s.name, seen)
	}
}

// A device may be open more than once, and each has its own objects.
func TestGuestConformanceDevice_Open(t *testing.T) {
	s := guestSystem(t)
	one, other := s.device(t), s.device(t)
	pd, err := one.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	if pd.Device() != one {
		t.Error("the protection domain is of another device")
	}
	if err := other.Close(); err != nil {
		t.Errorf("close of one that has no objects: %v", err)
	}
	if _, err := other.NewPD(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a protection domain of a closed device: %v", err)
	}
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
}

// What a device says of itself can be: it has identity, queue pairs, completion queues,
// regions, pages and partition keys.
func TestGuestConformanceDevice_Query(t *testing.T) {
	d := guestDevice(t)
	a := d.Attr()
	page := uint64(os.Getpagesize())
	for what, ok := range map[string]bool{
		"node GUID":                a.NodeGUID != 0,
		"system image GUID":        a.SysImageGUID != 0,
		"regions above a page":     a.MaxMRSize > page,
		"pages of the machine's":   a.PageSizes&page != 0,
		"vendor":                   a.VendorID != 0,
		"queue pairs":              a.MaxQP > 0,
		"requests of a queue pair": a.MaxQPWR > 0,
		"spans of a request":       a.MaxSGE > 0,
		"spans of a read":          a.MaxSGERead >= 0,
		"completion queues":        a.MaxCQ > 0,
		"completions":              a.MaxCQE > 0,
		"regions":                  a.MaxMR > 0,
		"protection domains":       a.MaxPD > 0,
		"partition keys":           a.MaxPKeys > 0,
		"ports":                    a.Ports > 0 && a.Ports == d.Info().Ports,
	} {
		if !ok {
			t.Errorf("%s: not so in %+v", what, a)
		}
	}
}

// What a port says of itself has names, and there are as many GIDs and keys as it says.
func TestGuestConformanceDevice_Port(t *testing.T) {
	d := guestDevice(t)
	for port := 1; port <= d.Attr().Ports; port++ {
		p, err := d.PortAttr(port)
		if err != nil {
			t.Fatal(err)
		}
		for what, ok := range map[string]bool{
			"number":     p.Port == port,
			"state":      p.State >= uverbs.PortDown && p.State <= uverbs.PortActiveDefer,
			"MTU":        p.ActiveMTU >= 256 && p.ActiveMTU <= p.MaxMTU && p.MaxMTU <= 4096,
			"width":      p.Width > 0,
			"speed":      p.LaneGbps > 0 && p.Gbps() > 0,
			"link layer": p.LinkLayer == uverbs.LinkEthernet || p.LinkLayer == uverbs.LinkInfiniBand,
			"message":    p.MaxMessage > 0x1000,
			"tables":     p.GIDs > 0 && p.PKeys > 0 && p.PKeys <= d.Attr().MaxPKeys,
		} {
			if !ok {
				t.Errorf("port %d: %s: not so in %+v", port, what, p)
			}
		}
		if _, err := d.GID(port, p.GIDs); err == nil {
			t.Errorf("port %d has %d GIDs, and one after the last", port, p.GIDs)
		}
	}
	for _, port := range []int{0, -1, d.Attr().Ports + 1, d.Attr().Ports + 10} {
		if p, err := d.PortAttr(port); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("port %d of %d: %+v, %v", port, d.Attr().Ports, p, err)
		}
	}
}
