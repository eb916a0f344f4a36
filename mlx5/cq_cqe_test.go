package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

const someStamp = 0x0123456789abcdef

// cqeCases are completions with what must become of them in a queue of 64-byte
// entries with CQE version 1, timestamps and an InfiniBand port, worked out by
// hand from the manual's layout.
var cqeCases = []struct {
	name string
	c    completion
	want outcome
}{
	{"send", completion{opcode: 0, sendOpcode: 0x0b, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 77, stamp: someStamp},
		outcome{n: 1, wc: cq.WC{ID: 100, QPN: 0x101, Opcode: cq.OpSendImm, Bytes: 1000, Timestamp: someStamp}}},
	{"send with a receiver's fields on it", completion{opcode: 0, sendOpcode: 0x0b, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 77, imm: 3, source: 0x3fffffff, slid: 9, headers: 1, vlan: 0xffff, x: 0x7b},
		outcome{n: 1, wc: cq.WC{ID: 100, QPN: 0x101, Opcode: cq.OpSendImm, Bytes: 1000}}},
	{"quiet write", completion{opcode: 0, sendOpcode: 8, uidx: qpOpen, qpn: 0x101, counter: 0xffff}, outcome{}},
	{"inside a request of three blocks", completion{opcode: 0, sendOpcode: 8, uidx: qpOpen, qpn: 0x101, counter: 0}, outcome{stray: 1}},
	{"read after the wrap, before what was posted before it", completion{opcode: 0, sendOpcode: 0x10, uidx: qpOpen, qpn: 0x101, counter: 2, bytes: 5},
		outcome{n: 1, wc: cq.WC{ID: 102, QPN: 0x101, Opcode: cq.OpRead, Bytes: 1002}}},
	{"fetch and add", completion{opcode: 0, sendOpcode: 0x12, uidx: qpOpen, qpn: 0x101, counter: 3, bytes: 8, stamp: 1},
		outcome{n: 1, wc: cq.WC{ID: 103, QPN: 0x101, Opcode: cq.OpFetchAdd, Bytes: 1003, Timestamp: 1}}},
	{"bind of a window, which is a UMR", completion{opcode: 0, sendOpcode: 0x25, uidx: qpOpen, qpn: 0x101, counter: 4},
		outcome{n: 1, wc: cq.WC{ID: 104, QPN: 0x101, Opcode: cq.OpBindMW, Bytes: 1004}}},
	{"send queue, just past what was posted", completion{opcode: 0, uidx: qpOpen, qpn: 0x101, counter: 9}, outcome{stray: 1}},
	{"send queue, just before what was posted", completion{opcode: 0, uidx: qpOpen, qpn: 0x101, counter: 0xfffd}, outcome{stray: 1}},
	{"send queue, half a turn away", completion{opcode: 0, uidx: qpOpen, qpn: 0x101, counter: 0x7fff}, outcome{stray: 1}},

	{"receive of a send", completion{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 64, imm: 9, source: 0x3f000005, slid: 6, stamp: someStamp},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 0x101, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 64, Timestamp: someStamp}}},
	{"receive of a send that is too long", completion{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 4097},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 0x101, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 4096}}},
	{"receive of a send with immediate", completion{opcode: 3, uidx: qpOpen, qpn: 0x101, counter: 0xffff, bytes: 0, imm: 0xcafef00d},
		outcome{n: 1, wc: withImm(cq.WC{ID: 201, QPN: 0x101, Side: cq.RecvSide, Opcode: cq.OpRecv}, 0xcafef00d)}},
	{"receive of a send with invalidate", completion{opcode: 4, uidx: qpOpen, qpn: 0x101, counter: 0, bytes: 8, imm: 0x2c3},
		outcome{n: 1, key: 0x2c3, wc: withRKey(cq.WC{ID: 202, QPN: 0x101, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 8}, 0x2c3)}},
	{"receive of a write with immediate", completion{opcode: 1, uidx: qpOpen, qpn: 0x101, counter: 1, bytes: 1 << 31, imm: 0x01020304},
		outcome{n: 1, wc: withImm(cq.WC{ID: 203, QPN: 0x101, Side: cq.RecvSide, Opcode: cq.OpRecvWriteImm, Bytes: 1 << 31}, 0x01020304)}},
	{"receive queue, just past what was posted", completion{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 2}, outcome{stray: 1}},
	{"receive queue, just before", completion{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffd}, outcome{stray: 1}},

	{"datagram with a GRH", completion{opcode: 2, uidx: qpUD, qpn: 0x105, counter: 0, bytes: 104, source: 0x17123456, slid: 0xbeef, headers: 0xfe, vlan: 0xe001},
		outcome{n: 1, wc: cq.WC{ID: 300, QPN: 0x105, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 104, SrcQPN: 0x123456, SLID: 0xbeef, SL: 7, Flags: cq.FlagGRH}}},
	{"datagram without one, with immediate", completion{opcode: 3, uidx: qpUD, qpn: 0x105, counter: 0, bytes: 41, imm: 8, source: 0xcf000001, slid: 1},
		outcome{n: 1, wc: withImm(cq.WC{ID: 300, QPN: 0x105, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 41, SrcQPN: 1, SLID: 1, SL: 15}, 8)}},
	{"datagram with the GRH in the entry", completion{opcode: 2, uidx: qpUD, qpn: 0x105, counter: 0, bytes: 41, source: 0x20000002},
		outcome{n: 1, wc: cq.WC{ID: 300, QPN: 0x105, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 41, SrcQPN: 2, Flags: cq.FlagGRH}}},
	{"send of a datagram", completion{opcode: 0, sendOpcode: 0x0a, uidx: qpUD, qpn: 0x105, counter: 0, source: 0x17123456},
		outcome{n: 1, wc: cq.WC{ID: 301, QPN: 0x105, Opcode: cq.OpSend, Bytes: 64}}},

	{"receive from a shared queue", completion{opcode: 2, uidx: qpSRQ, qpn: 0x106, counter: 3, bytes: 5},
		outcome{n: 1, room: 1, wc: cq.WC{ID: 502, QPN: 0x106, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 5}}},
	{"the other way round", completion{opcode: 3, uidx: qpSRQ, qpn: 0x106, counter: 5, bytes: 5000, imm: 1},
		outcome{n: 1, room: 1, wc: withImm(cq.WC{ID: 500, QPN: 0x106, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 2048}, 1)}},
	{"element of a shared queue where nothing stands", completion{opcode: 2, uidx: qpSRQ, qpn: 0x106, counter: 1}, outcome{stray: 1}},
	{"past the elements of a shared queue", completion{opcode: 2, uidx: qpSRQ, qpn: 0x106, counter: 0x103}, outcome{stray: 1}},
	{"send of a queue pair with a shared queue", completion{opcode: 0, uidx: qpSRQ, qpn: 0x106, counter: 0},
		outcome{n: 1, wc: cq.WC{ID: 510, QPN: 0x106, Opcode: cq.OpWriteImm, Bytes: 7}}},
	{"shared receive of a closed queue pair", completion{opcode: 2, uidx: qpSRQClosed, qpn: 0x107, counter: 0}, outcome{late: 1, room: 1}},
	{"failed shared receive", completion{opcode: 14, uidx: qpSRQ, qpn: 0x106, counter: 0, syndrome: 4, vendor: 0x93},
		outcome{n: 1, room: 1, wc: cq.WC{ID: 501, QPN: 0x106, Side: cq.RecvSide, Status: cq.StatusLocalProtection, VendorErr: 0x93}}},
	{"page fault on a shared receive", completion{opcode: 14, uidx: qpSRQ, qpn: 0x106, counter: 0, syndrome: 0x22, vendor: 0x93}, outcome{reposted: 1}},
	{"page fault where nothing stands", completion{opcode: 14, uidx: qpSRQ, qpn: 0x106, counter: 4, syndrome: 0x22, vendor: 0x93}, outcome{stray: 1}},
	{"remote aborted on a shared receive", completion{opcode: 14, uidx: qpSRQ, qpn: 0x106, counter: 0, syndrome: 0x22, vendor: 0x99},
		outcome{n: 1, room: 1, wc: cq.WC{ID: 501, QPN: 0x106, Side: cq.RecvSide, Status: cq.StatusRemoteAborted, VendorErr: 0x99}}},
	{"page fault on another receive", completion{opcode: 14, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, syndrome: 0x22, vendor: 0x93},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 0x101, Side: cq.RecvSide, Status: cq.StatusRemoteAborted, VendorErr: 0x93}}},

	{"write to a region that forbids it", completion{opcode: 13, sendOpcode: 8, uidx: qpOpen, qpn: 0x101, counter: 0xffff, syndrome: 0x13, vendor: 0x88, stamp: someStamp, hwSyndrome: 7, hwType: 9},
		outcome{n: 1, wc: cq.WC{ID: 101, QPN: 0x101, Status: cq.StatusRemoteAccess, VendorErr: 0x88}}},
	{"failed send with everything else set", completion{opcode: 13, sendOpcode: 0xff, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, syndrome: 0x15, vendor: 0x81, bytes: 9, imm: 8, source: 0x3f000007, slid: 6, vlan: 5, headers: 1, signature: 4, x: 0xff},
		outcome{n: 1, wc: cq.WC{ID: 100, QPN: 0x101, Status: cq.StatusRetryExceeded, VendorErr: 0x81}}},
	{"flushed receive", completion{opcode: 14, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, syndrome: 5, vendor: 0xf9, bytes: 12},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 0x101, Side: cq.RecvSide, Status: cq.StatusFlushed, VendorErr: 0xf9}}},
	{"syndrome that nobody knows", completion{opcode: 14, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, syndrome: 0x77, vendor: 1},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 0x101, Side: cq.RecvSide, Status: cq.StatusGeneral, VendorErr: 1}}},
	{"syndrome 0", completion{opcode: 13, uidx: qpOpen, qpn: 0x101, counter: 0xfffe},
		outcome{n: 1, wc: cq.WC{ID: 100, QPN: 0x101, Status: cq.StatusGeneral}}},
	{"failure of nothing posted", completion{opcode: 13, uidx: qpOpen, qpn: 0x101, counter: 77, syndrome: 5}, outcome{stray: 1}},

	{"wrong QP number", completion{opcode: 0, uidx: qpOpen, qpn: 0x102, counter: 0xfffe}, outcome{stray: 1}},
	{"closed QP", completion{opcode: 0, uidx: qpClosed, qpn: 0x102, counter: 0}, outcome{late: 1}},
	{"closed QP, failed receive", completion{opcode: 14, uidx: qpClosed, qpn: 0x102, counter: 9, syndrome: 5}, outcome{late: 1}},
	{"other CQ's send", completion{opcode: 0, uidx: qpOther, qpn: 0x103, counter: 0}, outcome{stray: 1}},
	{"other CQ's receive", completion{opcode: 2, uidx: qpOther, qpn: 0x103, counter: 0}, outcome{stray: 1}},
	{"QP without a send table", completion{opcode: 0, uidx: qpBare, qpn: 0x104}, outcome{stray: 1}},
	{"QP without a receive table", completion{opcode: 2, uidx: qpBare, qpn: 0x104}, outcome{stray: 1}},
	{"free user index", completion{opcode: 0, uidx: qpFree, qpn: 0x108}, outcome{stray: 1}},
	{"user index 0, as of zero pages", completion{}, outcome{stray: 1}},
	{"user index past the table", completion{uidx: 0xffffff, qpn: 0xffffff}, outcome{stray: 1}},
	{"user index whose lower bits are another's", completion{uidx: 0x10000 + qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{stray: 1}},
	{"resize that nobody asked for", completion{opcode: 5, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{stray: 1}},
	{"tag matching", completion{opcode: 6, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{stray: 1}},
	{"opcode 7", completion{opcode: 7, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{stray: 1}},
	{"opcode 11", completion{opcode: 11, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{stray: 1}},
	{"opcode of an entry that is the device's", completion{opcode: 15, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{}},
	{"compressed", completion{opcode: 2, format: 3, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{stray: 1}},
	{"compressed failure", completion{opcode: 13, format: 3, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, outcome{stray: 1}},
	{"data in the entry, which nobody asked for", completion{opcode: 2, format: 1, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 4, data: []byte("data")},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 0x101, Side: cq.RecvSide, Status: cq.StatusGeneral}}},
	{"failure with a format", completion{opcode: 14, format: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, syndrome: 1, vendor: 2},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 0x101, Side: cq.RecvSide, Status: cq.StatusLocalLength, VendorErr: 2}}},
	{"protection error of a signature key, which nobody asked for", completion{opcode: 12, uidx: 0x280000, qpn: 0x101}, outcome{stray: 1}},
}

func withImm(w cq.WC, v uint32) cq.WC { w.SetImm(v); return w }

func withRKey(w cq.WC, v uint32) cq.WC { w.SetInvalidatedRKey(v); return w }

// The table, at the places of a ring where indices wrap, and the slow decoder
// against it.
func TestCQE(t *testing.T) {
	v := variant{64, 1, false, true, false}
	record := guarded(t, 8, true)
	for _, high := range []bool{false, true} {
		mem := guarded(t, 4*64, high)
		for _, start := range []uint32{0, 3, 4, 1<<24 - 1, 1 << 24, 1<<32 - 1} {
			for _, c := range cqeCases {
				c.want.room++ // one of four slots was free before
				s := newScene(t, v, mem, record, start)
				if want := s.expect(&c.c); want != c.want {
					t.Errorf("%s: the slow decoder says\n%+v, want\n%+v", c.name, want, c.want)
				}
				s.device.add(&c.c)
				if got := s.poll(t); got != c.want {
					t.Errorf("%s at %#x:\n%+v, want\n%+v", c.name, start, got, c.want)
				}
			}
		}
	}
}

// inlineCases are completions that need more than cqeCases.
var inlineCases = []completion{
	{opcode: 2, format: 1, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 32, data: []byte("thirty-two bytes are in an entry")},
	{opcode: 2, format: 1, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 33, data: []byte("thirty-two bytes are in an entry")},
	{opcode: 3, format: 1, uidx: qpOpen, qpn: 0x101, counter: 1, bytes: 31, data: []byte("more than the receive has room f")},
	{opcode: 3, format: 2, uidx: qpSRQ, qpn: 0x106, counter: 5, bytes: 64, data: []byte("sixty-four bytes stand before the completion in the wide entries")},
	{opcode: 2, format: 2, uidx: qpSRQ, qpn: 0x106, counter: 5, bytes: 65, data: []byte("sixty-four bytes stand before the completion in the wide entries")},
	{opcode: 2, format: 1, uidx: qpSRQ, qpn: 0x106, counter: 5, bytes: 0},
	{opcode: 2, format: 1, uidx: qpSRQClosed, qpn: 0x107, counter: 5, bytes: 3},
	{opcode: 2, format: 1, uidx: qpSRQ, qpn: 0x106, counter: 4, bytes: 3},
	{opcode: 0, format: 2, sendOpcode: 0x10, uidx: qpOpen, qpn: 0x101, counter: 2, bytes: 50, data: []byte("what a read brought, sixty-four bytes with all that follows ....")},
	{opcode: 0, format: 1, sendOpcode: 0x12, uidx: qpOpen, qpn: 0x101, counter: 3, bytes: 9999, data: []byte("12345678")},
	{opcode: 0, format: 1, sendOpcode: 0x11, uidx: qpOpen, qpn: 0x101, counter: 3, bytes: 0, data: []byte("12345678")},
	{opcode: 0, format: 1, sendOpcode: 0x14, uidx: qpOpen, qpn: 0x101, counter: 3, bytes: 0, data: []byte("12345678")},
	{opcode: 0, format: 1, sendOpcode: 0x10, uidx: qpOpen, qpn: 0x101, counter: 1, bytes: 4, data: []byte("inside another")},
	{opcode: 12, format: 2, uidx: qpOpen, qpn: 0x101},
}

// Every variant against the slow decoder.
func TestCQEVariants(t *testing.T) {
	all := inlineCases
	for _, c := range cqeCases {
		all = append(all, c.c)
	}
	for _, v := range variants() {
		mem, record := guarded(t, 2*v.size, true), guarded(t, 8, false)
		for _, c := range all {
			s := newScene(t, v, mem, record, 1)
			s.device.add(&c)
			b := s.device.entry(1)
			parsed := parseCompletion(b)
			want := s.expect(&parsed)
			if got := s.poll(t); got != want {
				t.Errorf("%v, %+v:\n%+v, want\n%+v", v, c, got, want)
			}
			if to := (place{c.qpn, map[bool]cq.Side{true: cq.SendSide, false: cq.RecvSide}[c.opcode == 0], c.counter}); want.scattered != "" && s.scatterTo != to {
				t.Errorf("%v, %+v: data for %+v, want %+v", v, c, s.scatterTo, to)
			}
		}
	}
}

// A completion that comes on the wrong queue ends nothing there where it belongs, quiet
// requests before it neither: another goroutine polls that queue.
func TestWrongQueue(t *testing.T) {
	for version := range 2 {
		s := newScene(t, variant{size: 64, version: version}, aligned(2*64), aligned(8), 0)
		p := newParty(&s.eps, &s.other, 0x700, 8)
		s.numbers.Join(p.ep, &s.other, 0)
		p.postSend(1, cq.OpWrite, 1, true, 1)
		pos, _ := p.postSend(2, cq.OpWrite, 1, false, 1)
		recv := p.postRecv(3, 1)
		for i, c := range []completion{{counter: pos}, {opcode: 13, counter: pos}, {counter: pos - 1}, {opcode: 2, counter: recv}, {opcode: 14, counter: recv}} {
			c.uidx, c.qpn = p.index, 0x700
			s.device.add(&c)
			if o := s.poll(t); o.n != 0 || o.stray != uint64(i+1) || p.send.Outstanding() != 2 || p.recv.Outstanding() != 1 {
				t.Errorf("version %d, %+v: %+v; %d and %d outstanding", version, c, o, p.send.Outstanding(), p.recv.Outstanding())
			}
		}
	}
}

// A completion as raw bytes: the tests' encoder could be wrong in the same way as
// the decoder.
func TestCQEBytes(t *testing.T) {
	raw := []byte{
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0x00, 0x2a, // slid
		0x15, 0x00, 0xab, 0xcd, // flags_rqpn: GRH, SL 5, QPN 0xabcd
		0, 0x01, 0x60, 0x05, // hds_ip_ext, l4_l3_hdr_type: VLAN, vlan_info: priority 3
		0, 0, 0, 5, // srqn_uidx
		0xca, 0xfe, 0xf0, 0x0d, // immediate
		0, 0, 0, 0, // app
		0, 0, 0, 0x68, // byte_cnt
		0, 0, 0, 1, 0, 0, 0, 2, // timestamp
		0, 0, 1, 5, // sop_drop_qpn
		0, 0, 0, 0x30, // wqe_counter, signature, RESP_SEND_IMM
	}
	for _, ethernet := range []bool{false, true} {
		s := newScene(t, variant{64, 1, ethernet, true, false}, aligned(2*64), aligned(8), 0)
		copy(s.device.mem, raw)
		want := withImm(cq.WC{ID: 300, QPN: 0x105, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 104, SrcQPN: 0xabcd, SLID: 42, SL: 5, Flags: cq.FlagGRH, Timestamp: 1<<32 + 2}, 0xcafef00d)
		if ethernet {
			want.SLID, want.SL = 0, 3
		}
		if got := s.poll(t); got.n != 1 || got.wc != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Any bytes mean to the package what they mean to the slow decoder.
func FuzzCQE(f *testing.F) {
	for i, c := range cqeCases {
		var b [128]byte
		c.c.encode(b[:])
		f.Add(b[:], uint8(i))
	}
	for i, c := range inlineCases {
		var b [128]byte
		for _, v := range []int{0, 17, 31} {
			c.encode(b[64*(v&1^1):])
			f.Add(b[:], uint8(i&^31|v))
		}
	}
	all := variants()
	narrow, wide, record := guarded(f, 2*64, true), guarded(f, 2*128, true), guarded(f, 8, true)
	f.Fuzz(func(t *testing.T, raw []byte, choice uint8) {
		if len(raw) < 128 {
			return
		}
		v := all[int(choice)%len(all)]
		mem := narrow
		if v.size == 128 {
			mem = wide
		}
		s := newScene(t, v, mem, record, 1)
		s.device.addRaw(raw[128-v.size : 128])
		c := parseCompletion(s.device.entry(1))
		want := s.expect(&c)
		if got := s.poll(t); got != want {
			t.Fatalf("%v, % x:\n%+v, want\n%+v", v, raw, got, want)
		}
		if c.opcode == 15 {
			return
		}
		// The same again ends nothing: what it names has ended. A request that
		// was reposted is outstanding still.
		s.scattered = nil
		s.device.addRaw(raw[128-v.size : 128])
		if again := s.poll(t); again.n != 0 || again.room != want.room || again.scattered != "" {
			t.Errorf("%v, % x ended twice, then as %+v", v, raw, again)
		}
	})
}
