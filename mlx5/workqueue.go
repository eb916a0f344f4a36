package mlx5

// How a completion finds its request
//
// The device keeps no id. A CQE says which queue pair it belongs to and, in the 16
// bits of wqe_counter, where in its work queue the request stood:
//
//   - send queues: the index that the request has in its control segment, which
//     counts blocks of 64 bytes since the queue was last reset and is not masked
//     by the size of the queue: the block that the request begins with;
//   - receive queues: the count of receives before it, since the last reset;
//   - shared receive queues: the index of the element of the ring.
//
// The ring that writes a request enters that position in the table of its queue,
// a [cq.Requests] or, of a shared receive queue, a [cq.SharedRequests], which the
// constructor of the ring is given. It does so in Put, which comes after Stage and
// before Commit:
//
//	q.requests.Place(requestNumber(r.WRID), uint16(q.next))
//
// The poller goes back from there with Front, Find and At. Rollback needs
// nothing: what is staged next is placed anew. After a reset, which leaves nothing
// outstanding, positions begin at 0 again while the numbers of requests go on.
//
// A shared receive queue is told with Positions how many elements it has, once. An
// element is free again when the slot of the request that stood in it is staged
// for another: two requests with the same slot, which is the low bits of the
// number, never are outstanding together. The device must know an element's
// successor when the element is posted, so the ring takes from a list of its own
// in which at least one element more is free than requests can be posted.

// requestNumber is the number, in the table of its queue, of a request that is
// Put under wrid.
func requestNumber(wrid uint64) uint32 { return uint32(wrid) }
