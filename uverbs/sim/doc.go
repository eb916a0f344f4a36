// Package sim is a fabric of ConnectX devices in software, used through package
// uverbs as the devices of a machine are, in one process, on any system and without
// privileges. What [net/http/httptest] is for HTTP, it is for RDMA.
//
//	fabric, err := sim.New(nil) // two RoCE devices, sim0 and sim1
//	dev, err := fabric.Open("sim0", nil)
//	defer dev.Close()
//	pd, err := dev.NewPD()
//	mem, err := uverbs.Alloc(1<<20, nil)
//	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite)
//	// ... all as on a real device; and what a real one does not do when asked:
//	err = fabric.Model().Script("request 3: drop\ntime 1s device=sim0: port 1 down")
//	err = fabric.Model().Device("sim1").SetPort(1, false)
//	wrong := fabric.Model().Violations()
//
// Behind it is package model, which answers the requests of the kernel's driver and
// reads the memory that a device would read. It is as strict as those are, and tells
// besides of what they would not notice.
//
// # Concurrency
//
// A [Fabric] may be used from any goroutine. It has no goroutine of its own: a device
// works inside the call that rings its doorbell, or from a timer of package time. An
// open device has one goroutine, that of its events, which ends with Close. All waiting is for channels and timers, so a program on a fabric that was
// made in a testing/synctest bubble runs there, where retries that take seconds take
// no time. A fabric from outside of the bubble has another clock: make it inside.
//
// # Errors
//
// New says which device or name it refuses, and why. All else fails as on a machine: with
// [*uverbs.Error], which wraps the errno, on every system the one of package syscall. Its text
// says besides what the driver found wrong with the request, of which a kernel only
// has the number.
package sim
