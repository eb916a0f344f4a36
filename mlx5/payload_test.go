package mlx5

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// hostBytes composes a payload as the kernel reads it: numbers in the machine's
// byte order, strings as they are, and an int for so many zeros.
func hostBytes(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case uint64:
			b = binary.NativeEndian.AppendUint64(b, p)
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, p)
		case uint16:
			b = binary.NativeEndian.AppendUint16(b, p)
		case uint8:
			b = append(b, p)
		case string:
			b = append(b, p...)
		case int:
			b = append(b, make([]byte, p)...)
		default:
			panic("bytes of what?")
		}
	}
	return b
}

type (
	u8  = uint8
	u16 = uint16
	u32 = uint32
	u64 = uint64
)

// TestRequestPayloads holds every request against bytes composed by hand from the
// tables of its struct: offsets, sizes, flags.
func TestRequestPayloads(t *testing.T) {
	const buf, db = 0x7f00_1234_5000, 0x7f00_0000_0fc8
	send := SendSize{Requests: 4, Blocks: 16, Bytes: 1024}
	recv := RecvSize{Requests: 8, Shift: 5, Bytes: 256}
	for name, c := range map[string]struct {
		encode func() ([]byte, error)
		want   []byte
	}{
		"context": {ContextRequest{}.Encode,
			hostBytes(u32(16), u32(4), u32(0), u32(0), u8(1), u8(0), u16(0), u32(0), u64(1))},
		"context with dynamic UARs and DevX": {ContextRequest{DynamicUARs: true, DevX: true}.Encode,
			hostBytes(u32(16), u32(4), u32(1), u32(0), u8(1), u8(0), u16(0), u32(0), u64(3))},
		"context with many registers": {ContextRequest{Registers: 512, ExclusiveRegisters: 511}.Encode,
			hostBytes(u32(512), u32(511), u32(0), u32(0), u8(1), u8(0), u16(0), u32(0), u64(1))},
		"CQ": {first(CreateCQ{Buffer: buf, Record: db, EntryBytes: 64, UAR: 7}.Encode),
			hostBytes(u64(buf), u64(db), u32(64), u8(0), u8(0), u16(0), u16(0), u16(0), u32(0))},
		"CQ of 128 bytes with UAR and time of day": {first(CreateCQ{Buffer: buf, Record: db, EntryBytes: 128, UAR: 0xffff, DynamicUAR: true, RealTime: true}.Encode),
			hostBytes(u64(buf), u64(db), u32(128), u8(0), u8(0), u16(6), u16(0xffff), u16(0), u32(0))},
		"CQ with a UAR of 17 bits": {first(CreateCQ{Buffer: buf, Record: db, EntryBytes: 64, UAR: 0x10000, DynamicUAR: true}.Encode),
			hostBytes(u64(buf), u64(db), u32(64), u8(0), u8(0), u16(0), u16(0), u16(0), u32(0))},
		"CQ that compresses": {first(CreateCQ{Buffer: buf, Record: db, EntryBytes: 64, UAR: 7, Compress: MiniChecksum}.Encode),
			hostBytes(u64(buf), u64(db), u32(64), u8(1), u8(2), u16(0), u16(0), u16(0), u32(0))},
		"resize": {ResizeCQ{Buffer: buf, EntryBytes: 128}.Encode, hostBytes(u64(buf), u16(128), u16(0), u32(0))},
		"QP": {qp(1, CreateQP{Buffer: buf, Record: db, Size: QueuePairSize{Send: send, Recv: recv}, UserIndex: 0xfffffe}),
			hostBytes(u64(buf), u64(db), u32(16), u32(8), u32(5), u32(0), u32(0xfffffe), u32(0), u64(0), u32(0), u16(0), u16(0))},
		"QP with all there is": {qp(1, CreateQP{Buffer: buf, Record: db, Size: QueuePairSize{Send: send}, UserIndex: 3, UAR: 0x12345, DynamicUAR: true, ScatterToCQE: true, ScatterRequester: true, ECE: true}),
			hostBytes(u64(buf), u64(db), u32(16), u32(0), u32(0), u32(1024+256+2), u32(3), u32(0x12345), u64(0), u32(0x10000000), u16(0), u16(0))},
		"QP of CQE version 0, scattering receives": {qp(0, CreateQP{Buffer: buf, Record: db, Size: QueuePairSize{Recv: recv}, UserIndex: 0xffffff, UAR: 9, ScatterToCQE: true}),
			hostBytes(u64(buf), u64(db), u32(0), u32(8), u32(5), u32(2), u32(0xffffff), u32(0), u64(0), u32(0), u16(0), u16(0))},
		"QP without queues": {qp(1, CreateQP{Record: db}),
			hostBytes(u64(0), u64(db), u32(0), u32(0), u32(0), u32(0), u32(0), u32(0), u64(0), u32(0), u16(0), u16(0))},
		"SRQ": {CreateSRQ{Buffer: buf, Record: db}.Encode, hostBytes(u64(buf), u64(db), u32(0), u32(0), u32(0), u32(0))},
	} {
		got, err := c.encode()
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %v\n%s, want\n%s", name, err, dump(got), dump(c.want))
		}
	}
	if _, in, err := (CreateCQ{Buffer: buf, Record: db, EntryBytes: 64, UAR: 0x10000, DynamicUAR: true}).Encode(); !in || err != nil {
		t.Errorf("a UAR of 17 bits is an attribute: %v, %v", in, err)
	}
	if _, in, err := (CreateCQ{Buffer: buf, Record: db, EntryBytes: 64, UAR: 0xffff, DynamicUAR: true}).Encode(); in || err != nil {
		t.Errorf("a UAR of 16 bits is an attribute: %v, %v", in, err)
	}
}

func first(f func() ([]byte, bool, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		b, _, err := f()
		return b, err
	}
}

func qp(version uint8, r CreateQP) func() ([]byte, error) {
	return func() ([]byte, error) { return r.Encode(version) }
}

func TestRequestPayloadErrors(t *testing.T) {
	const buf, db = 0x1000, 0x2008
	for name, encode := range map[string]func() ([]byte, error){
		"no registers":             ContextRequest{ExclusiveRegisters: 1}.Encode,
		"513 registers":            ContextRequest{Registers: 513}.Encode,
		"all of them exclusive":    ContextRequest{Registers: 4, ExclusiveRegisters: 4}.Encode,
		"CQEs of 96 bytes":         first(CreateCQ{Buffer: buf, Record: db, EntryBytes: 96}.Encode),
		"a CQ nowhere":             first(CreateCQ{Record: db, EntryBytes: 64}.Encode),
		"a CQ off its page":        first(CreateCQ{Buffer: buf + 64, Record: db, EntryBytes: 64}.Encode),
		"a CQ without a record":    first(CreateCQ{Buffer: buf, EntryBytes: 64}.Encode),
		"a crooked record":         first(CreateCQ{Buffer: buf, Record: db + 4, EntryBytes: 64}.Encode),
		"a resize to 32 bytes":     ResizeCQ{Buffer: buf, EntryBytes: 32}.Encode,
		"a resize to nowhere":      ResizeCQ{EntryBytes: 64}.Encode,
		"no index, version 1":      qp(1, CreateQP{Record: db, UserIndex: NoUserIndex}),
		"an index, version 0":      qp(0, CreateQP{Record: db, UserIndex: 5}),
		"an index of 25 bits":      qp(1, CreateQP{Record: db, UserIndex: 1 << 24}),
		"a QP nowhere":             qp(1, CreateQP{Record: db, Size: QueuePairSize{Send: SendSize{Bytes: 64}}}),
		"a QP with crooked record": qp(1, CreateQP{Buffer: buf, Record: db + 1, Size: QueuePairSize{Send: SendSize{Bytes: 64}}}),
		"an SRQ nowhere":           CreateSRQ{Record: db}.Encode,
	} {
		if b, err := encode(); err == nil || b != nil || !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: % x, %v", name, b, err)
		}
	}
}

// contextAnswer is what a current kernel says of a ConnectX, from the table of
// struct mlx5_ib_alloc_ucontext_resp, with what differs.
func contextAnswer(change func(b []byte)) []byte {
	b := hostBytes(u32(1<<18), u32(512), u32(16), u32(64), u16(1024), u16(512), u32(32768), u32(32767), u32(32766), u16(2), u16(0), u32(0x3f), u32(72),
		u8(1), u8(3), u8(2), u8(1), u64(0x18), u32(12), u32(1), u32(1024), u32(0x4711))
	if change != nil {
		change(b)
	}
	return b
}

func put32(off int, v uint32) func([]byte) {
	return func(b []byte) { binary.NativeEndian.PutUint32(b[off:], v) }
}

func TestParseContext(t *testing.T) {
	full := Context{
		Limits: Limits{SendBytes: 1024, RecvBytes: 512, SendBlocks: 32768, RecvRequests: 32767, SharedRequests: 32766},
		Ports:  2, CacheLine: 64, CQEVersion: 1, BlueFlameBytes: 512, Registers: 16, ExclusiveRegisters: 4, UARBytes: 4096, UARsPerPage: 1,
		QueryDeviceData: true, CreateAHData: true, ClockPage: true, CoreClock: true, CoreClockOffset: 0x18, NullKey: 0x4711, HasNullKey: true, ECE: true, RealTime: true,
	}
	old := Context{Limits: full.Limits, Ports: 2, CacheLine: 64, BlueFlameBytes: 512, Registers: 16, ExclusiveRegisters: 4, UARBytes: 4096, UARsPerPage: 1}
	for name, c := range map[string]struct {
		in   []byte
		page int
		want func(c *Context)
	}{
		"all of it":         {contextAnswer(nil), 4096, nil},
		"more than we know": {append(contextAnswer(put32(40, 200)), 0xff, 0xff, 0xff), 4096, nil},
		"dynamic UARs":      {contextAnswer(put32(8, 0)), 4096, func(c *Context) { c.Registers, c.ExclusiveRegisters = 0, 0 }},
		"no BlueFlame":      {contextAnswer(put32(4, 0)), 4096, func(c *Context) { c.BlueFlameBytes = 0 }},
		"no bits": {contextAnswer(put32(36, 0)), 4096, func(c *Context) {
			c.CoreClock, c.CoreClockOffset, c.NullKey, c.HasNullKey, c.ECE, c.RealTime = false, 0, 0, false, false, false
		}},
		"pages of 64 KiB":         {contextAnswer(func(b []byte) { put32(8, 32)(b); put32(60, 16)(b) }), 65536, func(c *Context) { c.Registers, c.UARsPerPage = 32, 16 }},
		"UARs as large as a page": {contextAnswer(put32(56, 16)), 65536, func(c *Context) { c.UARBytes = 65536 }},
		"counted to the CQE version": {contextAnswer(put32(40, 45)), 4096, func(c *Context) {
			*c = old
			c.CQEVersion, c.CoreClock, c.HasNullKey, c.ECE, c.RealTime = 1, true, true, true, true
		}},
		"before 4 KiB UARs": {contextAnswer(put32(40, 56)), 4096, func(c *Context) { c.NullKey = 0 }},
		"cut short": {contextAnswer(nil)[:46], 4096, func(c *Context) {
			*c = old
			c.CQEVersion, c.QueryDeviceData, c.CreateAHData, c.CoreClock, c.HasNullKey, c.ECE, c.RealTime = 1, true, true, true, true, true, true
		}},
		"nothing but what all have": {contextAnswer(put32(8, 16))[:34], 4096, func(c *Context) { *c = old }},
		"counted wrongly":           {contextAnswer(put32(40, 1)), 4096, func(c *Context) { *c = old; c.CoreClock, c.HasNullKey, c.ECE, c.RealTime = true, true, true, true }},
	} {
		want := full
		if c.want != nil {
			c.want(&want)
		}
		got, err := ParseContext(c.in, 4, c.page)
		if err != nil || *got != want {
			t.Errorf("%s: %v\n%+v, want\n%+v", name, err, got, want)
		}
		if err == nil && got.Dynamic() != (want.Registers == 0) {
			t.Errorf("%s: dynamic %v", name, got.Dynamic())
		}
	}
	for name, in := range badContexts() {
		if c, err := ParseContext(in, 4, 4096); err == nil || !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// badContexts are answers that no driver gives.
func badContexts() map[string][]byte {
	return map[string][]byte{
		"nothing":                   nil,
		"31 bytes":                  contextAnswer(nil)[:31],
		"no ports":                  contextAnswer(func(b []byte) { b[32], b[33] = 0, 0 }),
		"CQE version 2":             contextAnswer(func(b []byte) { b[44] = 2 }),
		"lines of 48":               contextAnswer(put32(12, 48)),
		"lines of nothing":          contextAnswer(put32(12, 0)),
		"lines of 8 KiB":            contextAnswer(put32(12, 8192)),
		"registers of 192":          contextAnswer(put32(4, 192)),
		"registers of 64":           contextAnswer(put32(4, 64)),
		"registers of 2 KiB":        contextAnswer(put32(4, 2048)),
		"registers of 2 GiB":        contextAnswer(put32(4, 1<<31)),
		"an odd number of them":     contextAnswer(put32(8, 17)),
		"no end of them":            contextAnswer(put32(8, 1<<31)),
		"fewer than are exclusive":  contextAnswer(put32(8, 4)),
		"UARs of 2 KiB":             contextAnswer(put32(56, 11)),
		"UARs of 2^40":              contextAnswer(put32(56, 40)),
		"two UARs in a page":        contextAnswer(put32(60, 2)),
		"no UAR in a page":          contextAnswer(put32(60, 0)),
		"no end of UARs":            contextAnswer(put32(60, 1<<31)),
		"a clock past its page":     contextAnswer(put32(48, 4090)),
		"a clock far past its page": contextAnswer(func(b []byte) { copy(b[48:56], "\xff\xff\xff\xff\xff\xff\xff\xff") }),
	}
}

func TestParseNumbers(t *testing.T) {
	for name, parse := range map[string]func([]byte) (uint32, error){"PD": ParsePD, "CQ": ParseCreateCQ, "SRQ": ParseCreateSRQ} {
		for _, c := range []struct {
			in   []byte
			want uint32
			ok   bool
		}{
			{hostBytes(u32(0x123456), u32(0)), 0x123456, true},
			{hostBytes(u32(0xffffff)), 0xffffff, true},
			{hostBytes(u32(5), u32(0xffffffff), u64(1)), 5, true},
			{hostBytes(u32(0x1000000), u32(0)), 0, false},
			{hostBytes(u32(0xffffffff), u32(0)), 0, false},
			{hostBytes(u16(5), u8(0)), 0, false},
			{nil, 0, false},
		} {
			if got, err := parse(c.in); got != c.want || (err == nil) != c.ok {
				t.Errorf("%s from % x: %#x, %v", name, c.in, got, err)
			}
		}
	}
	for _, c := range []struct {
		in   []byte
		want QPResult
		ok   bool
	}{
		{hostBytes(u32(5), u32(0x10000001), 32), QPResult{Register: 5, HasRegister: true, ECE: 0x10000001}, true},
		{hostBytes(u32(0x80000000), u32(7), 32), QPResult{ECE: 7}, true},
		{hostBytes(u32(0xffffffff)), QPResult{}, true},
		{hostBytes(u32(1), u32(2), 100), QPResult{Register: 1, HasRegister: true, ECE: 2}, true},
		{hostBytes(u16(1)), QPResult{}, false},
	} {
		if got, err := ParseCreateQP(c.in); got != c.want || (err == nil) != c.ok {
			t.Errorf("QP from % x: %+v, %v", c.in, got, err)
		}
	}
	for _, c := range []struct {
		in   []byte
		want [6]byte
		ok   bool
	}{
		{hostBytes(u32(16), "\x02\x11\x22\x33\x44\x55", 6), [6]byte{2, 0x11, 0x22, 0x33, 0x44, 0x55}, true},
		{hostBytes(u32(10), "\x02\x11\x22\x33\x44\x55"), [6]byte{2, 0x11, 0x22, 0x33, 0x44, 0x55}, true},
		{hostBytes(u32(4), "\x02\x11\x22\x33\x44\x55", 6), [6]byte{}, false},
		{hostBytes(u32(16), 12), [6]byte{}, false},
		{hostBytes(u32(16), "\x02\x11\x22\x33\x44"), [6]byte{}, false},
	} {
		if got, err := ParseCreateAH(c.in); got != c.want || (err == nil) != c.ok {
			t.Errorf("AH from % x: %x, %v", c.in, got, err)
		}
	}
}

func TestUAR(t *testing.T) {
	if u, err := ParseUAR(UARBlueFlame, 0x12000, 4096, 0xffffff, 4096); err != nil || u != (UAR{UARBlueFlame, 0xffffff, 0x12000, 4096}) {
		t.Errorf("%+v, %v", u, err)
	}
	for name, err := range map[string]error{
		"half a page":         second(ParseUAR(UARUncached, 0, 2048, 1, 4096)),
		"a page of another":   second(ParseUAR(UARUncached, 0, 4096, 1, 65536)),
		"off its page":        second(ParseUAR(UARUncached, 0x12800, 4096, 1, 4096)),
		"past all files":      second(ParseUAR(UARUncached, 1<<63, 4096, 1, 4096)),
		"a number of 25 bits": second(ParseUAR(UARUncached, 0, 4096, 1<<24, 4096)),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if UARBlueFlame != 0 || UARUncached != 1 {
		t.Error("types of UARs")
	}
	c := Context{BlueFlameBytes: 512, UARsPerPage: 1}
	if got := c.DynamicRegisters(UARBlueFlame); !slices.Equal(got, []Register{{0x800, 512, 0}, {0xa00, 512, 0}}) {
		t.Errorf("BlueFlame registers %v", got)
	}
	if got := c.DynamicRegisters(UARUncached); !slices.Equal(got, []Register{{0x800, 256, 0}, {0x900, 256, 0}, {0xa00, 256, 0}, {0xb00, 256, 0}}) {
		t.Errorf("uncached registers %v", got)
	}
	c = Context{BlueFlameBytes: 1024, UARsPerPage: 2}
	if got := c.DynamicRegisters(UARBlueFlame); !slices.Equal(got, []Register{{0x800, 1024, 0}, {0xc00, 1024, 0}, {0x1800, 1024, 1}, {0x1c00, 1024, 1}}) {
		t.Errorf("BlueFlame registers of two UARs %v", got)
	}
	if got := (&Context{UARsPerPage: 1}).DynamicRegisters(UARBlueFlame); got != nil {
		t.Errorf("BlueFlame registers of a host without: %v", got)
	}
}

func second(_ UAR, err error) error { return err }

func TestStaticRegister(t *testing.T) {
	// 8 pages of a UAR; the last 4 registers serve one queue pair each.
	small := Context{Registers: 16, ExclusiveRegisters: 4, BlueFlameBytes: 512, UARsPerPage: 1}
	// 2 pages of 16.
	large := Context{Registers: 64, ExclusiveRegisters: 3, BlueFlameBytes: 256, UARsPerPage: 16}
	none := Context{Registers: 16, ExclusiveRegisters: 4, UARsPerPage: 1}
	for _, c := range []struct {
		ctx       *Context
		index     uint32
		page      int
		want      Register
		exclusive bool
	}{
		{&small, 0, 0, Register{0x800, 512, 0}, false},
		{&small, 1, 0, Register{0xa00, 512, 0}, false},
		{&small, 5, 1, Register{0xa00, 512, 0}, false},
		{&small, 21, 5, Register{0xa00, 512, 0}, false},
		{&small, 24, 6, Register{0x800, 512, 0}, true},
		{&small, 29, 7, Register{0xa00, 512, 0}, true},
		{&large, 4 * 15, 0, Register{15*4096 + 0x800, 256, 15}, false},
		{&large, 4*16 + 1, 1, Register{0x900, 256, 0}, false},
		{&large, 4 * 30, 1, Register{14*4096 + 0x800, 256, 14}, false},
		{&large, 4*30 + 1, 1, Register{14*4096 + 0x900, 256, 14}, true},
		{&none, 29, 7, Register{0x800, 8, 0}, false},
	} {
		page, r, exclusive, err := c.ctx.StaticRegister(c.index)
		if err != nil || page != c.page || r != c.want || exclusive != c.exclusive {
			t.Errorf("register %d of %d: page %d, %+v, exclusive %v, %v; want page %d, %+v, %v", c.index, c.ctx.Registers, page, r, exclusive, err, c.page, c.want, c.exclusive)
		}
	}
	for _, index := range []uint32{2, 3, 30, 32, 1 << 31, 1<<32 - 1} {
		if _, r, _, err := small.StaticRegister(index); err == nil {
			t.Errorf("register %#x is %+v", index, r)
		}
	}
	if small.StaticPages() != 8 || large.StaticPages() != 2 || (&Context{UARsPerPage: 1}).StaticPages() != 0 {
		t.Errorf("pages %d, %d", small.StaticPages(), large.StaticPages())
	}
}

func TestMapOffset(t *testing.T) {
	for _, c := range []struct {
		command MapCommand
		index   uint32
		page    int
		want    int64
	}{
		{MapRegular, 0, 4096, 0}, {MapRegular, 7, 4096, 0x7000}, {MapCombining, 255, 4096, 0x2ff000}, {MapUncached, 1, 65536, 0x3010000},
		{MapCoreClock, 0, 4096, 0x500000}, {MapClockInfo, 0, 4096, 0x700000}, {MapNewCombining, 0x1234, 4096, 0x12_06_34_000},
	} {
		if got, err := MapOffset(c.command, c.index, c.page); err != nil || got != c.want {
			t.Errorf("page %d of command %d: %#x, %v, want %#x", c.index, c.command, got, err, c.want)
		}
	}
	for command, index := range map[MapCommand]uint32{MapRegular: 256, MapClockInfo: 1 << 31, MapNewCombining: 1 << 16} {
		if got, err := MapOffset(command, index, 4096); err == nil {
			t.Errorf("page %d of command %d: %#x", index, command, got)
		}
	}
}
