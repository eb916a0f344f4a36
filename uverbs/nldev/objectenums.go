package nldev

import "strconv"

// QPType is the type of a queue pair (enum ib_qp_type of the kernel).
type QPType uint8

// The queue pair types.
const (
	QPSMI       QPType = 0 // the kernel's, for subnet management
	QPGSI       QPType = 1 // the kernel's, for general services
	QPRC        QPType = 2
	QPUC        QPType = 3
	QPUD        QPType = 4
	QPRawPacket QPType = 8
	QPXRCIni    QPType = 9
	QPXRCTgt    QPType = 10
	QPDriver    QPType = 255 // of the driver's own kind
)

var qpTypes = [...]string{
	QPSMI: "SMI", QPGSI: "GSI", QPRC: "RC", QPUC: "UC", QPUD: "UD", QPRawPacket: "RAW_PACKET", QPXRCIni: "XRC_INI",
	QPXRCTgt: "XRC_TGT", QPDriver: "DRIVER",
}

// String returns the name that "rdma resource show qp" prints.
func (t QPType) String() string { return named("QPType", uint8(t), qpTypes[:]) }

// QPState is the state of a queue pair (enum ib_qp_state of the kernel).
type QPState uint8

// The queue pair states.
const (
	QPReset QPState = 0
	QPInit  QPState = 1
	QPRTR   QPState = 2
	QPRTS   QPState = 3
	QPSQD   QPState = 4
	QPSQE   QPState = 5
	QPErr   QPState = 6
)

var qpStates = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the name that "rdma resource show qp" prints.
func (s QPState) String() string { return named("QPState", uint8(s), qpStates[:]) }

// SRQType is the type of a shared receive queue (enum ib_srq_type of the
// kernel).
type SRQType uint8

// The types of shared receive queues.
const (
	SRQBasic       SRQType = 0
	SRQXRC         SRQType = 1
	SRQTagMatching SRQType = 2
)

var srqTypes = [...]string{"BASIC", "XRC", "TM"}

// String returns the name that "rdma resource show srq" prints.
func (t SRQType) String() string { return named("SRQType", uint8(t), srqTypes[:]) }

// CMState is the state of a connection manager's identifier (enum rdma_cm_state
// of the kernel).
type CMState uint8

var cmStates = [...]string{
	"IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT", "DISCONNECT", "ADDR_BOUND", "LISTEN",
	"DEVICE_REMOVAL", "DESTROYING",
}

// The states of identifiers that stay for long.
const (
	CMIdle    CMState = 0
	CMConnect CMState = 5
	CMListen  CMState = 8
)

// String returns the name that "rdma resource show cm_id" prints.
func (s CMState) String() string { return named("CMState", uint8(s), cmStates[:]) }

// PortSpace is a name space of the connection manager's ports (enum
// rdma_ucm_port_space of the kernel).
type PortSpace uint32

// The port spaces.
const (
	PortSpaceIPoIB PortSpace = 0x0002
	PortSpaceTCP   PortSpace = 0x0106
	PortSpaceUDP   PortSpace = 0x0111
	PortSpaceIB    PortSpace = 0x013f
)

// String returns the name that "rdma resource show cm_id" prints.
func (p PortSpace) String() string {
	switch p {
	case PortSpaceIPoIB:
		return "IPoIB"
	case PortSpaceTCP:
		return "TCP"
	case PortSpaceUDP:
		return "UDP"
	case PortSpaceIB:
		return "IB"
	}
	return "PortSpace(" + strconv.FormatUint(uint64(p), 10) + ")"
}
