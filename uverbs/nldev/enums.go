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

// String returns the name that rdma-core's tools print.
func (t NodeType) String() string {
	return named("NodeType", uint8(t), map[uint8]string{
		uint8(NodeCA): "ca", uint8(NodeSwitch): "switch", uint8(NodeRouter): "router",
		uint8(NodeRNIC): "rnic", uint8(NodeUSNIC): "usnic", uint8(NodeUSNICUDP): "usnic_udp",
		uint8(NodeUnspecified): "unspecified",
	})
}

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

// String returns the name that "rdma link" prints.
func (s PortState) String() string {
	return named("PortState", uint8(s), map[uint8]string{
		0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER",
	})
}

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

// String returns the name that "rdma link" prints.
func (s PortPhysState) String() string {
	return named("PortPhysState", uint8(s), map[uint8]string{
		0: "NOP", 1: "SLEEP", 2: "POLLING", 3: "DISABLED", 4: "ARMED", 5: "LINK_UP",
		6: "LINK_ERROR_RECOVER", 7: "PHY_TEST",
	})
}

// named returns the name of n, or the type's name with the number.
func named(typ string, n uint8, names map[uint8]string) string {
	if s, ok := names[n]; ok {
		return s
	}
	return typ + "(" + strconv.Itoa(int(n)) + ")"
}
