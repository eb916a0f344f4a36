package uverbs

import "testing"

// GuestPlace is where the tests that are named TestGuest find their device.
type GuestPlace struct {
	Name string // of the device
	Open func(name string) (*Device, error)
	// Objects counts what the device has, by kind.
	Objects func() map[string]uint64
	// Simulated: it is a ConnectX in software.
	Simulated bool
}

// GuestSystem finds the device. It is set by guest_device_test.go, for the tests in
// this package, unlike those, cannot import package sim.
var GuestSystem func(t testing.TB) GuestPlace

// device opens the device and closes it after the test.
func (p GuestPlace) device(t testing.TB) *Device {
	t.Helper()
	d, err := p.Open(p.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// onMachine skips a test that is about what a kernel does.
func (p GuestPlace) onMachine(t testing.TB, why string) {
	t.Helper()
	if p.Simulated {
		t.Skipf("declared skip: %s is in software, not soft-RoCE: %s", p.Name, why)
	}
}
