package mlx5

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// testLimits are those of a ConnectX as its driver tells them.
var testLimits = Limits{SendBytes: 1024, RecvBytes: 512, SendBlocks: 32768, RecvRequests: 32768, SharedRequests: 32767}

// testQueue is a send queue on memory of its own.
type testQueue struct {
	*SQ
	size      SendSize
	mem       []byte
	record    []byte
	register  []byte
	addresses *AddressVectors
	requests  *cq.Requests
}

// newTestQueue makes a send queue for so many requests, of 4 elements or 188 bytes
// inline; bell makes the doorbell of a register.
func newTestQueue(tb testing.TB, tr Transport, requests uint32, bell func([]byte) (*Doorbell, error)) *testQueue {
	tb.Helper()
	size, err := SizeSend(testLimits, tr, requests, 4, 188, 0)
	if err != nil {
		tb.Fatal(err)
	}
	q := &testQueue{size: size, mem: guarded(tb, size.Bytes, true), record: aligned(recordBytes), register: aligned(512)}
	q.requests = cq.NewRequests(size.Requests, cq.SendSide, 0x4a5, new(cq.State))
	if tr == UD {
		q.addresses = new(AddressVectors)
	}
	d, err := bell(q.register)
	if err != nil {
		tb.Fatal(err)
	}
	q.SQ, err = NewSQ(SQConfig{Memory: q.mem, Record: q.record, Doorbell: d, QPN: 0x4a5, Size: size, Requests: q.requests, Addresses: q.addresses})
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

// stage enters a request in the table and Puts it.
func (q *testQueue) stage(r cq.SendRequest) (seq uint32) {
	seq, _ = q.requests.Stage(7, r.Op, r.Length, r.Flags&cq.Unsignaled != 0)
	r.WRID = cq.MakeWRID(3, cq.SendSide, seq)
	q.Put(&r)
	return seq
}

// flush publishes what is staged.
func (q *testQueue) flush() {
	q.requests.Commit()
	q.Publish()
}

// end completes all that is outstanding.
func (q *testQueue) end() {
	var wcs [8]cq.WC
	for done := false; !done; {
		_, done = q.requests.Abandon(wcs[:], q.requests.Tail(), false)
	}
}

// at sets where the queue is, as if so many blocks had been used.
func (q *testQueue) at(block uint32) { q.next, q.published, q.last = block, block, block }

const far = 0xfeed_0000_1234_5678

var sges = []cq.SGE{
	{Addr: 0x7f00_0000_1000, Length: 0x40, LKey: 0x1a1},
	{Addr: 0x8000_0000_0000_0008, Length: 0x1000_0000, LKey: 0x1b2},
	{Addr: 0x7f00_0000_2000, Length: 1, LKey: 0x1c3},
}

const (
	pointer1 = "10000000 000001b2 8000000000000008 "
	pointer2 = "00000001 000001c3 00007f0000002000 "
	remote   = "feed000012345678 000002c3 00000000 "
)

// sendGolden are requests and their WQEs, composed by hand from the tables of the
// layouts (control segment, other segments, opcodes), not from the code. IIII is
// the block's index. Where the last blocks are not full the rest is anything.
var sendGolden = []struct {
	name string
	tr   Transport
	req  cq.SendRequest
	want string
}{
	{"send", RC, cq.SendRequest{Op: cq.OpSend, SGEs: sges[:1]},
		"00 IIII 0a 0004a5 02 00 0000 08 00000000 " + "00000040 000001a1 00007f0000001000"},
	{"send of two elements", RC, cq.SendRequest{Op: cq.OpSend, SGEs: sges[:2]},
		"00 IIII 0a 0004a5 03 00 0000 08 00000000 " + "00000040 000001a1 00007f0000001000" + pointer1},
	{"send of nothing, with what its operation does not use", RC,
		cq.SendRequest{Op: cq.OpSend, Imm: 5, RemoteAddr: far, RKey: 6, InvalidateRKey: 7, Operand: 8, Compare: 9},
		"00 IIII 0a 0004a5 01 00 0000 08 00000000"},
	{"send of elements of no length", RC, cq.SendRequest{Op: cq.OpSend, SGEs: []cq.SGE{{Addr: 1, LKey: 2}, sges[2], {Addr: 3, LKey: 4}}},
		"00 IIII 0a 0004a5 02 00 0000 08 00000000 " + pointer2},
	{"send, quiet", RC, cq.SendRequest{Op: cq.OpSend, Flags: cq.Unsignaled, SGEs: sges[2:]},
		"00 IIII 0a 0004a5 02 00 0000 00 00000000 " + pointer2},
	{"send with immediate, quiet and solicited", RC, cq.SendRequest{Op: cq.OpSendImm, Flags: cq.Unsignaled | cq.Solicited, Imm: 0x01020304, InvalidateRKey: 7, SGEs: sges[2:]},
		"00 IIII 0b 0004a5 02 00 0000 02 01020304 " + pointer2},
	{"send with invalidate, fenced", RC, cq.SendRequest{Op: cq.OpSendInvalidate, Flags: cq.Fence, Imm: 5, InvalidateRKey: 0x800001aa, SGEs: sges[2:]},
		"00 IIII 01 0004a5 02 00 0000 88 800001aa " + pointer2},
	{"write", RC, cq.SendRequest{Op: cq.OpWrite, Imm: 5, RemoteAddr: far, RKey: 0x2c3, SGEs: sges[2:]},
		"00 IIII 08 0004a5 03 00 0000 08 00000000 " + remote + pointer2},
	{"write of nothing", RC, cq.SendRequest{Op: cq.OpWrite, RemoteAddr: far, RKey: 0x2c3},
		"00 IIII 08 0004a5 02 00 0000 08 00000000 " + remote},
	{"write of three elements: two blocks", RC, cq.SendRequest{Op: cq.OpWrite, RemoteAddr: far, RKey: 0x2c3, SGEs: []cq.SGE{sges[2], sges[1], sges[2]}},
		"00 IIII 08 0004a5 05 00 0000 08 00000000 " + remote + pointer2 + pointer1 + pointer2},
	{"write with immediate, all flags, inline", RC, cq.SendRequest{Op: cq.OpWriteImm, Flags: cq.Unsignaled | cq.Fence | cq.Solicited | cq.Inline, Imm: 0xcafef00d, RemoteAddr: far, RKey: 0x2c3, Data: []byte("hello")},
		"00 IIII 09 0004a5 03 00 0000 82 cafef00d " + remote + "80000005 68656c6c 6f"},
	{"inline of 12 bytes fills a segment", RC, cq.SendRequest{Op: cq.OpSend, Flags: cq.Inline, Data: []byte("twelve bytes")},
		"00 IIII 0a 0004a5 02 00 0000 08 00000000 8000000c 7477656c7665206279746573"},
	{"inline of 13 bytes takes another", RC, cq.SendRequest{Op: cq.OpSend, Flags: cq.Inline, Data: []byte("thirteen byte")},
		"00 IIII 0a 0004a5 03 00 0000 08 00000000 8000000d 746869727465656e2062797465"},
	{"inline of 61 bytes: two blocks", RC, cq.SendRequest{Op: cq.OpSend, Flags: cq.Inline, Data: bytes.Repeat([]byte{0xa5}, 61)},
		"00 IIII 0a 0004a5 06 00 0000 08 00000000 8000003d" + strings.Repeat("a5", 61)},
	{"inline of nothing", RC, cq.SendRequest{Op: cq.OpWrite, Flags: cq.Inline, RemoteAddr: far, RKey: 0x2c3},
		"00 IIII 08 0004a5 02 00 0000 08 00000000 " + remote},
	{"read", RC, cq.SendRequest{Op: cq.OpRead, RemoteAddr: far, RKey: 0x2c3, SGEs: []cq.SGE{sges[1], sges[2]}},
		"00 IIII 10 0004a5 04 00 0000 08 00000000 " + remote + pointer1 + pointer2},
	{"compare and swap", RC, cq.SendRequest{Op: cq.OpCompareSwap, RemoteAddr: far, RKey: 0x2c3, Compare: 0x0102030405060708, Operand: 0x1112131415161718,
		SGEs: []cq.SGE{{Addr: 0x7f0000002000, Length: 8, LKey: 0x1c3}}},
		"00 IIII 11 0004a5 04 00 0000 08 00000000 " + remote + "1112131415161718 0102030405060708 00000008 000001c3 00007f0000002000"},
	{"fetch and add, of an element that is too long", RC, cq.SendRequest{Op: cq.OpFetchAdd, RemoteAddr: far, RKey: 0x2c3, Compare: 3, Operand: 0xfffffffffffffffe,
		SGEs: []cq.SGE{{Addr: 0x7f0000002000, Length: 800, LKey: 0x1c3}}},
		"00 IIII 12 0004a5 04 00 0000 08 00000000 " + remote + "fffffffffffffffe 0000000000000000 00000008 000001c3 00007f0000002000"},
	{"bind", RC, cq.SendRequest{Op: cq.OpBindMW, RemoteAddr: far, RKey: 0x800001ab, WindowRKey: 0x800001aa, WindowLKey: 0x1a1, WindowBytes: 0x20001, WindowAccess: 0xe},
		"00 IIII 25 0004a5 0c 00 0000 08 800001aa " +
			// check that it is free, inline, translation offset; 4 octowords; mask
			"b0 000000 0004 0000 00000000203c6041" + strings.Repeat("00", 32) +
			// atomic, write and read; owner and key; start and length
			"00 00 70 00 0004a5ab 00000000 00000000 feed000012345678 0000000000020001" + strings.Repeat("00", 32) +
			"00020001 000001a1 feed000012345678" + strings.Repeat("00", 48)},
	{"bind of 2 GiB that counts from 0, to write only", RC, cq.SendRequest{Op: cq.OpBindMW, RemoteAddr: far, RKey: 0xab, WindowRKey: 0xaa, WindowLKey: 0x1a1, WindowBytes: 1 << 31, WindowAccess: 0x23},
		"00 IIII 25 0004a5 0c 00 0000 08 000000aa " +
			"b0 000000 0004 0000 00000000203c6041" + strings.Repeat("00", 32) +
			"00 00 28 00 0004a5ab 00000000 00000000 0000000000000000 0000000080000000" + strings.Repeat("00", 32) +
			"80000000 000001a1 feed000012345678" + strings.Repeat("00", 48)},
	{"bind of nothing", RC, cq.SendRequest{Op: cq.OpBindMW, RemoteAddr: far, RKey: 0x800001ab, WindowRKey: 0x800001aa, WindowLKey: 0x1a1, WindowAccess: 0xe},
		"00 IIII 25 0004a5 08 00 0000 08 800001aa " +
			"98 000000 0000 0000 0000000020006000" + strings.Repeat("00", 32) +
			"40 00 00 00 ffffffab" + strings.Repeat("00", 56)},
	{"local invalidate, quiet", RC, cq.SendRequest{Op: cq.OpLocalInvalidate, Flags: cq.Unsignaled, InvalidateRKey: 0x800001aa, RKey: 0x11},
		"00 IIII 25 0004a5 08 00 0000 00 800001aa " +
			// check that it belongs to the queue pair, inline, translation offset; mask
			"98 000000 0000 0000 0000000020006000" + strings.Repeat("00", 32) +
			"40 00 00 00 ffffff00" + strings.Repeat("00", 56)},
	{"datagram", UD, cq.SendRequest{Op: cq.OpSend, AH: 1, DestQPN: 0x112233, QKey: 0x81111111, SGEs: sges[2:]},
		"00 IIII 0a 0004a5 05 00 0000 08 00000000 " +
			"81111111 00000000 80112233 06 00 c123 00000000 021122334455 68 40 003abcde 20010db8000000000000000000000042" + pointer2},
	{"datagram with immediate, of nothing", UD, cq.SendRequest{Op: cq.OpSendImm, Flags: cq.Solicited, Imm: 0x01020304, AH: 2, DestQPN: 1, QKey: 1},
		"00 IIII 0b 0004a5 04 00 0000 0a 01020304 " +
			"00000001 00000000 80000001 0c 05 1234" + strings.Repeat("00", 32)},
	{"datagram inline to an address that is gone", UD, cq.SendRequest{Op: cq.OpSend, Flags: cq.Inline, AH: 99, DestQPN: 0xffffff, QKey: 1, Data: []byte{1, 2, 3}},
		"00 IIII 0a 0004a5 05 00 0000 08 00000000 " +
			"00000001 00000000 80ffffff" + strings.Repeat("00", 36) + "80000003 010203"},
}

// testAddresses are the address vectors 1 and 2 of the table above.
var testAddresses = []AddressVector{
	{Ethernet: true, SL: 3, Global: true, DestGID: [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 0x42}, SourceIndex: 3, FlowLabel: 0xabcde, TrafficClass: 0x68, HopLimit: 0x40,
		DestMAC: [6]byte{2, 0x11, 0x22, 0x33, 0x44, 0x55}, UDPPort: 0xc123},
	{SL: 12, SourcePath: 5, DestLID: 0x1234},
}

func addTestAddresses(tb testing.TB, q *testQueue) {
	for i := range testAddresses {
		if n, err := q.addresses.Add(&testAddresses[i]); err != nil || n != uint32(i+1) {
			tb.Fatalf("address %d is %d, %v", i, n, err)
		}
	}
}

// TestSendGolden puts every request at every block of a ring, also where it goes
// round its end, and with the block's index about to wrap.
func TestSendGolden(t *testing.T) {
	queues := map[Transport]*testQueue{}
	for _, tr := range []Transport{RC, UD} {
		queues[tr] = newTestQueue(t, tr, 2, UncachedDoorbell)
		if tr == UD {
			addTestAddresses(t, queues[tr])
		}
	}
	for _, c := range sendGolden {
		q := queues[c.tr]
		blocks := q.size.Blocks
		for i := range blocks + 2 {
			begin := 0x10000 - blocks + i
			q.at(begin)
			q.fence, q.publishedFence = 0, 0
			fill(q.mem)
			fill(q.register)
			fill(q.record)
			want := parseBytes(t, strings.ReplaceAll(c.want, "IIII", strings.ToLower(string([]byte{hexDigit(begin >> 12), hexDigit(begin >> 8), hexDigit(begin >> 4), hexDigit(begin)}))))
			seq := q.stage(c.req)
			got := append(bytes.Clone(q.mem[begin<<6&q.mask:]), q.mem[:begin<<6&q.mask]...)
			if !bytes.Equal(got[:len(want)], want) {
				t.Errorf("%s at block %d of %d:\n%s, want\n%s", c.name, begin&(blocks-1), blocks, dump(got[:len(want)]), dump(want))
			}
			n := (len(want) + 15) &^ 15
			if rest := bytes.TrimLeft(got[n:], "\xdb"); len(rest) > 0 {
				t.Errorf("%s at block %d of %d: wrote past its %d bytes", c.name, begin&(blocks-1), blocks, n)
			}
			if q.record[4] != recordedFill || q.register[0] != recordedFill {
				t.Errorf("%s: published before Publish", c.name)
			}
			q.flush()
			end := begin + uint32(n+63)/64
			if !bytes.Equal(q.record, []byte{recordedFill, recordedFill, recordedFill, recordedFill, 0, 0, byte(end >> 8), byte(end)}) {
				t.Errorf("%s at block %#x: record % x", c.name, begin, q.record)
			}
			if !bytes.Equal(q.register[:8], want[:8]) || len(bytes.TrimLeft(q.register[8:], "\xdb")) > 0 {
				t.Errorf("%s: doorbell % x, want % x", c.name, q.register[:16], want[:8])
			}
			if found, ok := q.requests.Find(uint16(begin)); !ok || found != seq {
				t.Errorf("%s at block %#x: its place leads to %d, %v, want %d", c.name, begin, found, ok, seq)
			}
			q.end()
		}
	}
}

func hexDigit(n uint32) byte { return "0123456789abcdef"[n&15] }

// TestFence: what comes after a window that was bound or invalidated waits for it,
// once, also across doorbells and what was taken back.
func TestFence(t *testing.T) {
	q := newTestQueue(t, RC, 16, UncachedDoorbell)
	control := func() byte { return q.mem[q.last<<6&q.mask+11] }
	send, invalidate := cq.SendRequest{Op: cq.OpSend}, cq.SendRequest{Op: cq.OpLocalInvalidate, Flags: cq.Unsignaled}
	fenced := cq.SendRequest{Op: cq.OpSend, Flags: cq.Fence}
	bind := cq.SendRequest{Op: cq.OpBindMW, WindowBytes: 1}
	for i, step := range []struct {
		r    *cq.SendRequest // nil: flush
		back uint32
		want byte
	}{
		{r: &send, want: 0x08}, {r: &invalidate, want: 0x00}, {r: &send, want: 0x28}, {r: &send, want: 0x08},
		{r: &bind, want: 0x08}, {r: &invalidate, want: 0x20}, {}, {r: &fenced, want: 0x88}, {r: &send, want: 0x08},
		{r: &invalidate, want: 0x00}, {r: &send, want: 0x28}, {back: 1}, {r: &send, want: 0x28}, {back: 2}, {r: &send, want: 0x08},
		{r: &invalidate, want: 0x00}, {}, {r: &send, want: 0x28}, {back: 1}, {r: &fenced, want: 0x88}, {back: 7}, {r: &send, want: 0x28}, {},
	} {
		switch {
		case step.r != nil:
			if q.stage(*step.r); control() != step.want {
				t.Errorf("step %d: %v has control byte %#02x, want %#02x", i, step.r.Op, control(), step.want)
			}
		case step.back > 0:
			q.requests.Rollback(min(step.back, q.requests.Staged()))
			q.Rollback(step.back)
		default:
			q.flush()
		}
	}
}

// TestSendRollback takes back any number of staged requests at any place of the
// ring; what is staged then is as if they had never been there.
func TestSendRollback(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := newTestQueue(t, RC, 8, BlueFlame), newTestQueue(t, RC, 8, BlueFlame)
	reqs := rcRequests()
	for range 5000 {
		a.fence, b.fence = 0, 0
		at := rng.Uint32()
		for _, q := range []*testQueue{a, b} {
			q.at(at)
			q.fence, q.publishedFence = 0, 0
			q.bell.at = 0
			clear(q.mem)
			clear(q.register)
		}
		before, taken, after := rng.IntN(4), rng.IntN(5), rng.IntN(3)
		var kept []cq.SendRequest
		for range before {
			kept = append(kept, reqs[rng.IntN(len(reqs))])
			a.stage(kept[len(kept)-1])
		}
		for range taken {
			a.stage(reqs[rng.IntN(len(reqs))])
		}
		a.requests.Rollback(uint32(taken))
		a.Rollback(uint32(taken))
		for range after {
			kept = append(kept, reqs[rng.IntN(len(reqs))])
			a.stage(kept[len(kept)-1])
		}
		for _, r := range kept {
			b.stage(r)
		}
		a.flush()
		b.flush()
		if a.next != b.next || !bytes.Equal(a.record, b.record) || a.fence != b.fence || a.bell.at != b.bell.at {
			t.Fatalf("%d, %d taken back, %d: at block %d, want %d", before, taken, after, a.next-at, b.next-at)
		}
		if !sameRequests(t, a, b, at) {
			t.Fatalf("%d, %d taken back, %d: the requests differ", before, taken, after)
		}
		if before+after > 0 && !bytes.Equal(a.register[:8], b.register[:8]) {
			t.Fatalf("%d, %d taken back, %d: doorbell % x, want % x", before, taken, after, a.register[:8], b.register[:8])
		}
		a.end()
		b.end()
	}
}

// sameRequests compares the requests of two queues from a block on.
func sameRequests(t *testing.T, a, b *testQueue, at uint32) bool {
	t.Helper()
	for at != a.next {
		x, err := readWQE(a.mem, at, false)
		y, err2 := readWQE(b.mem, at, false)
		if err != nil || err2 != nil {
			t.Fatalf("at block %d: %v, %v", at, err, err2)
		}
		if !reflect.DeepEqual(x, y) {
			return false
		}
		at += uint32(x.Blocks)
	}
	return true
}

// rcRequests are requests of all kinds.
func rcRequests() (all []cq.SendRequest) {
	for _, c := range sendGolden {
		if c.tr == RC {
			all = append(all, c.req)
		}
	}
	return all
}

// Whoever breaks the contract of Put hears of it, and no block is written that is
// not its own, and no more than its own.
func TestSendPutPanics(t *testing.T) {
	five := make([]cq.SGE, 5)
	for name, r := range map[string]cq.SendRequest{
		"inline data":             {Op: cq.OpSend, Flags: cq.Inline, Data: make([]byte, 189)},
		"elements":                {Op: cq.OpSend, SGEs: five},
		"elements of a read":      {Op: cq.OpRead, SGEs: five},
		"elements of an atomic":   {Op: cq.OpFetchAdd, SGEs: five[:2]},
		"a window of over 2 GiB":  {Op: cq.OpBindMW, WindowBytes: 1<<31 + 1},
		"receive":                 {Op: cq.OpRecv},
		"flush":                   {Op: cq.OpFlush},
		"atomic write":            {Op: cq.OpAtomicWrite},
		"no such number":          {Op: 255},
		"no such number, either":  {Op: 31},
		"a number with high bits": {Op: 32 + cq.OpSend},
	} {
		q := newTestQueue(t, RC, 4, UncachedDoorbell)
		fill(q.mem)
		if !panics(func() { q.Put(&r) }) {
			t.Errorf("%s: Put took it", name)
		}
		if len(bytes.TrimLeft(q.mem[q.size.RequestBytes:], "\xdb")) > 0 {
			t.Errorf("%s: wrote to other requests' blocks", name)
		}
		q.Publish()
		if !bytes.Equal(q.record, make([]byte, 8)) {
			t.Errorf("%s: the request counts", name)
		}
	}
	for _, op := range []cq.Opcode{cq.OpWrite, cq.OpRead, cq.OpSendInvalidate, cq.OpLocalInvalidate} {
		q := newTestQueue(t, UD, 4, UncachedDoorbell)
		if !panics(func() { q.Put(&cq.SendRequest{Op: op}) }) {
			t.Errorf("UD took %v", op)
		}
	}
	q := newTestQueue(t, UC, 4, UncachedDoorbell)
	if !panics(func() { q.Put(&cq.SendRequest{Op: cq.OpRead}) }) {
		t.Error("UC took a read")
	}
}

func TestSendReset(t *testing.T) {
	q := newTestQueue(t, RC, 4, BlueFlame)
	q.stage(cq.SendRequest{Op: cq.OpLocalInvalidate})
	q.flush()
	q.end()
	half := q.bell.at
	q.Reset()
	if !bytes.Equal(q.record, make([]byte, 8)) || half == 0 || q.bell.at != half {
		t.Errorf("after a reset the record is % x, the half of the register %#x, want %#x", q.record, q.bell.at, half)
	}
	q.stage(cq.SendRequest{Op: cq.OpSend})
	q.flush()
	if want := []byte{0, 0, 0, 0x0a, 0, 4, 0xa5, 1, 0, 0, 0, 8}; !bytes.Equal(q.mem[:12], want) || q.record[7] != 1 {
		t.Errorf("after a reset a request is % x, record % x", q.mem[:12], q.record)
	}
}

func TestSendEmpty(t *testing.T) {
	q := newTestQueue(t, RC, 4, UncachedDoorbell)
	if !q.Empty() {
		t.Error("a new queue is not empty")
	}
	q.stage(cq.SendRequest{Op: cq.OpSend})
	q.flush()
	if q.Empty() {
		t.Error("empty with a request outstanding")
	}
	q.end()
	if !q.Empty() {
		t.Error("not empty after its request has ended")
	}
}

func TestNewSQErrors(t *testing.T) {
	good := func() SQConfig {
		size, err := SizeSend(testLimits, RC, 8, 4, 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		d, err := UncachedDoorbell(aligned(8))
		if err != nil {
			t.Fatal(err)
		}
		return SQConfig{Memory: aligned(size.Bytes), Record: aligned(8), Doorbell: d, QPN: 1, Size: size, Requests: cq.NewRequests(8, cq.SendSide, 1, new(cq.State))}
	}
	if _, err := NewSQ(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*SQConfig){
		"no requests":              func(c *SQConfig) { c.Size = SendSize{} },
		"less memory":              func(c *SQConfig) { c.Memory = c.Memory[:len(c.Memory)-64] },
		"more memory":              func(c *SQConfig) { c.Memory = aligned(len(c.Memory) + 64) },
		"crooked memory":           func(c *SQConfig) { c.Memory = aligned(len(c.Memory) + 64)[8 : 8+len(c.Memory)] },
		"not a power of two":       func(c *SQConfig) { c.Size.Bytes -= 64; c.Size.Blocks--; c.Memory = aligned(c.Size.Bytes) },
		"blocks that do not agree": func(c *SQConfig) { c.Size.Blocks *= 2 },
		"more requests than fit":   func(c *SQConfig) { c.Size.Requests++ },
		"more elements than fit":   func(c *SQConfig) { c.Size.MaxSGE = 1 << 28 },
		"more inline than fits":    func(c *SQConfig) { c.Size.MaxInline = 1<<32 - 1 },
		"smaller requests":         func(c *SQConfig) { c.Size.RequestBytes = 64 },
		"a number of 25 bits":      func(c *SQConfig) { c.QPN = 1 << 24 },
		"no doorbell":              func(c *SQConfig) { c.Doorbell = nil },
		"no table":                 func(c *SQConfig) { c.Requests = nil },
		"a deeper table":           func(c *SQConfig) { c.Requests = cq.NewRequests(1000, cq.SendSide, 1, new(cq.State)) },
		"addresses on RC":          func(c *SQConfig) { c.Addresses = new(AddressVectors) },
		"UD without addresses":     func(c *SQConfig) { c.Size.Transport = UD; c.Size.Operations = UD.Operations() },
		"a short record":           func(c *SQConfig) { c.Record = c.Record[:4] },
		"a crooked record":         func(c *SQConfig) { c.Record = aligned(16)[4:12] },
	} {
		c := good()
		spoil(&c)
		if _, err := NewSQ(c); err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
