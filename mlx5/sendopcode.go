package mlx5

import "fmt"

// SendOpcode is the device's opcode of a send request: the low byte of the
// first control word of a WQE (MLX5_OPCODE_* of linux/mlx5/qp.h).
type SendOpcode uint8

var sendOpcodes = [256]string{
	0x00: "NOP",
	0x01: "SEND_INVAL",
	0x08: "RDMA_WRITE",
	0x09: "RDMA_WRITE_IMM",
	0x0a: "SEND",
	0x0b: "SEND_IMM",
	0x0e: "TSO",
	0x0f: "WAIT",
	0x10: "RDMA_READ",
	0x11: "ATOMIC_CS",
	0x12: "ATOMIC_FA",
	0x14: "ATOMIC_MASKED_CS",
	0x15: "ATOMIC_MASKED_FA",
	0x16: "RECV_ENABLE",
	0x17: "SEND_ENABLE",
	0x20: "SET_PSV",
	0x21: "GET_PSV",
	0x22: "CHECK_PSV",
	0x23: "DUMP",
	0x25: "UMR",
	0x29: "ENHANCED_MPSW",
	0x2c: "FLOW_TBL_ACCESS",
	0x2d: "ACCESS_ASO",
	0x2f: "MMO",
}

// Known says whether the opcode is one of those that drivers post.
func (o SendOpcode) Known() bool { return sendOpcodes[o] != "" }

// String is the driver's name of the opcode, or SendOpcode(0xNN).
func (o SendOpcode) String() string {
	if n := sendOpcodes[o]; n != "" {
		return n
	}
	return fmt.Sprintf("SendOpcode(%#02x)", uint8(o))
}
