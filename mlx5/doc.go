// Package mlx5 is the ConnectX machine over plain memory: what a driver of the device
// does in user space, without the system calls that come before it. It writes
// requests, reads completions, stores doorbells, and encodes what the kernel's driver
// wants to be told; it maps nothing and opens nothing.
//
//	size, err := mlx5.SizeSend(limits, mlx5.RC, 16, 1, 64, 0)
//	sq, err := mlx5.NewSQ(mlx5.SQConfig{Memory: ring, Record: record, Doorbell: bell, QPN: qpn, Size: size, Requests: requests})
//	q, err := mlx5.NewCQ(mlx5.CQConfig{Buffer: buffer, Record: other, UAR: uar, EntrySize: 64, Endpoints: eps, State: state})
//
//	seq, _ := requests.Stage(id, cq.OpSend, 5, false)
//	sq.Put(&cq.SendRequest{WRID: cq.MakeWRID(index, cq.SendSide, seq), Op: cq.OpSend, Flags: cq.Inline, Data: []byte("hello")})
//	requests.Commit()
//	sq.Publish() // rings the doorbell
//	n, _ := q.Poll(wcs)
//
// # What is here
//
// Queues: [SQ], [RQ] and [SRQ] write requests; [CQ] reads completions, and
// [CompressedCQ] those of a device that was told to compress them. They meet in the
// tables of package cq: a completion carries 16 bits that say where in its work queue
// the request stood, see workqueue.go. [SizeSend], [SizeRecv], [SizeShared] and
// [CQEntries] say how much memory each wants, [Records] hands out doorbell records,
// [UncachedDoorbell] and its likes are the registers.
//
// Payloads: the driver's part of the kernel's requests and replies, from
// [ContextRequest] to [ResizeCQ].
//
// Time: [Clock] turns the ticks of a completion's stamp into nanoseconds.
//
// Explanations: [ParseErrorCQE], [Syndrome], [VendorSyndrome] and [CheckSignature]
// read error CQEs that somebody pasted.
//
// # Layouts
//
// What the device reads and writes is big-endian; what the kernel does is in the
// order of the machine. A CQE is 64 bytes, as struct mlx5_cqe64, mlx5_err_cqe and
// mlx5_sig_err_cqe of linux/mlx5/device.h have it; of a 128-byte CQE it is the second
// half. Requests are as in linux/mlx5/qp.h, the payloads as in rdma/mlx5-abi.h.
// Everything that comes out of this package is in host byte order.
//
// # What the device may do
//
// The memory of queues is shared with a device that is not trusted. Whatever it
// writes to a completion queue, and whenever, no request ends that was not posted,
// none ends twice, and nothing outside of the queue is read or written: entries are
// read once, and only what the tables know is believed. Completions that belong to
// nothing are counted in the queue's [cq.State].
//
// # Concurrency
//
// One goroutine at a time uses an SQ, an RQ or an SRQ, and one polls and arms a CQ;
// which methods any goroutine may call, their comments say. Different queues have
// nothing to do with each other, except that a register which several send queues
// share must take doorbells of 8 bytes: [Doorbell] sees to that. Parsers, encoders
// and tables have no state.
//
// No fence stands between the owner word of a completion and the rest of it on
// amd64, and one for a batch on arm64: why that is right, and the build tag that puts
// one in, is in package mmio.
//
// # Errors
//
// Constructors say what was wrong with the memory or the sizes, what is allowed, and
// what to do. Posting and polling have no errors: what the queue was not made for
// panics, as an index out of range does, and what becomes of a request is in its
// completion. [CQ.Resize] and [Clock.Read] fail with [ErrResize] and [ErrClockBusy].
// The parsers fail with [ErrNotErrorCQE] or [ErrCompressedCQE], wrapped with the byte
// that decided; no bytes make them panic. Numbers that no table knows print as
// numbers.
package mlx5
