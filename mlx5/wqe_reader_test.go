package mlx5

import (
	"bytes"
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// readWQE is a reader of send requests that shares nothing with what writes them:
// it takes a WQE apart as the device would, byte by byte, from the ring in which it
// begins at a block, and says what request it is. It is slow and obvious.
func readWQE(ring []byte, block uint32, datagrams bool) (r readRequest, err error) {
	at := func(i int) byte { return ring[(uint64(block)*64+uint64(i))%uint64(len(ring))] }
	number := func(i, n int) (v uint64) {
		for k := range n {
			v = v<<8 | uint64(at(i+k))
		}
		return v
	}
	bytesAt := func(i, n int) []byte {
		b := make([]byte, n)
		for k := range b {
			b[k] = at(i + k)
		}
		return b
	}
	size := int(at(7)) * 16
	r = readRequest{Index: uint16(number(1, 2)), QPN: uint32(number(4, 3)), Segments: size / 16, Blocks: (size + 63) / 64}
	if at(0) != 0 || at(8) != 0 || at(9) != 0 || at(10) != 0 || size < 16 || size > 1008 {
		return r, fmt.Errorf("control segment %x", bytesAt(0, 16))
	}
	control, last := at(11), uint32(number(12, 4))
	r.Fence, r.Signaled, r.Solicited = control>>5, control&0x0c == 0x08, control&2 != 0
	if control&0x11 != 0 || control&0x04 != 0 {
		return r, fmt.Errorf("control byte %#02x", control)
	}
	pos := 16
	if datagrams {
		if number(pos+4, 4) != 0 || at(pos+8)&0x80 == 0 {
			return r, fmt.Errorf("address vector %x", bytesAt(pos, 48))
		}
		r.QKey, r.DestQPN = uint32(number(pos, 4)), uint32(number(pos+8, 4))&0xffffff
		r.Address = fmt.Sprintf("%x", bytesAt(pos+12, 36))
		pos += 48
	}
	remote := func() error {
		r.RemoteAddr, r.RKey = number(pos, 8), uint32(number(pos+8, 4))
		if number(pos+12, 4) != 0 {
			return fmt.Errorf("remote address %x", bytesAt(pos, 16))
		}
		pos += 16
		return nil
	}
	switch opcode := at(3); opcode {
	case 0x0a:
		r.Op = cq.OpSend
	case 0x0b:
		r.Op, r.Imm, last = cq.OpSendImm, last, 0
	case 0x01:
		r.Op, r.InvalidateRKey, last = cq.OpSendInvalidate, last, 0
	case 0x08, 0x10:
		if r.Op = cq.OpWrite; opcode == 0x10 {
			r.Op = cq.OpRead
		}
		err = remote()
	case 0x09:
		r.Op, r.Imm, last = cq.OpWriteImm, last, 0
		err = remote()
	case 0x11, 0x12:
		r.Op = cq.OpFetchAdd
		err = remote()
		r.Operand = number(pos, 8)
		if opcode == 0x11 {
			r.Op, r.Compare = cq.OpCompareSwap, number(pos+8, 8)
		} else if number(pos+8, 8) != 0 {
			return r, fmt.Errorf("fetch and add of %x", bytesAt(pos, 16))
		}
		pos += 16
	case 0x25:
		return r.readUMR(bytesAt(16, size-16), last)
	default:
		return r, fmt.Errorf("opcode %#02x", opcode)
	}
	if err != nil {
		return r, err
	}
	if last != 0 {
		return r, fmt.Errorf("%v has %#x at the end of its control segment", r.Op, last)
	}
	for pos < size {
		if at(pos)&0x80 != 0 {
			n := int(number(pos, 4) &^ (1 << 31))
			if n == 0 || pos+4+n > size || pos+4+n+16 <= size || len(r.SGEs) > 0 {
				return r, fmt.Errorf("%d bytes inline at %d of %d", n, pos, size)
			}
			r.Data = bytesAt(pos+4, n)
			break
		}
		e := cq.SGE{Length: uint32(number(pos, 4)), LKey: uint32(number(pos+4, 4)), Addr: number(pos+8, 8)}
		if e.Length == 0 {
			return r, fmt.Errorf("an element of no length at %d of %d", pos, size)
		}
		r.SGEs = append(r.SGEs, e)
		pos += 16
	}
	return r, nil
}

// readRequest is what readWQE has read.
type readRequest struct {
	Index              uint16
	QPN                uint32
	Segments, Blocks   int
	Op                 cq.Opcode
	Fence              byte
	Signaled           bool
	Solicited          bool
	Imm                uint32
	InvalidateRKey     uint32
	QKey, DestQPN      uint32
	Address            string
	RemoteAddr         uint64
	RKey               uint32
	Operand, Compare   uint64
	SGEs               []cq.SGE
	Data               []byte
	Window             bool // bound; else invalidated, or bound to nothing
	NewKey             uint32
	Start, WindowBytes uint64
	Access, WindowLKey uint32
}

// readUMR reads what follows the control segment of a bind or an invalidation.
func (r readRequest) readUMR(b []byte, key uint32) (readRequest, error) {
	fail := func() (readRequest, error) { return r, fmt.Errorf("UMR %x", b) }
	zeros := func(from, to int) bool { return bytes.Equal(b[from:to], make([]byte, to-from)) }
	number := func(i, n int) (v uint64) {
		for _, x := range b[i : i+n] {
			v = v<<8 | uint64(x)
		}
		return v
	}
	r.InvalidateRKey = key
	if len(b) != 112 && len(b) != 176 || !zeros(1, 4) || !zeros(6, 8) || !zeros(16, 48) || number(48, 1)&^0x40 != 0 || !zeros(49, 50) || !zeros(51, 52) || !zeros(56, 64) || !zeros(80, 112) {
		return fail()
	}
	r.NewKey = uint32(number(52, 4))
	if r.Window = len(b) == 176; !r.Window {
		r.Op = cq.OpLocalInvalidate
		if b[0] != 0x98 || number(4, 2) != 0 || number(8, 8) != 1<<29|1<<14|1<<13 || b[48] != 0x40 || !zeros(50, 51) || !zeros(64, 80) {
			return fail()
		}
		return r, nil
	}
	r.Op = cq.OpBindMW
	if b[0] != 0xb0 || number(4, 2) != 4 || number(8, 8) != 1<<29|1<<21|1<<20|1<<19|1<<18|1<<14|1<<13|1<<6|1 || b[48] != 0 || !zeros(128, 176) {
		return fail()
	}
	access := b[50]
	for bit, right := range map[byte]uint32{3: 1, 5: 2, 4: 4, 6: 8} {
		if access>>bit&1 != 0 {
			r.Access |= right
			access &^= 1 << bit
		}
	}
	r.Start, r.WindowBytes = number(64, 8), number(72, 8)
	r.WindowLKey, r.RemoteAddr = uint32(number(116, 4)), number(120, 8)
	if access != 0 || number(112, 4) != r.WindowBytes {
		return fail()
	}
	return r, nil
}
