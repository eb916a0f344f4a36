package nldev

import "strconv"

// NodeType is what a device is in a fabric (enum rdma_node_type of the
// kernel).
type NodeType uint8

// The node types.
const (
	NodeCA          NodeType = 1 // channel adapter: InfiniBand, RoCE
	NodeSwitch      NodeType = 2
	NodeRouter      NodeType = 3
	NodeRNIC        NodeType = 4 // iWARP
	NodeUSNIC       NodeType = 5
	NodeUSNICUDP    NodeType = 6
	NodeUnspecified NodeType = 7
)

var nodeTypes = [...]string{
	NodeCA: "ca", NodeSwitch: "switch", NodeRouter: "router", NodeRNIC: "rnic", NodeUSNIC: "usnic",
	NodeUSNICUDP: "usnic_udp", NodeUnspecified: "unspecified",
}

// String returns the name that rdma-core's tools print.
func (t NodeType) String() string { return named("NodeType", uint8(t), nodeTypes[:]) }

// PortState is the logical state of a port (enum ib_port_state of the kernel).
type PortState uint8

// The port states.
const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

var portStates = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

// String returns the name that "rdma link" prints.
func (s PortState) String() string { return named("PortState", uint8(s), portStates[:]) }

// PortPhysState is the physical state of a port (enum ib_port_phys_state of
// the kernel).
type PortPhysState uint8

// The physical port states.
const (
	PhysSleep         PortPhysState = 1
	PhysPolling       PortPhysState = 2
	PhysDisabled      PortPhysState = 3
	PhysTraining      PortPhysState = 4
	PhysLinkUp        PortPhysState = 5
	PhysErrorRecovery PortPhysState = 6
	PhysTest          PortPhysState = 7
)

var portPhysStates = [...]string{"NOP", "SLEEP", "POLLING", "DISABLED", "ARMED", "LINK_UP", "LINK_ERROR_RECOVER", "PHY_TEST"}

// String returns the name that "rdma link" prints.
func (s PortPhysState) String() string { return named("PortPhysState", uint8(s), portPhysStates[:]) }

// named returns the name of n, or the type's name with the number.
func named(typ string, n uint8, names []string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return typ + "(" + strconv.Itoa(int(n)) + ")"
}
