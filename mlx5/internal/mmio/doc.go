// Package mmio has the loads and stores whose order a device sees, named by what
// they are for. It knows nothing of queues.
//
//	cq.StoreRelease32(record, index)      // the doorbell record is ordinary memory
//	mmio.RecordBarrier()                  // it comes before the doorbell
//	mmio.StoreDoorbell64(register, first) // 8 bytes, one store
//
// and for a register in write-combining memory, instead of the last two:
//
//	mmio.StoreWC(register, first)
//	mmio.CopyWC(register, ring, pos, mask, blocks) // 64 bytes each, upwards
//
// # Why not sync/atomic
//
// A register page is not memory. On amd64 an atomic store is XCHG: it reads the
// register, which no device defines, and locks the bus to do it. A plain Go store
// is one the compiler may merge with the next to the same address, or split. So
// each of these stores is a function that the compiler cannot look into: in
// assembly on amd64 and arm64, never inlined on other 64-bit machines. On 32-bit
// machines an 8-byte store is what sync/atomic makes of it, which is one store on
// 386 and, on others, may be a pair of instructions that device memory does not
// serve: drive no device from those.
//
// # Order
//
// Requests are written first, then [RequestBarrier], then the doorbell record, then
// the register. One that is mapped uncached takes [RecordBarrier] and its 8 bytes with
// [StoreDoorbell64]. One that is mapped write-combining wants a barrier before, so that
// the record is seen first, and one after, which sends on their way what its buffer has
// gathered, also of 8 bytes: [StoreWC] and [CopyWC] have both.
//
// On amd64 the first two are nothing. Stores to write-back memory become visible
// in the order of the program, those to uncached memory stay behind them, and the
// compiler reorders no stores. Stores to write-combining memory do not stay
// behind, hence SFENCE. On arm64 they are DMB OSHST and DSB ST: the device is an
// observer outside of the inner domain, for which Go's own release stores are not
// made. Other machines get the strongest barrier that sync/atomic has; nothing was
// proved on them.
//
// # The read side, and why there is no fence on amd64
//
// A poller looks at the owner word of a completion and, if that is its own, reads
// the rest. Nothing stands between the two on amd64, and that is right under
// these conditions, all of which whoever makes a completion queue sees to:
//
//   - The ring is write-back memory of this process: anonymous, not a mapping of
//     the device, so that loads from it are ordinary ones.
//   - The owner word is loaded by a 32-bit atomic load at a multiple of 4. The
//     compiler moves no later load before it, and the hardware cannot tear it.
//   - Loads of amd64 are not reordered with other loads in write-back memory, and
//     no streaming load (MOVNTDQA) is used on the ring.
//   - The device writes the completion after the payload and the owner byte no
//     earlier than the other bytes, as PCI Express keeps the order of posted
//     writes, and the host is coherent with it.
//   - The rest is read after the load that found the entry, never kept from
//     before.
//
// The last is why a poller that saw an entry of the device's reads it anew. rdma-core
// and the kernel put LFENCE there, DPDK does not. Where any of it is in doubt, build
// with the tag goverbs_lfence: [ReadBarrier] is LFENCE then. Pollers call it once
// per batch, between the owner words and the bodies. On arm64 ReadBarrier is DMB
// OSHLD always, on other machines as above.
//
// # Concurrency
//
// Nothing here keeps state. Stores of several goroutines to one register need a
// lock around the doorbell record and the register together. In race builds a
// store to a register is a release of all before it, to whoever reads that word
// with sync/atomic: that is the edge that the device makes.
//
// # Errors
//
// There are none. A register is a multiple of 8, a BlueFlame block and its source
// a multiple of 64; whoever maps them checks that once.
package mmio
