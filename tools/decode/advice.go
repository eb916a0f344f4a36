package decode

import (
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// advice is what a status usually means, for somebody who never saw one, and
// what to look at first, most likely first.
type advice struct {
	means string
	look  []string
}

// adviceFor is the advice on a status; there is none where InfiniBand defines no such status.
func adviceFor(s cq.Status) advice {
	if s >= cq.Status(len(advices)) {
		return advice{}
	}
	return advices[s]
}

var advices = [...]advice{
	cq.StatusLocalLength: {
		"A message did not fit. Either a message came in that is longer than the buffer of the receive, or a request was posted that is longer than the device or the path MTU (datagrams) allows.",
		[]string{
			"Compare the length that the peer sends with the length of the posted receives; a datagram needs 40 bytes more for its header.",
			"Datagrams: the message must fit the MTU of the path.",
			"Reads: the answer must fit the buffers of the request exactly.",
		},
	},
	cq.StatusLocalQPOperation: {
		"The device found the request itself malformed, or not allowed on this queue pair. This is a bug of the program or the driver that built it, not of the network.",
		[]string{
			"Look at the fields of the request: number of buffers, inline size, opcode for this transport, address handle for datagrams.",
			"If the vendor code says that the request is badly formed, check that nothing writes to the send queue's memory: two threads posting without a lock, or a request overwritten before it was done.",
		},
	},
	cq.StatusLocalEEC: {
		"An error of reliable datagrams, which no device of today implements. The code is probably damaged.",
		[]string{"Check that the text was pasted unaltered."},
	},
	cq.StatusLocalProtection: {
		"A buffer of the request on this machine is not covered by its memory key: wrong lkey, wrong address or length, memory region already deregistered, or registered in another protection domain.",
		[]string{
			"Check that the region is still registered: deregistering before the completion is the most common cause.",
			"Check address and length of each buffer against its region, and that region and QP are of the same protection domain.",
			"Receives and reads need local write permission on the region.",
			"GPU memory: check that peer memory (nvidia-peermem or dma-buf) works and that PCIe ACS and the IOMMU let the adapter reach the GPU.",
		},
	},
	cq.StatusFlushed: {
		"The request was never tried: its queue pair was in the error state already. This is a consequence. The first error on the same queue pair, here or at the peer, is the cause.",
		[]string{
			"Look further up for the first error that is not a flush, on this QP.",
			"If there is none, look at the peer's log: it may have closed the connection, and this is the ordinary end of a connection with receives still posted.",
		},
	},
	cq.StatusMWBind: {
		"A memory window could not be bound, or a fast registration (the kernel's UMR) failed.",
		[]string{
			"The region must allow memory windows, window and region must be of the same protection domain, and the range must lie in the region.",
			"In the kernel: a race between invalidation and on-demand paging has done this; look for fixes of the mlx5_ib driver.",
		},
	},
	cq.StatusBadResponse: {
		"The peer's answer was not what the transport allows: an unexpected packet, or one for another request.",
		[]string{
			"Check that both sides agree on packet sequence numbers and path MTU when the connection was made.",
			"A QP number that was used again too soon gets packets of its predecessor.",
		},
	},
	cq.StatusLocalAccess: {
		"The peer wrote to or read from this machine in a way that the local memory region does not allow.",
		[]string{
			"Check the access flags of the region and of the QP: remote write, remote read, remote atomic.",
			"Check the address and key that the peer was told.",
		},
	},
	cq.StatusRemoteInvalidReq: {
		"The peer refused the request as invalid: the message is longer than the peer's receive buffer, the operation is not enabled on its QP, or there are more reads outstanding than it accepts.",
		[]string{
			"The peer's receive buffers must be as long as the longest message.",
			"The peer's QP must allow remote reads, writes or atomics.",
			"max_rd_atomic here must not exceed max_dest_rd_atomic there.",
		},
	},
	cq.StatusRemoteAccess: {
		"The peer refused access to its memory: the rkey does not match, does not cover the remote address and length, or does not permit the operation. The cause is on the other machine or in what it told this one.",
		[]string{
			"Check that the peer's region is still registered: an rkey used after deregistration or invalidation is the most common cause.",
			"Check remote address, length and rkey of the request against what the peer sent; byte order of the exchange too.",
			"The peer's region and QP must permit the operation, and be of the same protection domain.",
		},
	},
	cq.StatusRemoteOperation: {
		"The peer failed while it carried out the request. It has an error of its own, of about the same time: that one says why.",
		[]string{
			"Look at the peer's log for a local error (often local protection: a bad receive buffer).",
			"GPU memory at the peer: check that its adapter can reach it.",
		},
	},
	cq.StatusRetryExceeded: {
		"The peer did not acknowledge, and all retries timed out. It is gone, unreachable on this path, or its QP is not ready to receive. No data of this request may be assumed to have arrived.",
		[]string{
			"Is the peer process still alive? If it died or closed first, its log has the cause.",
			"RoCE: is the right GID (index, IP address, VLAN) used on both sides, and does ping through the same interface work with full-size packets?",
			"RoCE: lossless configuration (PFC, ECN) and the switches' drop counters. InfiniBand: subnet manager, LIDs, link errors (perfquery).",
			"Was the peer's QP in RTR with this QP's number and packet sequence number before this side sent?",
			"Is the timeout long enough? retry_cnt 7 and timeout 14 (67 ms) to 18 are usual.",
		},
	},
	cq.StatusRNRRetryExceeded: {
		"The peer was there but had no receive posted, for as long as the retries allowed.",
		[]string{
			"The peer must post receives before this side sends, and faster than it consumes them; flow control by credits is the cure.",
			"rnr_retry 7 means for ever; a smaller value gives up.",
		},
	},
	cq.StatusLocalRDDViolation: {"An error of reliable datagrams, which no device of today implements. The code is probably damaged.", []string{"Check that the text was pasted unaltered."}},
	cq.StatusRemoteInvalidRD:   {"An error of reliable datagrams, which no device of today implements. The code is probably damaged.", []string{"Check that the text was pasted unaltered."}},
	cq.StatusRemoteAborted: {
		"The peer's side aborted the operation. On queues with on-demand paging it can be a page fault that is not an error.",
		[]string{"Look at the peer's log; look whether memory with on-demand paging is in use."},
	},
	cq.StatusInvalidEECN:     {"An error of reliable datagrams, which no device of today implements. The code is probably damaged.", []string{"Check that the text was pasted unaltered."}},
	cq.StatusInvalidEECState: {"An error of reliable datagrams, which no device of today implements. The code is probably damaged.", []string{"Check that the text was pasted unaltered."}},
	cq.StatusFatal: {
		"The device failed, or the driver gave it up.",
		[]string{"Look at the kernel log for PCIe errors, a firmware reset or a removed device."},
	},
	cq.StatusResponseTimeout: {
		"No answer came in time.",
		[]string{"Look at the path to the peer as for exceeded retries."},
	},
	cq.StatusGeneral: {
		"An error that has no status of its own. Only the syndrome and the vendor code say more.",
		[]string{"Look at the vendor code, and at the kernel log of the same second."},
	},
}

// adviceForVendor refines the advice where the device says more than the status.
var adviceForVendor = [256]string{
	0x32: "The vendor code is exact: the buffer's region belongs to another protection domain than the queue, or the key is of a region that is gone.",
	0x51: "PCIe error while the device read the buffer: with GPU memory this is nearly always peer-to-peer access that does not work (ACS, IOMMU, BIOS MMIO size, nvidia-peermem).",
	0x61: "PCIe error while the device read work requests: look at the kernel log for AER messages.",
	0x41: "The completion queue overflowed: it is smaller than the sum of what its queues can complete. Make it deeper.",
	0x8e: "A packet was longer than this QP's path MTU: both sides must be given the same, lesser MTU.",
	0xd6: "A message found the receive queue empty, or its work request malformed.",
	0xf5: "Somebody moved the QP to the error state on purpose: an ordinary disconnect.",
	0xf8: "The QP was being destroyed: an ordinary end.",
}

func isODPFault(f *Finding) bool {
	return f.Syndrome == some(mlx5.SyndromeRemoteAborted) && f.Side == some(cq.RecvSide) &&
		f.Vendor.OK && (f.Vendor.V == uint32(mlx5.VendorODPFault) || f.Vendor.V == 0x99)
}
