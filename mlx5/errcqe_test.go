package mlx5_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// Error CQEs that people pasted; see tools/decode/testdata for the texts.
const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

var entries = []struct {
	hex  string
	want mlx5.ErrorCQE
}{
	{zeros + "0000000000000000000000000000000000000000" + "a9005604000001e90054e8e2", mlx5.ErrorCQE{
		Side: cq.RecvSide, Syndrome: mlx5.SyndromeLocalProtection, Vendor: 0x56, HWSyndrome: 0xa9, QPN: 0x1e9, WQECounter: 84, Signature: 0xe8}},
	{zeros + "0000000000000000000000000000000000000000" + "00008813080361b31ea142d3", mlx5.ErrorCQE{
		Side: cq.SendSide, Owner: 1, Syndrome: mlx5.SyndromeRemoteAccess, Vendor: 0x88, SendOpcode: 8, QPN: 221619, WQECounter: 7841, Signature: 0x42}},
	{zeros + "000000b300000000000000000000000000000000" + "930052040a0019a1c0921cd2", mlx5.ErrorCQE{
		Side: cq.SendSide, Syndrome: mlx5.SyndromeLocalProtection, Vendor: 0x52, HWSyndrome: 0x93, SendOpcode: 10, QPN: 6561, UserIndex: 0xb3, WQECounter: 49298, Signature: 0x1c}},
	{zeros + "0000000000000000000000000000000000000000" + "601068010a001dbb000f9fd2", mlx5.ErrorCQE{
		Side: cq.SendSide, Syndrome: mlx5.SyndromeLocalLength, Vendor: 0x68, HWSyndrome: 0x60, HWSyndromeType: 0x10, SendOpcode: 10, QPN: 7611, WQECounter: 15, Signature: 0x9f}},
}

func entry(tb testing.TB, s string) *[64]byte {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 64 {
		tb.Fatalf("%q is not 64 bytes: %v", s, err)
	}
	return (*[64]byte)(b)
}

func TestParseErrorCQE(t *testing.T) {
	for _, c := range entries {
		got, err := mlx5.ParseErrorCQE(entry(t, c.hex))
		if err != nil || got != c.want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", c.hex, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for op := range 256 {
		var b [64]byte
		b[63] = byte(op)
		_, err := mlx5.ParseErrorCQE(&b)
		_, sig := mlx5.ParseSignatureErrorCQE(&b)
		var want, wantSig error
		switch {
		case op&0xc == 0xc:
			want = mlx5.ErrCompressedCQE
		case op>>4 != 0xd && op>>4 != 0xe:
			want = mlx5.ErrNotErrorCQE
		}
		switch {
		case op>>4 != 0xc:
			wantSig = mlx5.ErrNotErrorCQE
		case op&0xc == 0xc:
			wantSig = mlx5.ErrCompressedCQE
		}
		if !errors.Is(err, want) || !errors.Is(sig, wantSig) {
			t.Errorf("byte 63 %#02x: %v and %v, want %v and %v", op, err, sig, want, wantSig)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%#02x", op)) {
			t.Errorf("%v does not name the byte %#02x", err, op)
		}
	}
}

func TestParseSignatureErrorCQE(t *testing.T) {
	b := entry(t, "00000000000000000000000000000000"+"11112222"+"33334444"+"55556666"+"77778888"+
		"2800"+"03"+"02"+"0badcafe"+"0000000100000200"+"0000000000000000"+"00000123"+"0000"+"00"+"c0")
	got, err := mlx5.ParseSignatureErrorCQE(b)
	want := mlx5.SignatureErrorCQE{QPN: 0x123, MKey: 0xbadcafe, Offset: 0x100000200, Guard: true, RefTag: true,
		Expected: 0x11112222, Actual: 0x33334444, ExpectedRef: 0x55556666, ActualRef: 0x77778888, Type: 3, Domain: 2}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// TestStatusOfSyndromes holds the mapping against the drivers'.
func TestStatusOfSyndromes(t *testing.T) {
	want := map[mlx5.Syndrome]cq.Status{0x01: 1, 0x02: 2, 0x04: 4, 0x05: 5, 0x06: 6, 0x10: 7, 0x11: 8, 0x12: 9,
		0x13: 10, 0x14: 11, 0x15: 12, 0x16: 13, 0x22: 16}
	for i := range 256 {
		s := mlx5.Syndrome(i)
		st, ok := want[s]
		if !ok {
			st = cq.StatusGeneral
		}
		if s.Status() != st {
			t.Errorf("syndrome %#x is status %v, want %v", i, s.Status(), st)
		}
		if back, known := mlx5.SyndromeOf(st); known != ok && st != cq.StatusGeneral || ok && back != s {
			t.Errorf("status %v is syndrome %v, %v, want %v", st, back, known, s)
		}
		if s.Known() == strings.HasPrefix(s.String(), "Syndrome(") {
			t.Errorf("syndrome %#x: known %v, name %q", i, s.Known(), s)
		}
	}
	if _, ok := mlx5.SyndromeOf(cq.StatusGeneral); ok {
		t.Error("a general error has no syndrome of its own")
	}
}

func TestVendorSyndromes(t *testing.T) {
	for v, want := range map[mlx5.VendorSyndrome]string{
		0x00: "none",
		0x0a: "unknown",
		0x32: "data buffer of the request: the memory region belongs to another protection domain",
		0x33: "data buffer of the request: the memory region does not allow",
		0x51: "gather), or a bind: PCIe error",
		0x54: "gather), or a bind: outside the memory region",
		0x56: "page fault",
		0x61: "PCIe error",
		0x78: "fast memory registration: unknown reason",
		0x68: "badly formed",
		0x40: "completion queue: not valid",
		0x47: "unknown",
		0x81: "all retries timed out",
		0x87: "receiver not ready",
		0x93: "paging fault",
		0x97: "suspended",
		0x99: "aborted",
		0xac: "timer code 12",
		0xc3: "write with immediate: the memory region does not allow",
		0xc9: "an invalidation: PCIe error",
		0xe7: "unknown",
		0xf9: "flushed",
		0xff: "unknown",
	} {
		if got := v.String(); !strings.Contains(got, want) {
			t.Errorf("%#02x: %q, want %q in it", uint8(v), got, want)
		}
		if v.Known() == (want == "unknown" || want == "none") {
			t.Errorf("%#02x: known %v", uint8(v), v.Known())
		}
	}
}

func TestSendOpcodes(t *testing.T) {
	for o, want := range map[mlx5.SendOpcode]string{0x08: "RDMA_WRITE", 0x0a: "SEND", 0x10: "RDMA_READ", 0x25: "UMR", 0x3f: "SendOpcode(0x3f)"} {
		if o.String() != want || o.Known() == strings.HasPrefix(want, "SendOpcode") {
			t.Errorf("%#02x: %q, %v", uint8(o), o, o.Known())
		}
	}
}

// TestSignatures holds the check against entries whose consumer counter the log
// printed.
func TestSignatures(t *testing.T) {
	zero := zeros + "0000000000000000000000000000000000000000"
	for _, c := range []struct {
		hex     string
		counter uint32
		want    mlx5.SignatureResult
	}{
		{zero + "601068010a001dbb000f9fd2", 0x8, mlx5.SignatureRight},
		{zero + "860068022500010d0000e8d2", 0x0, mlx5.SignatureRight},
		{zero + "8600f90525000125000c5ed2", 0x4, mlx5.SignatureRight},
		// The log prints the counter modulo the size of the ring.
		{zero + "0100680201" + "0008f4de1459d2", 0x2022, mlx5.SignatureWrapped},
		// One bit turned over, and a counter too large for that to be a lap.
		{zero + "601068010a001dbb000f9ed2", 0x400008, mlx5.SignatureWrong},
	} {
		if got := mlx5.CheckSignature(entry(t, c.hex), c.counter); got != c.want {
			t.Errorf("%s with counter %#x: %v, want %v", c.hex, c.counter, got, c.want)
		}
	}
}

// TestSignatureBruteForce holds CheckSignature against trying every lap of every
// ring, for counters so large that few laps are left.
func TestSignatureBruteForce(t *testing.T) {
	for _, counter := range []uint32{0x0f0001, 0x123456, 0x3fffff, 0x7f1234, 0xffffff} {
		for fold := range 256 {
			for owner := range byte(2) {
				var b [64]byte
				b[63] = 0xd0 | owner
				b[62] = byte(fold) ^ 0xff ^ b[63]
				if got := mlx5.SignatureFold(&b); got != byte(fold) {
					t.Fatalf("fold %#x, want %#x", got, fold)
				}
				want := mlx5.SignatureWrong
				xor := func(c uint32) byte { return byte(c) ^ byte(c>>8) ^ byte(c>>16) }
				for l := 0; l < 24; l++ {
					for lap := uint32(0); lap < 1<<(24-l) && counter < 1<<l; lap++ {
						if byte(lap&1) == owner && xor(counter|lap<<l) == byte(fold) {
							want = mlx5.SignatureWrapped
						}
					}
				}
				if xor(counter) == byte(fold) {
					want = mlx5.SignatureRight
				}
				if got := mlx5.CheckSignature(&b, counter); got != want {
					t.Fatalf("counter %#x, fold %#x, owner %d: %v, want %v", counter, fold, owner, got, want)
				}
			}
		}
	}
}

// bitsOf reads bits first to last of an entry as the manual counts them: bit 0 is
// the highest of byte 0. It is slow and obvious.
func bitsOf(b *[64]byte, first, last int) uint64 {
	x := new(big.Int).SetBytes(b[:])
	x.Rsh(x, uint(511-last))
	return x.Mod(x, new(big.Int).Lsh(big.NewInt(1), uint(last-first+1))).Uint64()
}

// FuzzErrorCQE holds the parsers against reading the same fields bit by bit.
func FuzzErrorCQE(f *testing.F) {
	for _, c := range entries {
		f.Add(entry(f, c.hex)[:], uint32(0))
	}
	f.Add(make([]byte, 64), uint32(0))
	for _, op := range []byte{0xc0, 0xc1, 0xcc, 0xd0, 0xdf, 0xe1, 0xf0} {
		b := make([]byte, 64)
		b[63] = op
		f.Add(b, uint32(op)<<16)
	}
	for _, v := range []byte{0x00, 0x0a, 0x47, 0x51, 0x97, 0xac, 0xc3, 0xe7, 0xf9} {
		b := make([]byte, 64)
		b[54], b[55], b[56], b[63] = v, v, v, 0xd0
		f.Add(b, uint32(0x7fffff))
	}
	f.Fuzz(func(t *testing.T, in []byte, counter uint32) {
		var b [64]byte
		copy(b[:], in)
		opcode, format := bitsOf(&b, 504, 507), bitsOf(&b, 508, 509)
		e, err := mlx5.ParseErrorCQE(&b)
		switch {
		case format == 3:
			if !errors.Is(err, mlx5.ErrCompressedCQE) {
				t.Fatalf("format 3: %v", err)
			}
		case opcode != 13 && opcode != 14:
			if !errors.Is(err, mlx5.ErrNotErrorCQE) {
				t.Fatalf("opcode %d: %v", opcode, err)
			}
		default:
			want := mlx5.ErrorCQE{
				Side: cq.Side(opcode - 13), Owner: uint8(bitsOf(&b, 511, 511)),
				Syndrome: mlx5.Syndrome(bitsOf(&b, 440, 447)), Vendor: mlx5.VendorSyndrome(bitsOf(&b, 432, 439)),
				HWSyndrome: uint8(bitsOf(&b, 416, 423)), HWSyndromeType: uint8(bitsOf(&b, 424, 431)),
				SendOpcode: mlx5.SendOpcode(bitsOf(&b, 448, 455)), QPN: uint32(bitsOf(&b, 456, 479)),
				UserIndex: uint32(bitsOf(&b, 264, 287)), WQECounter: uint16(bitsOf(&b, 480, 495)), Signature: uint8(bitsOf(&b, 496, 503)),
			}
			if err != nil || e != want {
				t.Fatalf("got %+v, %v, want %+v", e, err, want)
			}
			if s := e.Syndrome.Status(); s == cq.StatusSuccess || s > cq.StatusGeneral {
				t.Fatalf("syndrome %v has status %v", e.Syndrome, s)
			}
			checkNames(t, e)
		}
		s, err := mlx5.ParseSignatureErrorCQE(&b)
		if (opcode == 12 && format != 3) != (err == nil) {
			t.Fatalf("opcode %d, format %d: %v", opcode, format, err)
		}
		if err == nil && (uint64(s.MKey) != bitsOf(&b, 288, 319) || s.Offset != bitsOf(&b, 320, 383) || s.Guard != (bitsOf(&b, 258, 258) == 1)) {
			t.Fatalf("got %+v", s)
		}
		var x byte
		for i := range 64 {
			x ^= byte(bitsOf(&b, 8*i, 8*i+7))
		}
		got := mlx5.CheckSignature(&b, counter)
		right := x^byte(counter)^byte(counter>>8)^byte(counter>>16) == 0xff
		if (got == mlx5.SignatureRight) != right {
			t.Fatalf("counter %#x: %v, right %v", counter, got, right)
		}
	})
}

// checkNames: every code has a name, and those that are not known say so.
func checkNames(t *testing.T, e mlx5.ErrorCQE) {
	t.Helper()
	if e.Vendor != 0 && e.Vendor.Known() == strings.HasPrefix(e.Vendor.String(), "unknown") || e.Vendor.String() == "" {
		t.Fatalf("vendor code %#x: known %v, %q", uint8(e.Vendor), e.Vendor.Known(), e.Vendor)
	}
	if e.SendOpcode.Known() == strings.HasPrefix(e.SendOpcode.String(), "SendOpcode(") {
		t.Fatalf("opcode %#x: known %v, %q", uint8(e.SendOpcode), e.SendOpcode.Known(), e.SendOpcode)
	}
	if e.Syndrome.Known() == strings.HasPrefix(e.Syndrome.String(), "Syndrome(") {
		t.Fatalf("syndrome %#x: known %v, %q", uint8(e.Syndrome), e.Syndrome.Known(), e.Syndrome)
	}
	s := e.Syndrome.Status()
	if back, ok := mlx5.SyndromeOf(s); ok != (s != cq.StatusGeneral) || ok && back != e.Syndrome {
		t.Fatalf("syndrome %v is status %v, which is syndrome %v, %v", e.Syndrome, s, back, ok)
	}
}

func ExampleParseErrorCQE() {
	var b [64]byte
	tail, _ := hex.DecodeString("00008813080361b31ea142d3")
	copy(b[52:], tail)
	e, err := mlx5.ParseErrorCQE(&b)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v side, QP %#x, request %d, %v\n", e.Side, e.QPN, e.WQECounter, e.SendOpcode)
	fmt.Println(e.Syndrome.Status().String())
	fmt.Println(e.Vendor)
	// Output:
	// send side, QP 0x361b3, request 7841, RDMA_WRITE
	// remote access error
	// the peer answered: remote access error
}
