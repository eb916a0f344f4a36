//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package mlx5

// A word that the device shares is big-endian, as this machine's are.

func fromBE32(v uint32) uint32 { return v }
func toBE32(v uint32) uint32   { return v }
func toBE64(v uint64) uint64   { return v }

// ownerInMemory is the owner bit in the last four bytes of a CQE.
const ownerInMemory = 0x01

// abnormal is a bit of the opcode there that no success has.
const abnormal = 0x80

// invalid says whether the last four bytes of a CQE have the opcode of none.
func invalid(v uint32) bool { return v&0xf0 == 0xf0 }

// ControlSignal is the Control of a request without flags.
const ControlSignal uint64 = ctrlSignal << 32
