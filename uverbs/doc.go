// Package uverbs is RDMA verbs without C: it opens RDMA devices through the
// kernel's uverbs interface, registers memory, makes completion queues and queue
// pairs, and owns their queue memory, so that posting work and polling
// completions takes no system call beyond what the device itself needs.
//
//	dev, err := uverbs.Open("rxe0", nil)
//	pd, err := dev.NewPD()
//	mem, err := uverbs.Alloc(1<<20, nil)
//	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite)
//	q, err := dev.NewCQ(256, nil)
//	qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q})
//	qp.RecvQueue().Recv(1, mr.Span(0, 4096))
//	err = qp.RecvQueue().Flush()
//	peer, err := qp.Handshake(ctx, conn, mr.Remote())
//	qp.SendQueue().Write(2, peer.Regions[0].At(0), mr.Span(4096, 64))
//	err = qp.SendQueue().Flush()
//
// Completions come from [CQ.Poll], or from package poll, which waits for them.
//
// # Contracts
//
// A [SendQueue] or [RecvQueue] stages requests; errors stick; Flush hands all of
// them to the device, or none. A request that was flushed comes to exactly one
// end, on the CQ. Until then its buffer belongs to the device.
//
// Every queue pair claims room on its CQ for all that it can have outstanding,
// and NewQP refuses what does not fit, so that a CQ does not overrun.
//
// Memory from [Alloc] belongs to the caller: neither Device.Close nor the
// garbage collector unmaps it. Starting children during traffic is harmless.
//
// # Concurrency
//
// Send queue, receive queue (a queue pair's or an SRQ's) and CQ belong to one
// goroutine each at a time, which may be three different ones. All other methods, Close included, may be
// called from any goroutine: a poller or poster inside a call gets os.ErrClosed.
// An open Device has two goroutines of its own: for asynchronous events, and, on
// Linux, one that watches whether the device is removed. See [EventDeviceGone].
//
// # Completion queues
//
// Device.CQDepth reckons how deep a queue has to be, and CQOptions has what else there
// is to choose: events and their vector, growth, the NUMA node of the ring (OnNode), and
// on ConnectX time stamps, which Device.Clock translates, entries of 128 bytes,
// IgnoreOverrun, and Compress. Package poll has the ways to wait, Group for many queues,
// and moderation.
//
// # Watching
//
// [CQOptions].Stats makes a completion queue count what its poller finds, [CQ.Stats]
// returns it, and [CQ.WriteOpenMetrics], or [cq.WriteOpenMetrics] for many queues and
// waiters at once, writes it for a monitoring system. [CQ.Usage] says how full a queue
// is, StatsOptions.OnHighWater tells when it fills up, and [CQOptions].Grow makes it
// deeper then. A queue without these options counts nothing and takes no longer.
//
// Levels to be told of: any overrun or stray completion; a share of empty polls above
// 30% while the service is busy; a 99th percentile of post-to-completion times above
// what the service can afford. See [CQStats].
//
// # Errors
//
// A call that the kernel refused returns [*Error], which wraps the errno.
// [ErrNotSupported], [ErrInUse], [ErrQueueFull], [ErrCQFull], [ErrState],
// [ErrBusy], [ErrDeviceGone], [ErrOverrun], [ErrInvalid], [ErrBounds],
// [ErrNoEvents], [ErrGRH], [ErrNoDevices], [ErrUnknownDevice] and os.ErrClosed are for
// errors.Is. A failed request is no call that fails: see [WC.Err].
//
// A request that fails takes its queue pair to ERR, and those after it are flushed.
// [QP.FirstFailure] is the one that was no flush, [cq.Status.Fault] and
// [cq.Status.Remedy] say where to look and what helps, [CQ.Explain] says all that is
// known of it, and [QP.Recover] makes the queue pair good again on the same CQ.
//
// # Devices
//
// Soft-RoCE (driver rxe), and ConnectX-4 and later (driver mlx5), with the same
// program: what only one of them has says so where it is described. Devices of other
// drivers can be listed, opened and asked. Package sim is a fabric of ConnectX in
// software, in the process, for tests and for machines without devices.
//
// # Kernels
//
// Linux 5.10 and newer, through ioctl only. The one exception is soft-RoCE's
// send doorbell, which uses the older write() where the kernel lets it, since
// that is cheaper; GOVERBS_NOWRITE=1 in the environment forbids it.
// GOVERBS_DEBUG=ioctl prints every ioctl and its reply to standard error.
// On other systems the package compiles and finds no devices but those of package
// sim.
package uverbs
