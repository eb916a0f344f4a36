package mlx5

import "fmt"

// VendorSyndrome is the device's own reason for a failed completion: byte 54 of
// an error CQE, ibv_wc.vendor_err, "vendor err" in logs. Nothing may depend on
// its meaning; it is there to explain errors to people. The numbers are
// NVIDIA's (the CQE-syndrome enumeration of libdpcp), the words are ours.
// Codes that are not listed exist: firmware adds them.
type VendorSyndrome uint8

// Vendor syndromes that programs may want to tell apart.
const (
	VendorRetryExceeded    VendorSyndrome = 0x81
	VendorRNRRetryExceeded VendorSyndrome = 0x87
	// VendorODPFault, with SyndromeRemoteAborted on a shared receive
	// queue, is no failure: the page is being brought in, the receive
	// stays posted and no completion is due.
	VendorODPFault VendorSyndrome = 0x93
	VendorFlushed  VendorSyndrome = 0xf9
)

// The memory-translation codes are built: a step in the upper five bits, a
// reason in the lower three.
var (
	translationSteps = [256]string{
		0x10: "fetching the work request",
		0x18: "the memory of an atomic operation",
		0x20: "writing the data that an RDMA read brought",
		0x28: "the buffer of a receive",
		0x30: "a data buffer of the request",
		0x38: "the memory that an RDMA write goes to",
		0x50: "reading a buffer of the request (gather), or a bind",
		0x60: "a read response or a block of work requests",
		0x78: "a fast memory registration",
		0xc0: "the memory of a write with immediate",
		0xc8: "an invalidation",
	}
	translationReasons = [8]string{
		"unknown reason",
		"PCIe error",
		"the memory region belongs to another protection domain",
		"the memory region does not allow this access, or its key is not valid",
		"outside the memory region: wrong address or length",
		"encryption error",
		"page fault or PCIe master abort",
		"internal error",
	}
)

var vendorSyndromes = [256]string{
	0x40: "completion queue: not valid",
	0x41: "completion queue: overflow",
	0x42: "completion queue: its memory cannot be accessed",
	0x43: "completion queue: network error",
	0x44: "completion queue: in the error state",
	0x45: "completion queue: locked",
	0x48: "completion queue not valid, while moving to the error state",
	0x49: "completion queue overflow, while moving to the error state",
	0x4a: "completion queue memory cannot be accessed, while moving to the error state",
	0x4b: "completion queue network error, while moving to the error state",
	0x4c: "completion queue in the error state, while moving to the error state",
	0x4d: "completion queue locked, while moving to the error state",
	0x58: "wait request failed",
	0x59: "protection signature value (PSV) error",
	0x5a: "signature error",
	0x5b: "resilience error",
	0x68: "badly formed work request",
	0x69: "message longer than the device's maximum",
	0x6a: "datagram longer than the MTU",
	0x6b: "datagram: address handle of another protection domain",
	0x6c: "datagram: port mismatch",
	0x6d: "operation not allowed on this transport",
	0x6e: "work request: its size field is too small",
	0x6f: "work request: inline data exceeds it",
	0x70: "work request: inline data inside a scatter list",
	0x71: "work request: reserved opcode",
	0x72: "bus error",
	0x73: "bus error",
	0x74: "datagram: GID check failed",
	0x75: "datagram: LID check failed",
	0x76: "datagram: key check failed",
	0x77: "datagram: check failed",
	0x80: "transport timeout",
	0x81: "no acknowledgement: all retries timed out",
	0x82: "implicit NAK",
	0x83: "implicit NAK: retries exhausted",
	0x84: "out-of-sequence NAK",
	0x85: "out-of-sequence NAK: retries exhausted",
	0x86: "unexpected sequence of opcodes",
	0x87: "receiver not ready: retries exhausted",
	0x88: "the peer answered: remote access error",
	0x89: "the peer answered: remote operation error",
	0x8a: "the peer answered: invalid request",
	0x8b: "bad acknowledge header",
	0x8c: "invalid opcode",
	0x8d: "sequence error",
	0x8e: "MTU violation: a packet was longer than the path MTU of the QP",
	0x8f: "shared receive queue unavailable",
	0x90: "RDMA read not permitted on this QP",
	0x91: "atomic operation not permitted on this QP",
	0x92: "RDMA write not permitted on this QP",
	0x93: "on-demand paging fault",
	0x94: "packet sequence number error",
	0x99: "aborted by the remote side",
	0xd0: "end-to-end credit error",
	0xd1: "atomic: address not aligned",
	0xd2: "too many outstanding reads or atomics",
	0xd3: "read or atomic: wrong size",
	0xd4: "send or read response: wrong size",
	0xd5: "write: wrong size",
	0xd6: "receive queue empty",
	0xd7: "receive queue exhausted",
	0xd8: "bus error",
	0xd9: "atomic or write failed",
	0xda: "read response: length does not match the request",
	0xdb: "write with immediate: wrong size",
	0xdc: "bus error",
	0xdd: "on-demand paging: hardware error",
	0xe0: "dynamically connected QP: cleanup",
	0xe1: "dynamically connected QP: cleanup",
	0xe2: "dynamically connected QP: cleanup",
	0xe3: "dynamically connected QP: cleanup",
	0xe4: "dynamically connected QP: cleanup",
	0xe5: "dynamically connected QP: cleanup",
	0xf0: "discarded",
	0xf1: "dynamically connected QP error",
	0xf2: "dynamically connected QP error",
	0xf3: "dynamically connected QP error",
	0xf4: "flushed: the paired QP failed",
	0xf5: "flushed: the QP was moved to the error state by command",
	0xf6: "flushed: the QP was reset by command",
	0xf7: "flushed: the QP was terminated by command",
	0xf8: "flushed: the QP was destroyed by command",
	0xf9: "flushed: the QP was already in the error state",
	0xfc: "dynamically connected QP: connection refused, retries exhausted",
	0xfd: "receive queue drained",
}

// Known says whether the table explains the code.
func (v VendorSyndrome) Known() bool { return v.text() != "" }

func (v VendorSyndrome) text() string {
	if t := vendorSyndromes[v]; t != "" {
		return t
	}
	switch {
	case v >= 0x95 && v <= 0x9f:
		return "operation suspended, or its retries exceeded"
	case v >= 0xa0 && v <= 0xbf:
		return fmt.Sprintf("RNR NAK received, timer code %d: the peer had no receive posted", v&0x1f)
	case v >= 0x10 && v <= 0x7f, v >= 0xc0 && v <= 0xcf:
		if step := translationSteps[v&^7]; step != "" {
			return "memory translation, " + step + ": " + translationReasons[v&7]
		}
	}
	return ""
}

// String is the meaning of the code, or "unknown vendor syndrome".
func (v VendorSyndrome) String() string {
	if v == 0 {
		return "none"
	}
	if t := v.text(); t != "" {
		return t
	}
	return "unknown vendor syndrome"
}
