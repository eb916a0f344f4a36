package uverbs_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// The tests that are named TestGuest run on the first RDMA device of the machine,
// which is soft-RoCE in the guest; on a machine without one they run on a ConnectX in
// software. Where the two differ by nature, guest_facts_test.go says how; what only
// one of them has, a test says by a declared skip.

// system is where the tests find their device.
type system struct {
	name string // of the device
	open func(name string) (*uverbs.Device, error)
	// fabric is the one in software that the device is of, nil on a machine with
	// RDMA devices.
	fabric *sim.Fabric
}

// guestSystem finds the device. What a program does on a ConnectX in software that a
// correct one does not do fails the test, and so does what it leaves behind there.
func guestSystem(t testing.TB) *system {
	t.Helper()
	all, err := uverbs.Devices()
	switch {
	case errors.Is(err, uverbs.ErrNoDevices):
		f := newGuestFabric(t)
		return &system{"sim0", func(name string) (*uverbs.Device, error) { return f.Open(name, nil) }, f}
	case err != nil:
		t.Fatal(err)
	}
	return &system{all[0].Name, func(name string) (*uverbs.Device, error) { return uverbs.Open(name, nil) }, nil}
}

// newGuestFabric makes a ConnectX whose table of addresses is as soft-RoCE's in the
// guest: a link-local one, then one of IPv4. Programs are root there, too.
func newGuestFabric(t testing.TB) *sim.Fabric {
	t.Helper()
	f, err := sim.New(&sim.Options{Privileged: true, Devices: []model.DeviceConfig{{Name: "sim0", Ports: []model.PortConfig{{GIDs: []model.GID{
		{Addr: [16]byte{0: 0xfe, 1: 0x80, 15: 1}, Type: model.GIDRoCE2},
		{Addr: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}, Type: model.GIDRoCE2},
	}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, v := range f.Model().Violations() {
			t.Errorf("the device saw what no correct program does: %s", v)
		}
		if left := f.Model().Device("sim0").Objects(); len(left) != 0 {
			t.Errorf("the program has left on the device: %v", left)
		}
	})
	return f
}

// openAddr opens the device that has the address.
func (s *system) openAddr(addr netip.Addr) (*uverbs.Device, error) {
	if s.fabric != nil {
		return s.fabric.OpenAddr(addr, nil)
	}
	return uverbs.OpenAddr(addr, nil)
}

// device opens the device and closes it after the test.
func (s *system) device(t testing.TB) *uverbs.Device {
	t.Helper()
	d, err := s.open(s.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close device: %v", err)
		}
	})
	return d
}

// objects counts what the device has, all programs' and the kernel's own, as "rdma
// resource" does.
func (s *system) objects(t testing.TB) map[string]uint64 {
	t.Helper()
	if s.fabric != nil {
		counts := make(map[string]uint64)
		for kind, n := range s.fabric.Model().Device(s.name).Objects() {
			counts[kind] = uint64(n)
		}
		return counts
	}
	c, err := nldev.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil || len(links) == 0 {
		t.Fatalf("%d devices, %v", len(links), err)
	}
	counts, err := c.ResourceCounts(links[0].Index)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// guestDevice opens the device and closes it after the test.
func guestDevice(t testing.TB) *uverbs.Device {
	t.Helper()
	return guestSystem(t).device(t)
}

// simulated says whether the tests' device is in software: it has no descriptors, and
// no kernel is below it.
func simulated() bool {
	_, err := uverbs.Devices()
	return errors.Is(err, uverbs.ErrNoDevices)
}

// waysToWait are those of package poll that sleep. Threads need descriptors for it.
func waysToWait() map[string]poll.Strategy {
	ways := map[string]poll.Strategy{"goroutine": poll.Event{}, "adaptive": poll.Adaptive{}}
	if !simulated() {
		ways["thread"], ways["adaptive thread"] = poll.Event{Thread: true}, poll.Adaptive{Thread: true}
	}
	return ways
}

// onMachine skips a test that is about what a kernel does, of which there is none
// below a device in software.
func (s *system) onMachine(t testing.TB, why string) {
	t.Helper()
	if s.fabric != nil {
		t.Skipf("declared skip: %s is in software, not soft-RoCE: %s", s.name, why)
	}
}

// The tests in the package itself cannot import package sim, which imports it.
func init() {
	uverbs.GuestSystem = func(t testing.TB) uverbs.GuestPlace {
		s := guestSystem(t)
		return uverbs.GuestPlace{Name: s.name, Open: s.open, Objects: func() map[string]uint64 { return s.objects(t) }, Simulated: s.fabric != nil}
	}
}
