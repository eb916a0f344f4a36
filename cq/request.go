package cq

// SGE is a scatter/gather element: a piece of registered local memory.
type SGE struct {
	Addr   uint64 // virtual address
	Length uint32 // bytes
	LKey   uint32
}

// SendFlags modify a send-side request.
type SendFlags uint8

const (
	// Unsignaled: no completion if the request succeeds. Its buffer is free
	// again, and its room in the queue comes back, when a later request of
	// the same queue has completed. (The zero value completes, so that
	// nobody waits for ever by forgetting a flag.)
	Unsignaled SendFlags = 1 << iota
	// Fence: do not start before the reads and atomics posted earlier have
	// ended.
	Fence
	// Solicited: raise an event at a receiver that armed for solicited
	// completions only.
	Solicited
	// Inline: copy the data into the request; the buffer may be reused at
	// once.
	Inline
)

// SendRequest is a send-side work request as a provider's ring takes it. All
// numbers are in host byte order. WRID is what the device is told; the ring
// hands it back in the completion.
type SendRequest struct {
	WRID       uint64
	Op         Opcode
	Flags      SendFlags
	Imm        uint32 // OpSendImm, OpWriteImm
	RemoteAddr uint64 // all that name the peer's memory; OpBindMW: where the window begins
	RKey       uint32 // with RemoteAddr; OpBindMW: the window's from then on
	Length     uint32 // sum over SGEs, or len(Data)
	SGEs       []SGE
	Data       []byte // with Inline, instead of SGEs
	// InvalidateRKey is the key that OpSendInvalidate takes from the peer's
	// memory window and OpLocalInvalidate from one of this side's.
	InvalidateRKey uint32
	// Operand is what OpCompareSwap stores where it finds Compare, what
	// OpFetchAdd adds, and what OpAtomicWrite writes, with Length 8 and
	// neither SGEs nor Data.
	Operand, Compare uint64
	// OpBindMW only: the window's key until then, its size in bytes, the
	// lkey of the region that it opens and the rights that it gives, as in
	// enum ib_uverbs_access_flags. Length is 0.
	WindowRKey, WindowLKey uint32
	WindowBytes            uint64
	WindowAccess           uint32
	// OpFlush only, with Length as the size of the range: what is flushed to
	// (enum ib_placement_type), and whether the whole region is meant.
	FlushType  uint8
	FlushWhole bool
	// Datagram queues only: the device's number of the address handle, which
	// is not 0, and the queue pair at that address and its Q_Key.
	AH, DestQPN, QKey uint32
}

// SendRing is the send queue of a provider. One goroutine at a time uses it.
type SendRing interface {
	// Put writes r at the next index. The device does not look at it yet.
	// The caller has checked that r fits the queue and that there is room.
	Put(r *SendRequest)
	// Publish makes all that was Put visible to the device. It does not
	// ring a doorbell that takes a system call.
	Publish()
	// Rollback takes the last n requests back, published or not. The caller
	// knows that the device has not looked at them.
	Rollback(n uint32)
	// Empty says whether the device is done with all that was published,
	// though completions may still be on their way. Any goroutine may call
	// it.
	Empty() bool
}

// RecvRing is the receive queue of a provider. One goroutine at a time uses it.
type RecvRing interface {
	// Put writes a receive at the next index. The caller has checked that
	// there is room and that the queue takes so many elements.
	Put(wrid uint64, sges []SGE)
	// Publish hands all that was Put to the device.
	Publish()
	// Rollback takes the last n requests back, which were not published.
	Rollback(n uint32)
	// Empty is as in SendRing.
	Empty() bool
}

// CompletionRing is the completion queue of a provider. One goroutine at a time
// uses it.
type CompletionRing interface {
	// Poll decodes at most len(wcs) completions and gives their entries
	// back to the device, unless the queue's State says by then that it is
	// closed. Entries that belong to no posted request are dropped and
	// counted in State. drained says that none was left unread.
	Poll(wcs []WC) (n int, drained bool)
	// ReturnShared ends the receives of shared queues whose completions were
	// never polled, so that their slots are not lost with the ring. The
	// queue is closed. Any goroutine may call it, also beside Poll.
	ReturnShared()
	// Consumed is the number of entries that Poll has read so far, modulo
	// 2^32, Produced how many the device has added, which any goroutine may
	// ask, and Capacity how many the ring holds at most.
	Consumed() uint32
	Produced() uint32
	Capacity() uint32
	// Empty says whether all that the device has written was read and given
	// back. Any goroutine may call it.
	Empty() bool
	// Holds says whether the device has written at least n entries that Poll has
	// not given back, without looking at them all where it can. Any goroutine may
	// call it; for one that is not the poller it is a gauge, which may be wrong
	// while the poller moves.
	Holds(n uint32) bool
}
