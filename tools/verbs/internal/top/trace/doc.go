// Package trace looks at the completion queues of this machine from inside the
// kernel, without touching the programs that own them: how full a soft-RoCE
// ring is, whether a CQ is armed, how many events were delivered and read, how
// long a reader took to wake, which uverbs calls a process makes.
//
//	t, err := trace.Open(trace.Options{})
//	if err != nil {
//		return err // a sentence: what is missing, and what to do
//	}
//	defer t.Close()
//	cqs, err := t.Snapshot(dump) // dump makes the RES_CQ_GET dump of each device
//	if err != nil {
//		return err
//	}
//	for id, q := range cqs {
//		if q.Ring != nil {
//			fmt.Println(id.DeviceIndex, id.ResID, q.Ring.Occupied, "of", q.Ring.Usable)
//		}
//	}
//
// # How it samples
//
// When this process asks RDMA netlink for the CQs of a device, the kernel calls
// fill_res_cq_entry once for each of them and holds a reference meanwhile. A
// probe there that heeds this process alone sees every CQ of the machine, with
// no probe on any path of data: programs that send and receive pay nothing.
// That, and a probe on the CQ errors that uverbs reports, is what [Open] does
// when nothing is asked for.
//
// Three more levels are for those who ask. [Options.Events] puts a probe on
// each completion event and on its reading, [Options.Syscalls] on each uverbs
// ioctl and write. Both are paths of data: a program that waits for events goes
// through the first for each of them, and with soft-RoCE the doorbell of each
// send is a write. So they are not on by default, although an event costs the
// kernel ten times what the probes add. [Options.EveryCQE] has a probe on each
// completion that soft-RoCE writes, which costs most.
//
// The programs are made by the assembler of cilium/ebpf when Open runs, with
// the offsets of kernel structs from the running kernel's own BTF; one binary
// fits all kernels. Probes are attached once and stay until [Tracer.Close].
//
// # Concurrency
//
// A Tracer may be used from any goroutine; calls wait for each other. The dump
// that [Tracer.Snapshot] runs may come from any thread of this process.
//
// # Errors
//
// Errors are sentences for the person at the terminal. Where a level cannot be
// had, the others go on without it and [Tracer.Levels] says why. Lacking
// privilege is [io/fs.ErrPermission], another operating system
// [errors.ErrUnsupported], use after Close [io/fs.ErrClosed].
//
// # What is left behind
//
// Nothing: maps, programs and links are file descriptors and nothing is pinned,
// so the kernel removes all of it when the process ends, however it ends.
package trace
