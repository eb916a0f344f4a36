package mlx5

// Faults that other projects' completion queues had, one test for each kind that a
// ConnectX's can have. The numbers are those of a collection of such reports; the
// addresses are where they are public.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// plainScene is a scene of the ordinary kind.
func plainScene(t *testing.T, entries int, start uint32) *scene {
	return newScene(t, variant{size: 64, version: 1}, aligned(entries*64), aligned(8), start)
}

// The consumer index was not pushed before the queue was armed again, and the
// interrupt did not come.
// https://github.com/Mellanox/libvma/pull/812
// What the device finds when the register tells it to look is the index of all that
// was polled, in the record and in the arm command. TestArmOrder has the order of the
// stores.
func TestBug05ConsumerIndexBeforeArm(t *testing.T) {
	uar := aligned(4096)
	s := plainScene(t, 8, 1<<24-3)
	a, err := newArm(uar, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.q.arm = a
	for range 6 { // quiet ones and failures count as much as what is shown
		s.device.add(&completion{opcode: 13, uidx: qpFree})
	}
	for range 3 {
		s.q.Poll(make([]cq.WC, 2))
		s.q.Arm(true)
		ci, arm, register := armed(s.device.record, uar)
		if want := s.device.producer & 0xffffff; ci != want || arm&0xffffff != want || uint32(register>>32) != arm {
			t.Errorf("consumer index %#x, armed with %#x, %#x; want %#x", ci, arm, register, want)
		}
		s.q.EventTaken()
		s.device.add(&completion{opcode: 0, uidx: qpOpen, qpn: 0x101, counter: 0xffff})
	}
}

// Arming more than once without an event lost events: the weaker request took the
// place of the stronger. (irdma)
func TestBug06ArmedMoreThanOnce(t *testing.T) {
	uar := aligned(4096)
	s := plainScene(t, 8, 0)
	s.q.arm, _ = newArm(uar, nil)
	s.q.Arm(true)
	s.q.Arm(false)
	s.q.Arm(false)
	s.q.Arm(true)
	if _, arm, _ := armed(s.device.record, uar); arm&(1<<24) != 0 {
		t.Errorf("armed with %#x: for solicited completions only, after one for any", arm)
	}
}

// The device ignored an arm whose number it had answered: the number was advanced
// after the event was there for all to see. (bnxt_re, and of the same kind mlx5)
// Every event that is taken advances it, whoever takes it, and arms do not.
func TestBug10NumberOfTheArm(t *testing.T) {
	uar := aligned(4096)
	s := plainScene(t, 8, 0)
	s.q.arm, _ = newArm(uar, nil)
	for events := range uint32(9) {
		for range 3 {
			s.q.Arm(false)
			if _, arm, _ := armed(s.device.record, uar); arm>>28 != events&3 {
				t.Fatalf("armed with number %d after %d events", arm>>28, events)
			}
		}
		s.device.add(&completion{opcode: 13, uidx: qpFree})
		done := make(chan struct{})
		go func() { s.q.EventTaken(); close(done) }() // the reader of a shared channel
		<-done
		s.q.Poll(make([]cq.WC, 2))
	}
}

// Completions of a queue pair that was destroyed were taken for those of the next
// one with its number.
// https://github.com/ofiwg/libfabric/pull/11405
// With version 1 the next one has another user index until the ring was read; with
// version 0 it is told by when it was made.
func TestBug18NextQPWithTheNumber(t *testing.T) {
	for _, version := range []int{0, 1} {
		s := newScene(t, variant{size: 64, version: version}, aligned(8*64), aligned(8), 1<<32-2)
		const qpn = 0x700
		old := newParty(&s.eps, &s.state, qpn, 4)
		m := s.numbers.Join(old.ep, &s.state, s.q.Produced())
		for i := range uint64(4) {
			pos := old.postRecv(1000+i, 8)
			s.device.add(&completion{opcode: 2, uidx: old.index, qpn: qpn, counter: pos})
		}
		s.q.Poll(make([]cq.WC, 1))
		// Destroyed: what it has in the ring stays. Then the kernel gives out the
		// number again.
		m.Close()
		s.eps.Set(old.index, &cq.Endpoint{QPN: qpn, Send: old.send, Recv: old.recv, Closed: true})
		next := newParty(&s.eps, &s.state, qpn, 4)
		s.numbers.Join(next.ep, &s.state, s.q.Produced())
		for i := range uint64(4) {
			pos := next.postRecv(2000+i, 8)
			s.device.add(&completion{opcode: 2, uidx: next.index, qpn: qpn, counter: pos})
		}
		var wcs [8]cq.WC
		n, _ := s.q.Poll(wcs[:])
		for i := range wcs[:n] {
			if wcs[i].ID != 2000+uint64(i) {
				t.Errorf("version %d: completion %d is %+v", version, i, wcs[i])
			}
		}
		if n != 4 || s.state.Late.Load() != 3 {
			t.Errorf("version %d: %d completions, %d late; want 4 and 3", version, n, s.state.Late.Load())
		}
	}
}

// A clock that could not be read left the queue locked for ever.
// https://github.com/linux-rdma/rdma-core/pull/1470
// Polling does not look at the clock page: a kernel that never stops writing to it
// keeps nobody from completions.
func TestBug23BusyClock(t *testing.T) {
	page := aligned(64)
	store32(page, 0, 1)
	clock, err := NewClock(page)
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, variant{size: 64, version: 1, stamps: true}, aligned(4*64), aligned(8), 0)
	for i := range 2 {
		if _, err := clock.Read(); !errors.Is(err, ErrClockBusy) {
			t.Fatalf("%v from a clock that is written to", err)
		}
		s.device.add(&completion{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe + uint16(i), stamp: 77})
		if o := s.poll(t); o.n != 1 || o.wc.Timestamp != 77 {
			t.Fatalf("poll %d: %+v", i, o)
		}
	}
	if s.q.Sweep(0x101) != 0 {
		t.Error("swept something")
	}
}

// Queues that are told to overwrite what nobody read must get by without a consumer
// index; one project broke where the bit was missing.
// https://github.com/linux-rdma/rdma-core/pull/369
// https://github.com/openucx/ucx/pull/2942
func TestBug32IgnoreOverrun(t *testing.T) {
	var state cq.State
	var eps cq.Endpoints
	mem, record := aligned(4*64), aligned(8)
	q, d, err := newTestCQ(mem, record, 64, 0, func(c *CQConfig) {
		c.Endpoints, c.State, c.IgnoreOverrun = &eps, &state, true
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newParty(&eps, &state, 5, 4)
	for i := range uint64(100) {
		d.add(&completion{opcode: 2, uidx: p.index, qpn: 5, counter: p.postRecv(i, 1)})
		var wcs [1]cq.WC
		if n, _ := q.Poll(wcs[:]); n != 1 || wcs[0].ID != i {
			t.Fatalf("completion %d: %d, %+v", i, n, wcs[0])
		}
	}
	if !bytes.Equal(record, make([]byte, 8)) {
		t.Errorf("the record is % x", record)
	}
	// Lapped: of what was overwritten nothing ends twice, nor what was not posted.
	for i := range uint64(4) {
		p.postRecv(200+i, 1)
	}
	for i := range uint16(8) {
		d.add(&completion{opcode: 2, uidx: p.index, qpn: 5, counter: 100 + i})
	}
	ended := map[uint64]bool{}
	for range 3 {
		var wcs [8]cq.WC
		n, _ := q.Poll(wcs[:])
		for _, w := range wcs[:n] {
			if ended[w.ID] || w.ID < 200 || w.ID > 203 {
				t.Errorf("%+v", w)
			}
			ended[w.ID] = true
		}
	}
}

// An entry was taken for a completion because its owner bit was right by chance, in
// a ring that nobody had written to.
// https://github.com/Mellanox/libvma/pull/320
// https://github.com/openucx/ucx/pull/2960
func TestBug33FreshRing(t *testing.T) {
	for _, size := range []int{64, 128} {
		for _, entries := range []int{2, 4, 64} {
			for _, start := range []uint32{0, 1, uint32(entries), uint32(entries) + 1, 1<<24 - 1, 1 << 24, 1<<32 - 1} {
				s := newScene(t, variant{size: size, version: 1}, aligned(entries*size), aligned(8), start)
				if n, drained := s.q.Poll(make([]cq.WC, 2*entries)); n != 0 || !drained || !s.q.Empty() || s.q.Produced() != start {
					t.Errorf("%d entries of %d at %#x: %d completions in a fresh ring", entries, size, start, n)
				}
				// And two laps on, each entry is the device's until it is written.
				for i := range uint32(2*entries + 1) {
					s.device.add(&completion{opcode: 13, uidx: qpFree})
					if n, drained := s.q.Poll(make([]cq.WC, 4)); n != 0 || !drained || s.state.Stray.Load() != uint64(i+1) {
						t.Fatalf("%d entries of %d at %#x: entry %d was not read once", entries, size, start, i)
					}
				}
			}
		}
	}
}

// A stale counter of 16 bits, taken for one that has wrapped, ended 65536 requests.
// https://github.com/ROCm/mori/pull/431
// https://github.com/deepseek-ai/DeepEP/pull/371
// A counter is a distance forward from the oldest request that is outstanding, and
// counts only up to the newest.
func TestBug34StaleCounter(t *testing.T) {
	for _, first := range []uint16{0, 1, 0x7fff, 0xfffd, 0xffff} {
		var eps cq.Endpoints
		var state cq.State
		q, d, err := newTestCQ(aligned(4*64), aligned(8), 64, 0, func(c *CQConfig) { c.Endpoints, c.State = &eps, &state })
		if err != nil {
			t.Fatal(err)
		}
		p := newParty(&eps, &state, 5, 8)
		p.sendPos = first
		var wcs [4]cq.WC
		for i := range uint64(4) { // every other one is quiet; each takes two blocks
			p.postSend(i, cq.OpWrite, 1, i&1 == 0, 2)
		}
		stale := uint64(0)
		for _, counter := range []uint16{first - 1, first - 2, first + 1, first + 8, first + 0x8000, first - 0x100} {
			d.add(&completion{uidx: p.index, qpn: 5, counter: counter})
			stale++
			if n, _ := q.Poll(wcs[:]); n != 0 || state.Stray.Load() != stale || p.send.Outstanding() != 4 {
				t.Fatalf("counter %#x with %#x the oldest: %d completions, %d outstanding", counter, first, n, p.send.Outstanding())
			}
		}
		d.add(&completion{uidx: p.index, qpn: 5, counter: first + 6})
		d.add(&completion{uidx: p.index, qpn: 5, counter: first + 6})
		d.add(&completion{uidx: p.index, qpn: 5, counter: first + 2})
		if n, _ := q.Poll(wcs[:]); n != 2 || wcs[0].ID != 3 || wcs[1].ID != 1 || p.send.Outstanding() != 0 {
			t.Errorf("%d completions: %+v; %d outstanding", n, wcs[:n], p.send.Outstanding())
		}
	}
}

// Can the device overwrite an entry that is still being read? Not if all is copied
// out before the index that gives it back is stored: the call-back of an invalidation
// comes out of the middle of a batch and sees the index of before. TestTorn has the
// device on another core.
func TestBug36IndexAfterTheLastRead(t *testing.T) {
	s := plainScene(t, 8, 6)
	looks := 0
	s.eps.Get(qpOpen).Invalidated = func(uint32) {
		looks++
		if c := s.device.consumed(); c != 6 {
			t.Errorf("consumer index %d in the middle of a batch that began at 6", c)
		}
	}
	for i := range uint16(4) {
		s.device.add(&completion{opcode: 4, uidx: qpOpen, qpn: 0x101, counter: 0xfffe + i})
	}
	if n, _ := s.q.Poll(make([]cq.WC, 8)); n != 4 || looks != 4 || s.device.consumed() != 10 {
		t.Errorf("%d completions, %d looks, consumer index %d", n, looks, s.device.consumed())
	}
}

// The signature of an entry and the counter that logs print agree only up to the laps
// of the ring, which logs leave out.
func TestBug37SignatureOverLaps(t *testing.T) {
	mem := aligned(8 * 64)
	d := newCompleter(mem, aligned(8), 64)
	for d.producer = 0; d.producer < 3000; {
		at := d.producer
		c := completion{opcode: 13, uidx: at, qpn: at * 7, counter: uint16(at), syndrome: byte(at), x: byte(at)}
		var b [64]byte
		c.encode(b[:])
		b[63] = b[63]&^1 | d.owner(at)
		// The device's: the exclusive or of all bytes, and of the counter's, is 0xff.
		b[62] = 0
		x := byte(at) ^ byte(at>>8) ^ byte(at>>16) ^ 0xff
		for _, v := range b {
			x ^= v
		}
		b[62] = x
		d.addRaw(b[:])
		e := (*[64]byte)(d.entry(at))
		if got := CheckSignature(e, at); got != SignatureRight {
			t.Fatalf("entry %d: %v with its own counter", at, got)
		}
		if got := CheckSignature(e, at&7); got != SignatureRight && got != SignatureWrapped {
			t.Fatalf("entry %d: %v with the counter that a log prints", at, got)
		}
		broken := *e
		broken[at%62] ^= 0x80
		if SignatureFold(&broken) == SignatureFold(e) {
			t.Fatalf("entry %d: a broken byte goes unnoticed", at)
		}
	}
}

// Entries of 128 bytes were taken for 64, or their owner looked for in the middle.
// https://github.com/openucx/ucx/issues/1019
func TestBug38SizeOfEntries(t *testing.T) {
	for _, size := range []int{64, 128} {
		s := newScene(t, variant{size: size, version: 1}, aligned(4*size), aligned(8), 0)
		// The half that is not the CQE may hold anything, also what looks like one.
		for lap := range uint16(3) {
			for i := range s.device.mem {
				if i%128 < 64 && size == 128 {
					s.device.mem[i] = byte(lap) &^ 1 << 4
				}
			}
			s.device.add(&completion{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe + lap})
			if size == 128 {
				s.device.entry(uint32(lap))[63] = 0xf1
			}
			if o := s.poll(t); o.n != 1 || o.wc.ID != 200+uint64(lap) {
				t.Fatalf("size %d: %+v", size, o)
			}
		}
	}
}

// A plain decoder read blocks of compressed completions as completions.
// https://github.com/openucx/ucx/pull/7992
// It refuses them. CompressedCQ reads them: TestCompressedModel has blocks of all
// lengths, across the end of the ring, with failures behind and batches that end
// inside.
func TestBug39PlainDecoderRefusesBlocks(t *testing.T) {
	for _, size := range []int{64, 128} {
		s := newScene(t, variant{size: size, version: 1}, aligned(16*size), aligned(8), 0)
		d := &compressor{s.device, false}
		d.block([]completion{{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 5}, {opcode: 2, bytes: 6}, {opcode: 2, bytes: 7}}, false)
		n, _ := s.q.Poll(make([]cq.WC, 16))
		if n != 0 || s.state.Stray.Load() == 0 {
			t.Errorf("size %d: %d completions, %d stray", size, n, s.state.Stray.Load())
		}
	}
}

// On an error only the id, the status, the queue pair and the vendor's code mean
// anything: programs printed, or went by, what stood beside them.
// https://github.com/ofiwg/libfabric/issues/5653
// https://github.com/spdk/spdk/issues/3212
func TestBug40NothingElseOnError(t *testing.T) {
	rubbish := completion{bytes: 32659, imm: 32656, source: 0x3fffffff, slid: 5, vlan: 6, headers: 7, hwSyndrome: 8, hwType: 9, signature: 10, sendOpcode: 0xee, vendor: 0x81, x: 0xff}
	for syndrome := range 256 {
		v := []variant{{64, 1, false, true, false}, {128, 0, true, true, false}}[syndrome&1]
		for at, r := range map[place]cq.WC{
			{0x101, cq.SendSide, 0xfffe}: {ID: 100},
			{0x101, cq.RecvSide, 0xfffe}: {ID: 200, Side: cq.RecvSide},
			{0x105, cq.RecvSide, 0}:      {ID: 300, Side: cq.RecvSide},
			{0x106, cq.RecvSide, 5}:      {ID: 500, Side: cq.RecvSide},
		} {
			s := newScene(t, v, aligned(2*v.size), aligned(8), 0)
			c := rubbish
			c.opcode, c.uidx, c.qpn, c.counter, c.syndrome = 13+byte(at.side), at.qpn-qpBase, at.qpn, at.pos, byte(syndrome)
			s.device.add(&c)
			r.QPN, r.VendorErr, r.Status = at.qpn, 0x81, Syndrome(syndrome).Status()
			if o := s.poll(t); o.n != 1 || o.wc != r || r.Status == cq.StatusSuccess {
				t.Fatalf("syndrome %#x: %+v, want %+v", syndrome, o, r)
			}
		}
	}
}

// The opcode of a completion was the device's, or that of the queue, or the one of
// the completion before.
// https://github.com/linux-rdma/rdma-core/pull/1116
// It is what the program posted, whatever opcode the device carried that out with.
func TestBug45OpcodeIsTheRequests(t *testing.T) {
	wcs := make([]cq.WC, 1)
	for sendOpcode := range 256 {
		s := plainScene(t, 2, 0)
		for pos, want := range map[uint16]cq.Opcode{0xfffe: cq.OpSendImm, 2: cq.OpRead, 3: cq.OpFetchAdd, 4: cq.OpBindMW} {
			s.device.add(&completion{sendOpcode: byte(sendOpcode), uidx: qpOpen, qpn: 0x101, counter: pos})
			wcs[0].Opcode = cq.Opcode(77)
			if n, _ := s.q.Poll(wcs); n == 1 && wcs[0].Opcode != want || n == 0 && s.state.Stray.Load() == 0 {
				t.Fatalf("opcode %#x at %#x: %+v", sendOpcode, pos, wcs[0])
			}
		}
	}
	for opcode, want := range map[byte]cq.Opcode{1: cq.OpRecvWriteImm, 2: cq.OpRecv, 3: cq.OpRecv, 4: cq.OpRecv} {
		s := plainScene(t, 2, 0)
		s.device.add(&completion{opcode: opcode, uidx: qpOpen, qpn: 0x101, counter: 0xfffe})
		wcs[0].Opcode = cq.Opcode(77)
		if n, _ := s.q.Poll(wcs); n != 1 || wcs[0].Opcode != want {
			t.Errorf("opcode %d: %d, %+v", opcode, n, wcs[0])
		}
	}
	for opcode := byte(5); opcode < 13; opcode++ {
		s := plainScene(t, 2, 0)
		s.device.add(&completion{opcode: opcode, uidx: qpOpen, qpn: 0x101, counter: 0xfffe})
		if n, _ := s.q.Poll(wcs); n != 0 || s.state.Stray.Load() != 1 {
			t.Errorf("opcode %d, which is none: %d, %+v", opcode, n, wcs[0])
		}
	}
}

// The port's kind was taken to be that of port 1, and the fields of a datagram read
// as those of the other kind.
// The same bytes, on InfiniBand and on Ethernet.
func TestBug47KindOfPort(t *testing.T) {
	c := completion{opcode: 2, uidx: qpUD, qpn: 0x105, bytes: 100, source: 0x1a00beef, slid: 0x1234, headers: 1, vlan: 0xa007}
	for ethernet, want := range map[bool]cq.WC{
		false: {SLID: 0x1234, SL: 10},
		true:  {SL: 5}, // the priority; what is an SL elsewhere tells the kind of packet
	} {
		s := newScene(t, variant{size: 64, version: 1, ethernet: ethernet}, aligned(2*64), aligned(8), 0)
		s.device.add(&c)
		want.ID, want.QPN, want.Side, want.Opcode, want.Bytes, want.SrcQPN, want.Flags = 300, 0x105, cq.RecvSide, cq.OpRecv, 100, 0xbeef, cq.FlagGRH
		if o := s.poll(t); o.n != 1 || o.wc != want {
			t.Errorf("ethernet %v: %+v, want %+v", ethernet, o.wc, want)
		}
	}
}

// After a failure and a reset one of two counters went on where it was: requests
// ended with the ids of others.
func TestBug48PositionsAfterReset(t *testing.T) {
	s := plainScene(t, 16, 0)
	p := newParty(&s.eps, &s.state, 0x700, 4)
	p.sendPos, p.recvPos = 0xffff, 0x1234
	wcs := make([]cq.WC, 16)
	for cycle := range uint64(5) {
		for i := range uint64(3) {
			pos, _ := p.postSend(10*cycle+i, cq.OpSend, 1, i == 0, 2)
			s.device.add(&completion{opcode: 13, syndrome: 5, uidx: p.index, qpn: 0x700, counter: pos})
			s.device.add(&completion{opcode: 14, syndrome: 5, uidx: p.index, qpn: 0x700, counter: p.postRecv(100+10*cycle+i, 1)})
		}
		n, _ := s.q.Poll(wcs[:2]) // what is left is of before the reset
		dropped := s.q.Sweep(0x700)
		if n != 2 || dropped != 4 {
			t.Fatalf("cycle %d: %d polled, %d swept", cycle, n, dropped)
		}
		for _, r := range []*cq.Requests{p.send, p.recv} {
			for done := false; !done; {
				_, done = r.Abandon(wcs, r.Tail(), false)
			}
			if r.Outstanding() != 0 || r.Room() != 4 || !r.Idle() {
				t.Fatalf("cycle %d: %d outstanding, room %d", cycle, r.Outstanding(), r.Room())
			}
		}
		p.sendPos, p.recvPos = 0, 0
		pos, _ := p.postSend(1000+cycle, cq.OpSend, 1, false, 2)
		s.device.add(&completion{uidx: p.index, qpn: 0x700, counter: pos})
		s.device.add(&completion{opcode: 2, uidx: p.index, qpn: 0x700, counter: p.postRecv(2000+cycle, 1)})
		if n, _ := s.q.Poll(wcs); n != 2 || wcs[0].ID != 1000+cycle || wcs[1].ID != 2000+cycle {
			t.Fatalf("cycle %d: %d completions after the reset: %+v", cycle, n, wcs[:2])
		}
	}
}

// The result of an atomic operation came in the other byte order.
// https://github.com/open-mpi/ompi/issues/1148
// https://github.com/ofiwg/libfabric/issues/10911
// The kernel offers atomics only where the device answers in the host's order: what
// it leaves in an entry is copied as it is, 8 bytes whatever length stands beside.
func TestBug50ResultOfAnAtomic(t *testing.T) {
	for _, length := range []uint32{0, 8, 32, 1 << 31} {
		s := newScene(t, variant{size: 64, version: 1, scatters: true}, aligned(2*64), aligned(8), 0)
		result := make([]byte, 32)
		binary.NativeEndian.PutUint64(result, 0x0102030405060708)
		s.device.add(&completion{format: 1, sendOpcode: 0x12, uidx: qpOpen, qpn: 0x101, counter: 3, bytes: length, data: result})
		if o := s.poll(t); o.n != 1 || o.wc.ID != 103 || o.scattered != string(result[:8]) {
			t.Errorf("length %d: %+v", length, o)
		}
	}
}

// Completions had time stamps, of some format, that nobody had asked for or could
// read.
// A queue that was not made for it gives none, whatever the device writes.
func TestBug52StampsOnlyWhenAsked(t *testing.T) {
	for _, stamps := range []bool{false, true} {
		for _, version := range []int{0, 1} {
			s := newScene(t, variant{size: 64, version: version, stamps: stamps}, aligned(2*64), aligned(8), 0)
			for _, c := range []completion{
				{uidx: qpOpen, qpn: 0x101, counter: 2}, {opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, {opcode: 2, uidx: qpSRQ, qpn: 0x106, counter: 5},
			} {
				c.stamp = 1<<63 | 5
				s.device.add(&c)
				if o := s.poll(t); o.n != 1 || o.wc.Timestamp != map[bool]uint64{true: c.stamp}[stamps] {
					t.Errorf("stamps %v, version %d: %+v", stamps, version, o.wc)
				}
			}
		}
	}
}
