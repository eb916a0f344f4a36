// Package rxe is the soft-RoCE machine over plain memory: it writes work
// requests to the rings that the rdma_rxe driver shares with a process, and
// reads completions from them. It makes no system call and maps nothing;
// package uverbs does both and hands the memory over.
//
//	q, err := rxe.NewCQ(cqMemory, &endpoints, &state)
//	sq, err := rxe.NewSQ(sqMemory, 1, 64)
//	sq.Put(&cq.SendRequest{WRID: id, Op: cq.OpSend, Length: 8, SGEs: sges})
//	sq.Publish()
//	ringDoorbell() // a system call: until it, the driver does not look
//	for drained := false; !drained; {
//		var n int
//		n, drained = q.Poll(wcs[:])
//		handle(wcs[:n])
//	}
//
// # Layouts
//
// Rings, work requests and completions are struct rxe_queue_buf, rxe_send_wqe
// and rxe_recv_wqe of rdma/rdma_user_rxe.h and struct ib_uverbs_wc of
// rdma/ib_user_verbs.h, as package abi has them. They are in the machine's byte
// order but for immediate data. Opcodes of requests are the headers'; opcodes
// and flags of completions are the kernel's internal ones
// (include/rdma/ib_verbs.h), which soft-RoCE passes on unchanged.
//
// # Kernels
//
// Linux 5.10 and later. The size of a ring's elements differs between them
// (completions: 64 bytes on 5.10, 128 on 6.1) and is read from the ring. Both
// indices of a ring are kept masked in memory, the one form that all kernels
// understand. Kernels from 5.14 up to, not including, 6.1.20 and 6.3 publish
// completions without a release store: on machines with weaker ordering than
// amd64 a poller may see the index before the completion there, and nothing in
// user space can mend that.
//
// # Hostile memory
//
// What the driver writes is checked, not believed. Geometry is read when a
// queue is made and never again; indices are masked; a completion counts only
// if it names, by number, a request that is posted and has not ended. Whatever
// stands in a ring, also if all of it turns to zeros at any time, no call
// panics, leaves the ring, or runs for longer than one lap, and no request ends
// twice.
//
// # Concurrency
//
// Each queue has one user at a time: a [CQ] its poller, an [SQ] and an [RQ] its
// poster, and these may be different goroutines. [CQ.Empty] may be called from
// any goroutine. Nothing here locks, blocks or allocates once the queues are
// made.
//
// # Errors
//
// Only the constructors return errors: a ring's header contradicts its memory
// or is too small for what the queue is to hold. The text has the numbers.
// Posting checks nothing that its caller has to have checked already; a request
// that does not fit its slot panics, as an index out of range does.
package rxe
