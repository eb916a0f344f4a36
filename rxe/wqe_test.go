package rxe

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// record composes a slot's bytes: numbers in the machine's byte order, byte
// slices as they are, and an int for so many zeros.
func record(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case uint64:
			b = native.AppendUint64(b, p)
		case uint32:
			b = native.AppendUint32(b, p)
		case string:
			b = append(b, p...)
		case int:
			b = append(b, make([]byte, p)...)
		default:
			panic("record of what?")
		}
	}
	return b
}

type (
	u64 = uint64
	u32 = uint32
)

const (
	id  = 0x0100_0002_ffff_fffe
	far = 0xfeed_0000_1234_5678
)

var sges = []cq.SGE{{Addr: 0x7f00_0000_1000, Length: 0x40, LKey: 0x1a1}, {Addr: 0x8000_0000_0000_0008, Length: 0x1000_0000, LKey: 0x1b2}}

var sendGolden = []struct {
	name string
	req  cq.SendRequest
	want []byte
}{
	{
		"send",
		cq.SendRequest{WRID: id, Op: cq.OpSend, Length: 0x1000_0040, SGEs: sges},
		record(u64(id), 4, u32(2), u32(2), 4, 120, u32(0), u32(0), u64(0), 24,
			u32(0x1000_0040), u32(0x1000_0040), u32(0), u32(2), u32(0), 4,
			u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1), u64(0x8000_0000_0000_0008), u32(0x1000_0000), u32(0x1b2)),
	}, {
		"send of nothing, with what its operation does not use",
		cq.SendRequest{WRID: id, Op: cq.OpSend, Imm: 5, RemoteAddr: far, RKey: 6},
		record(u64(id), 4, u32(2), u32(2), 4, 120, 40, 24),
	}, {
		"send with immediate, quiet and solicited",
		cq.SendRequest{WRID: 1, Op: cq.OpSendImm, Flags: cq.Unsignaled | cq.Solicited, Imm: 0x01020304, Length: 0x40, SGEs: sges[:1], RKey: 6},
		record(u64(1), 4, u32(3), u32(4), "\x01\x02\x03\x04", 120, 40,
			u32(0x40), u32(0x40), u32(0), u32(1), u32(0), 4,
			u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1)),
	}, {
		"datagram with immediate",
		cq.SendRequest{WRID: id, Op: cq.OpSendImm, Imm: 0x01020304, AH: 0x4a5, DestQPN: 0x112233, QKey: 0x11111111, Length: 0x40, SGEs: sges[:1]},
		record(u64(id), 4, u32(3), u32(2), "\x01\x02\x03\x04", u32(0x112233), u32(0x11111111), 4, u32(0x4a5), 104, 40,
			u32(0x40), u32(0x40), u32(0), u32(1), u32(0), 4,
			u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1)),
	}, {
		"write, fenced",
		cq.SendRequest{WRID: id, Op: cq.OpWrite, Flags: cq.Fence, Imm: 5, RemoteAddr: far, RKey: 0x2c3, Length: 0x40, SGEs: sges[:1]},
		record(u64(id), 4, u32(0), u32(3), 4, u64(far), u32(0x2c3), 108, u32(0), u32(0), u64(far), 24,
			u32(0x40), u32(0x40), u32(0), u32(1), u32(0), 4,
			u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1)),
	}, {
		"write with immediate, inline",
		cq.SendRequest{WRID: id, Op: cq.OpWriteImm, Flags: cq.Inline, Imm: 0xcafe_f00d, RemoteAddr: far, RKey: 0x2c3, Length: 5, Data: []byte("hello")},
		record(u64(id), 4, u32(1), u32(10), "\xca\xfe\xf0\x0d", u64(far), u32(0x2c3), 108, u32(0), u32(0), u64(far), 24,
			u32(5), u32(5), u32(0), u32(0), u32(0), 4, "hello"),
	}, {
		"send inline, all flags",
		cq.SendRequest{WRID: id, Op: cq.OpSend, Flags: cq.Unsignaled | cq.Fence | cq.Solicited | cq.Inline, Length: 32, Data: []byte("thirty-two bytes, all of a slot's")[:32]},
		record(u64(id), 4, u32(2), u32(13), 4, 120, 40,
			u32(32), u32(32), u32(0), u32(0), u32(0), 4, "thirty-two bytes, all of a slot'"),
	}, {
		"inline of nothing",
		cq.SendRequest{WRID: id, Op: cq.OpWrite, Flags: cq.Inline, RemoteAddr: far, RKey: 1},
		record(u64(id), 4, u32(0), u32(10), 4, u64(far), u32(1), 108, u32(0), u32(0), u64(far), 48),
	}, {
		"read",
		cq.SendRequest{WRID: id, Op: cq.OpRead, Imm: 5, RemoteAddr: far, RKey: 0x2c3, Length: 0x1000_0040, SGEs: sges},
		record(u64(id), 4, u32(4), u32(2), 4, u64(far), u32(0x2c3), 108, u32(0), u32(0), u64(far), 24,
			u32(0x1000_0040), u32(0x1000_0040), u32(0), u32(2), u32(0), 4,
			u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1), u64(0x8000_0000_0000_0008), u32(0x1000_0000), u32(0x1b2)),
	}, {
		"send with invalidate",
		cq.SendRequest{WRID: id, Op: cq.OpSendInvalidate, Imm: 5, InvalidateRKey: 0x8000_01aa, Length: 0x40, SGEs: sges[:1]},
		record(u64(id), 4, u32(9), u32(2), u32(0x8000_01aa), 120, 40,
			u32(0x40), u32(0x40), u32(0), u32(1), u32(0), 4,
			u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1)),
	}, {
		"local invalidate",
		cq.SendRequest{WRID: id, Op: cq.OpLocalInvalidate, Flags: cq.Fence, InvalidateRKey: 0x8000_01aa},
		record(u64(id), 4, u32(7), u32(3), u32(0x8000_01aa), 120, 40, 24),
	}, {
		"compare and swap",
		cq.SendRequest{WRID: id, Op: cq.OpCompareSwap, RemoteAddr: far, RKey: 0x2c3, Compare: 0x0102_0304_0506_0708, Operand: 0x1112_1314_1516_1718,
			Length: 8, SGEs: []cq.SGE{{Addr: 0x7f00_0000_1000, Length: 8, LKey: 0x1a1}}},
		record(u64(id), 4, u32(5), u32(2), 4, u64(far), u64(0x0102_0304_0506_0708), u64(0x1112_1314_1516_1718), u32(0x2c3), 92, u32(0), u32(0), u64(far), 24,
			u32(8), u32(8), u32(0), u32(1), u32(0), 4, u64(0x7f00_0000_1000), u32(8), u32(0x1a1)),
	}, {
		"fetch and add",
		cq.SendRequest{WRID: id, Op: cq.OpFetchAdd, RemoteAddr: far, RKey: 0x2c3, Compare: 3, Operand: 0xffff_ffff_ffff_fffe,
			Length: 8, SGEs: []cq.SGE{{Addr: 0x7f00_0000_1000, Length: 8, LKey: 0x1a1}}},
		record(u64(id), 4, u32(6), u32(2), 4, u64(far), u64(0xffff_ffff_ffff_fffe), u64(0), u32(0x2c3), 92, u32(0), u32(0), u64(far), 24,
			u32(8), u32(8), u32(0), u32(1), u32(0), 4, u64(0x7f00_0000_1000), u32(8), u32(0x1a1)),
	}, {
		"bind",
		cq.SendRequest{WRID: id, Op: cq.OpBindMW, RemoteAddr: far, RKey: 0x8000_01ab, WindowRKey: 0x8000_01aa, WindowLKey: 0x1a1, WindowBytes: 0x2_0000_0001, WindowAccess: 0xe},
		record(u64(id), 4, u32(8), u32(2), 4, u64(far), u64(0x2_0000_0001), u32(0x1a1), u32(0x8000_01aa), u32(0x8000_01ab), u32(0xe), 88, 40, 24),
	}, {
		"flush of a range",
		cq.SendRequest{WRID: id, Op: cq.OpFlush, Flags: cq.Unsignaled, RemoteAddr: far, RKey: 0x2c3, Length: 0x1234, FlushType: 3},
		record(u64(id), 4, u32(14), u32(0), 4, u64(far), u32(0x1234), u32(0x2c3), "\x03\x00", 102, u32(0), u32(0), u64(far), 24,
			u32(0x1234), u32(0x1234), u32(0), u32(0), u32(0), 4),
	}, {
		"flush of a region",
		cq.SendRequest{WRID: id, Op: cq.OpFlush, RemoteAddr: far, RKey: 0x2c3, FlushType: 1, FlushWhole: true},
		record(u64(id), 4, u32(14), u32(2), 4, u64(far), u32(0), u32(0x2c3), "\x01\x01", 102, u32(0), u32(0), u64(far), 24, 24),
	}, {
		"atomic write",
		cq.SendRequest{WRID: id, Op: cq.OpAtomicWrite, RemoteAddr: far, RKey: 0x2c3, Length: 8, Operand: 0x1112_1314_1516_1718},
		record(u64(id), 4, u32(15), u32(2), 4, u64(far), u32(0x2c3), 108, u32(0), u32(0), u64(far), 24,
			u32(8), u32(8), u32(0), u32(0), u32(0), 4, u64(0x1112_1314_1516_1718)),
	},
}

func TestSendGolden(t *testing.T) {
	for _, c := range sendGolden {
		for slot := range 4 {
			mem := heapRing(4, 256, uint32(slot))
			for i := range mem[offSlots:] {
				mem[offSlots+i] = 0xdb // a former lap
			}
			before := bytes.Clone(mem)
			q, err := NewSQ(mem, 2, 32)
			if err != nil {
				t.Fatal(err)
			}
			req := c.req
			q.Put(&req)
			at := offSlots + slot*256
			if got := mem[at : at+len(c.want)]; !bytes.Equal(got, c.want) {
				t.Errorf("%s:\n%swant\n%s", c.name, hex.Dump(got), hex.Dump(c.want))
			}
			copy(before[at:], c.want)
			if !bytes.Equal(mem, before) {
				t.Errorf("%s: wrote outside of its slot's record, or published it", c.name)
			}
			q.Publish()
			if got := load32(mem, offProducer); got != uint32(slot+1)&3 {
				t.Errorf("%s: published index %d from slot %d", c.name, got, slot)
			}
		}
	}
}

var recvGolden = []struct {
	name string
	sges []cq.SGE
	want []byte
}{
	{"nothing", nil, record(u64(id), 8, 24)},
	{"one", sges[:1], record(u64(id), 8, u32(0x40), u32(0x40), u32(0), u32(1), u32(0), 4, u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1))},
	{"two", sges, record(u64(id), 8, u32(0x1000_0040), u32(0x1000_0040), u32(0), u32(2), u32(0), 4,
		u64(0x7f00_0000_1000), u32(0x40), u32(0x1a1), u64(0x8000_0000_0000_0008), u32(0x1000_0000), u32(0x1b2))},
	{"more than 32 bits of it", []cq.SGE{{Length: 0xffff_ffff}, {Length: 2}},
		record(u64(id), 8, u32(0xffff_ffff), u32(0xffff_ffff), u32(0), u32(2), u32(0), 4,
			u64(0), u32(0xffff_ffff), u32(0), u64(0), u32(2), u32(0))},
}

func TestRecvGolden(t *testing.T) {
	for _, c := range recvGolden {
		for slot := range 4 {
			mem := heapRing(4, 128, uint32(slot))
			for i := range mem[offSlots:] {
				mem[offSlots+i] = 0xdb
			}
			before := bytes.Clone(mem)
			q, err := NewRQ(mem, 2)
			if err != nil {
				t.Fatal(err)
			}
			q.Put(id, c.sges)
			at := offSlots + slot*128
			if got := mem[at : at+len(c.want)]; !bytes.Equal(got, c.want) {
				t.Errorf("%s:\n%swant\n%s", c.name, hex.Dump(got), hex.Dump(c.want))
			}
			copy(before[at:], c.want)
			if !bytes.Equal(mem, before) {
				t.Errorf("%s: wrote outside of its slot's record, or published it", c.name)
			}
			q.Publish()
			if got := load32(mem, offProducer); got != uint32(slot+1)&3 {
				t.Errorf("%s: published index %d from slot %d", c.name, got, slot)
			}
		}
	}
}

// The same as raw bytes, for both byte orders: record could be wrong too.
func TestGoldenBytes(t *testing.T) {
	little := native.Uint16([]byte{1, 0}) == 1
	pick := func(l, b string) string {
		if little {
			return l
		}
		return b
	}
	want := pick("0800000000000001", "0100000000000008") + strings.Repeat("00", 4) +
		pick("01000000"+"02000000", "00000001"+"00000002") + "cafef00d" +
		pick("7856341200edfe00", "00feed0012345678") + pick("c3020000", "000002c3") + strings.Repeat("00", 108) +
		strings.Repeat("00", 8) + pick("7856341200edfe00", "00feed0012345678") + strings.Repeat("00", 24) +
		pick("40000000"+"40000000"+"00000000"+"01000000", "00000040"+"00000040"+"00000000"+"00000001") + strings.Repeat("00", 8) +
		pick("0010000000ff0000"+"40000000"+"a1010000", "0000ff0000001000"+"00000040"+"000001a1")
	mem := heapRing(2, 256, 0)
	q, err := NewSQ(mem, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	q.Put(&cq.SendRequest{WRID: 0x0100_0000_0000_0008, Op: cq.OpWriteImm, Imm: 0xcafef00d, RemoteAddr: 0xfeed_0012_3456_78, RKey: 0x2c3,
		Length: 0x40, SGEs: []cq.SGE{{Addr: 0xff00_0000_1000, Length: 0x40, LKey: 0x1a1}}})
	if got := hex.EncodeToString(mem[offSlots : offSlots+224]); got != want {
		t.Errorf("a write with immediate is\n%s, want\n%s", got, want)
	}
}

// Whoever breaks the contract of Put hears of it; the next slot is not touched.
func TestPutPanics(t *testing.T) {
	three := make([]cq.SGE, 3)
	for name, req := range map[string]cq.SendRequest{
		"inline data":    {Op: cq.OpSend, Flags: cq.Inline, Data: make([]byte, 33), Length: 33},
		"elements":       {Op: cq.OpSend, SGEs: three},
		"receive":        {Op: cq.OpRecv},
		"no such number": {Op: 255},
	} {
		mem := heapRing(4, 256, 0)
		q, err := NewSQ(mem, 2, 32)
		if err != nil {
			t.Fatal(err)
		}
		if !panics(func() { q.Put(&req) }) {
			t.Errorf("%s: Put took it", name)
		}
		if !bytes.Equal(mem[offSlots+256:], make([]byte, 3*256)) {
			t.Errorf("%s: wrote to other slots", name)
		}
		q.Publish()
		if load32(mem, offProducer) != 0 {
			t.Errorf("%s: the request counts", name)
		}
	}
	q, err := NewRQ(heapRing(4, 64, 0), 1)
	if err != nil {
		t.Fatal(err)
	}
	if !panics(func() { q.Put(1, three) }) {
		t.Error("three elements: Put took them")
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
