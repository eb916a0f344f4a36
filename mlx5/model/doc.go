// Package model is a ConnectX in software: a fabric of devices that read work
// requests from the memory of programs, carry them out and write completions,
// and the kernel driver in front of them that answers uverbs ioctls. It runs in
// the process that uses it, on any system, without privileges.
//
//	m, err := model.New(model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "sim1"})
//	f, err := m.Device("sim0").Open(model.Local{}, nil)
//	err = f.Ioctl(request)          // GET_CONTEXT, ALLOC_PD, CQ_CREATE, QP_CREATE, ...
//	page, err := f.Map(offset, 4096, true) // a UAR: the memory is the caller's
//	// ... write a request to the send queue and its doorbell record ...
//	f.Ring(page.ID, 0x800, firstEightBytes) // the device works here
//	// ... completions are in the ring ...
//	err = m.Inject(model.Fault{At: model.AtRequest, Nth: 3, Do: model.Drop{}})
//	f.Close()
//
// It shares no encoder and no decoder with package mlx5, so that one mistake
// cannot cancel another, and it is no kinder than the driver and the hardware: what
// they refuse it refuses, with their errno or their syndrome. What they would
// not notice but a correct program does not do is collected in
// [Model.Violations]. [Model.Trace] tells all that happens while it does.
//
// # Concurrency
//
// All methods may be called from any goroutine. One lock orders everything.
// There is no goroutine behind it: a doorbell does the device's work inside the
// call of [File.Ring] or [File.Poll], and time-outs come from timers of package time,
// which hold nothing but themselves. So a program on it runs in a testing/synctest
// bubble, where waiting for four seconds takes none. Programs wait on channels, of
// [EventQueue.Ready].
//
// # Errors
//
// Calls of the kernel's return a [request.Errno], bare or wrapped in a
// [request.Error] that says what was wrong: package abi/request's numbers, not
// the host's, for on other systems they differ. Failures of requests are
// completions, as on the device.
package model
