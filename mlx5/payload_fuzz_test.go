package mlx5

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzPayload feeds whatever a driver could say to every reader of answers: they
// fail, or what they say is within the bounds that the rest of the library counts
// on.
func FuzzPayload(f *testing.F) {
	for _, b := range [][]byte{nil, contextAnswer(nil), contextAnswer(put32(8, 0)), contextAnswer(put32(60, 16)), hostBytes(u32(5), u32(7), 32), hostBytes(u32(16), "\x02\x11\x22\x33\x44\x55", 6), bytes.Repeat([]byte{0xff}, 80)} {
		f.Add(b, uint32(4), uint8(12), uint32(24))
	}
	f.Add(contextAnswer(func(b []byte) { put32(8, 32)(b); put32(60, 16)(b) }), uint32(4), uint8(16), uint32(65))
	for _, b := range badContexts() {
		f.Add(b, uint32(4), uint8(0), uint32(0))
	}
	for _, u := range [][3]uint32{{0x12000, 4096, 5}, {0x12800, 4096, 5}, {0, 2048, 5}, {0, 4096, 1 << 24}} {
		f.Add(hostBytes(uint64(u[0]), u[1], u[2]), uint32(0), uint8(0), uint32(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, exclusive uint32, shift uint8, index uint32) {
		pageSize := 1 << (12 + shift%9)
		in := bytes.Clone(b)
		if c, err := ParseContext(b, exclusive, pageSize); err == nil {
			fuzzContext(t, c, pageSize, index)
		}
		for _, parse := range []func([]byte) (uint32, error){ParsePD, ParseCreateCQ, ParseCreateSRQ} {
			if n, err := parse(b); err == nil && (n >= 1<<24 || n != binary.NativeEndian.Uint32(b)) {
				t.Errorf("number %#x from % x", n, b)
			}
		}
		if r, err := ParseCreateQP(b); err == nil && (r.HasRegister == (binary.NativeEndian.Uint32(b)>>31 == 1) || r.Register>>31 != 0) {
			t.Errorf("%+v from % x", r, b)
		}
		if mac, err := ParseCreateAH(b); err == nil && (mac == [6]byte{} || !bytes.Equal(mac[:], b[4:10])) {
			t.Errorf("%x from % x", mac, b)
		}
		if len(b) >= 16 {
			off, length, id := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
			if u, err := ParseUAR(UARUncached, off, length, id, pageSize); err == nil && (u.MapOffset < 0 || uint64(u.MapOffset) != off || u.MapOffset%int64(pageSize) != 0 || u.MapBytes != pageSize || u.PageID >= 1<<24) {
				t.Errorf("%+v from % x", u, b)
			}
		}
		if !bytes.Equal(b, in) {
			t.Error("an answer was changed")
		}
	})
}

// fuzzContext checks that all registers of a context lie in their pages and apart.
func fuzzContext(t *testing.T, c *Context, pageSize int, index uint32) {
	t.Helper()
	if c.UARBytes < 4096 || c.UARsPerPage < 1 || c.UARBytes*c.UARsPerPage > pageSize || c.CacheLine < 8 || c.CQEVersion > 1 || c.CoreClockOffset > pageSize-8 {
		t.Fatalf("%+v with pages of %d", c, pageSize)
	}
	if n := c.StaticPages() * c.UARsPerPage * 2; n != int(c.Registers) {
		t.Fatalf("%d registers in the pages of %+v", n, c)
	}
	inPage := func(r Register) {
		if r.Offset < 0x800 || r.Offset%64 != 0 || r.Bytes < 8 || r.Offset+r.Bytes > pageSize || int(r.UAR) != r.Offset/4096 || (r.Offset+r.Bytes-1)/4096 != int(r.UAR) {
			t.Fatalf("register %+v of %+v", r, c)
		}
	}
	end := 0
	for _, kind := range []UARType{UARBlueFlame, UARUncached} {
		for _, r := range c.DynamicRegisters(kind) {
			inPage(r)
			if r.Offset < end {
				t.Fatalf("register %+v of %+v begins in another", r, c)
			}
			end = r.Offset + r.Bytes
		}
		end = 0
	}
	if page, r, exclusive, err := c.StaticRegister(index); err == nil {
		inPage(r)
		if page < 0 || page >= c.StaticPages() || exclusive && r.Bytes < 128 {
			t.Fatalf("register %d is %+v in page %d of %+v", index, r, page, c)
		}
	}
	if s, err := SizeSend(c.Limits, RC, index%5000, index%60, index%1000, 0); err == nil && (s.Bytes < 0 || s.Bytes > 1<<30) {
		t.Fatalf("%+v of %+v", s, c.Limits)
	}
}
