package mlx5

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// roundsOr is how many rounds a test makes: GOVERBS_ROUNDS, or n.
func roundsOr(n int) int {
	if s := os.Getenv("GOVERBS_ROUNDS"); s != "" {
		if v, err := strconv.Atoi(s); err == nil {
			return v
		}
	}
	return n
}

// end is what one completion in the ring has to become: a WC, or nothing.
type end struct {
	wc   cq.WC
	show bool
}

// job is a request that the device has not ended.
type job struct {
	posted
	pos   uint16
	event bool // the device reports its success
}

// pair is a queue pair under the model, and what the device still has to end of it.
type pair struct {
	*party
	sends, recvs []job
	failed       bool // all that follows is flushed
	ud           bool
	srq          *srqModel
}

// srqModel is the ring of a shared receive queue: as many elements as requests, and
// one, which are used in the order of a list.
type srqModel struct {
	table *cq.SharedRequests
	list  []uint16
	held  map[uint32]uint16 // by slot, the element that its last request stood in
	jobs  []job             // any of which may be next
}

func newSRQModel(depth uint32) *srqModel {
	s := &srqModel{table: cq.NewSharedRequests(depth), held: map[uint32]uint16{}}
	s.table.Positions(int(depth) + 1)
	for i := range uint16(depth) + 1 {
		s.list = append(s.list, i)
	}
	return s
}

func (s *srqModel) post(id uint64, bytes uint32) {
	seq, _ := s.table.Stage(id, cq.OpRecv, bytes, false)
	slot := seq & (cq.MaxSharedDepth - 1)
	if old, ok := s.held[slot]; ok {
		s.list = append(s.list, old)
	}
	pos := s.list[0]
	s.list = s.list[1:]
	s.held[slot] = pos
	s.table.Place(seq, pos)
	s.table.Commit()
	s.jobs = append(s.jobs, job{posted: posted{id: id, op: cq.OpRecv, bytes: bytes}, pos: pos})
}

// TestPollModel drives a completion queue through many laps with a device that
// knows what each completion must become, and checks after every Poll the
// completions, the counts, and that nothing but the doorbell record was written.
func TestPollModel(t *testing.T) {
	for _, entries := range []int{2, 4, 8, 64} {
		for _, v := range []variant{{64, 1, false, true, false}, {128, 1, true, false, false}, {64, 0, true, true, false}, {128, 0, false, false, false}} {
			for i, start := range []uint32{0, 1<<24 - 7, 1<<32 - 7} {
				t.Run(fmt.Sprintf("%d/%v/start=%#x", entries, v, start), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(entries), uint64(start)))
					mem := guarded(t, entries*v.size, i&1 == 0)
					newCQModel(t, mem, guarded(t, 8, i&1 == 1), v, start, rng).run(t, roundsOr(modelSteps()))
				})
			}
		}
	}
}

// modelSteps is enough for laps of everything, and less where each step takes long.
func modelSteps() int {
	if raced {
		return 400
	}
	return 2500
}

// cqModel is a completion queue and the device behind it.
type cqModel struct {
	variant
	rng         *rand.Rand
	eps         cq.Endpoints
	numbers     cq.Members
	state       cq.State
	q           *CQ
	device      *completer
	mem         []byte
	pairs       []*pair
	gone        *party
	ring        []end // what stands in the ring, oldest first
	id          uint64
	read, skew  uint32 // completions read, and ends of rings
	stray, late uint64
	skipped     int
	ended       map[uint64]int
}

func newCQModel(t testing.TB, mem, record []byte, v variant, start uint32, rng *rand.Rand) *cqModel {
	m := &cqModel{variant: v, rng: rng, mem: mem, ended: map[uint64]int{}}
	var err error
	m.q, m.device, err = newTestCQ(mem, record, v.size, start, func(c *CQConfig) {
		c.State, c.Ethernet, c.Timestamps = &m.state, v.ethernet, v.stamps
		if c.Endpoints = &m.eps; v.version == 0 {
			c.Endpoints, c.Numbers = nil, &m.numbers
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	srq := newSRQModel(5)
	for i := range uint32(6) {
		p := &pair{party: newParty(&m.eps, &m.state, 0x11+i, 3+i)}
		p.sendPos, p.recvPos = uint16(rng.Uint32()), uint16(rng.Uint32())
		switch i {
		case 3:
			p.ud, p.ep.Datagram = true, true
		case 4, 5:
			p.srq, p.ep.Shared, p.ep.Recv = srq, srq.table, nil
		}
		m.eps.Set(p.index, p.ep)
		m.numbers.Join(p.ep, &m.state, start)
		m.pairs = append(m.pairs, p)
	}
	m.gone = newParty(&m.eps, &m.state, 99, 1)
	m.gone.ep.Closed = true
	m.eps.Set(m.gone.index, m.gone.ep)
	m.numbers.Join(m.gone.ep, &m.state, start).Close()
	m.read = start
	return m
}

func (m *cqModel) run(t *testing.T, steps int) {
	wcs := make([]cq.WC, 2*m.device.n+3)
	for step := range steps {
		m.post()
		m.complete(t)
		m.poll(t, step, wcs[:m.rng.IntN(len(wcs))])
	}
	for len(m.ring) > 0 {
		m.poll(t, steps, wcs)
	}
	if m.state.Stray.Load() != m.stray || m.state.Late.Load() != m.late {
		t.Errorf("%d stray, %d late; there were %d and %d", m.state.Stray.Load(), m.state.Late.Load(), m.stray, m.late)
	}
	for id, n := range m.ended {
		if n != 1 {
			t.Errorf("request %d ended %d times", id, n)
		}
	}
	// What the device has not ended is what is outstanding, quiet requests apart
	// that it has carried out and not reported yet.
	for _, p := range m.pairs {
		if n := int(p.recv.Outstanding()); p.srq == nil && n != len(p.recvs) {
			t.Errorf("QP %#x: %d receives outstanding, want %d", p.ep.QPN, n, len(p.recvs))
		}
		if n := int(p.send.Outstanding()); n < len(p.sends) {
			t.Errorf("QP %#x: %d sends outstanding, want %d at least", p.ep.QPN, n, len(p.sends))
		}
		if p.srq != nil && p.srq.table.Room() != p.srq.table.Depth()-len(p.srq.jobs) {
			t.Errorf("room for %d shared receives, %d are posted", p.srq.table.Room(), len(p.srq.jobs))
		}
	}
	if laps := (m.device.producer - m.q.next + m.read) / uint32(m.device.n); steps >= 2500 && laps < 3 {
		t.Errorf("only %d laps", laps)
	}
	if laps := m.skipped / len(m.pairs) / 2 >> 16; steps >= 2500 && laps < 3 {
		t.Errorf("only %d laps of positions", laps)
	}
}

func (m *cqModel) post() {
	p := m.pairs[m.rng.IntN(len(m.pairs))]
	for range m.rng.IntN(4) {
		m.id++
		switch recv := m.rng.IntN(2) == 0; {
		case !recv && p.send.Room() > 0:
			j := job{posted: posted{m.id, cq.Opcode(m.rng.IntN(9)), m.rng.Uint32(), m.rng.IntN(3) > 0}}
			j.pos, j.event = p.postSend(j.id, j.op, j.bytes, j.quiet, 1+uint16(m.rng.IntN(4)))
			if m.rng.IntN(2) == 0 {
				m.skip(&p.sendPos, 1<<12) // as if there had been requests that do not count
			}
			p.sends = append(p.sends, j)
		case recv && p.srq != nil && p.srq.table.Room() > 0:
			p.srq.post(m.id, 1<<20)
		case recv && p.srq == nil && p.recv.Room() > 0:
			j := job{posted: posted{m.id, cq.OpRecv, 1 << 20, false}, event: true}
			if m.rng.IntN(2) == 0 {
				m.skip(&p.recvPos, 1<<12)
			}
			j.pos = p.postRecv(j.id, j.bytes)
			p.recvs = append(p.recvs, j)
		}
	}
}

// skip moves a position on, so that it wraps more often, and counts.
func (m *cqModel) skip(pos *uint16, by uint16) {
	*pos += by
	m.skipped += int(by)
}

// complete lets the device end a few requests.
func (m *cqModel) complete(t *testing.T) {
	for range m.rng.IntN(2 + m.device.n) {
		used, err := m.device.used()
		if err != nil {
			t.Fatal(err)
		}
		if used != uint32(len(m.ring)) {
			t.Fatalf("by the indices %d completions are in the ring, by the model %d", used, len(m.ring))
		}
		if int(used) == m.device.n {
			return
		}
		c := completion{x: byte(m.rng.Uint32()), signature: byte(m.rng.Uint32()), stamp: m.rng.Uint64(), slid: uint16(m.rng.Uint32()), vlan: uint16(m.rng.Uint32()),
			headers: byte(m.rng.Uint32()), source: m.rng.Uint32(), imm: m.rng.Uint32(), bytes: m.rng.Uint32() >> m.rng.IntN(32), vendor: byte(m.rng.Uint32()), sendOpcode: byte(m.rng.Uint32())}
		var e end
		ok := false
		switch m.rng.IntN(20) {
		case 0:
			// What names no request now could name one that is posted before it
			// is polled; what names no queue pair does not.
			p := m.pairs[m.rng.IntN(3)]
			c.opcode, c.uidx, c.qpn, c.counter, ok = []byte{0, 2, 13}[m.rng.IntN(3)], p.index, p.ep.QPN|0x800000, p.sendPos, true
			m.stray++
		case 1:
			c.opcode, c.uidx, c.qpn, ok = 14, m.gone.index, m.gone.ep.QPN, true
			m.late++
		default:
			e, ok = m.end(m.pairs[m.rng.IntN(len(m.pairs))], &c)
		}
		if ok {
			m.device.add(&c)
			m.ring = append(m.ring, e)
		}
	}
}

// end ends one request of p, makes c its completion, and says what that must become.
// ok is false when there is nothing to end or to say.
func (m *cqModel) end(p *pair, c *completion) (e end, ok bool) {
	queue, i := &p.sends, 0
	send := m.rng.IntN(2) == 0
	if !send {
		if queue = &p.recvs; p.srq != nil {
			if queue = &p.srq.jobs; len(*queue) > 0 {
				i = m.rng.IntN(len(*queue))
			}
		}
	}
	if len(*queue) == 0 {
		p.failed = p.failed && len(p.sends)+len(p.recvs) > 0
		return e, false
	}
	j := (*queue)[i]
	*queue = append((*queue)[:i:i], (*queue)[i+1:]...)
	m.ended[j.id]++
	c.uidx, c.qpn, c.counter = p.index, p.ep.QPN, j.pos
	if m.version == 0 {
		c.uidx = 0
	}
	w := cq.WC{ID: j.id, QPN: p.ep.QPN}
	if !send {
		w.Side = cq.RecvSide
	}
	if failing := m.rng.IntN(15) == 0; failing || p.failed && (send || p.srq == nil) {
		c.opcode, c.syndrome, w.Status = 14, 5, cq.StatusFlushed
		if failing && !p.failed {
			c.syndrome, w.Status = 0x13, cq.StatusRemoteAccess
			p.failed = send
		}
		if send {
			c.opcode = 13
		}
		w.VendorErr = uint32(c.vendor)
		return end{w, true}, true
	}
	if m.stamps {
		w.Timestamp = c.stamp
	}
	if send {
		c.opcode, w.Opcode, w.Bytes = 0, j.op, j.bytes
		return end{w, !j.quiet}, j.event
	}
	c.opcode = 1 + byte(m.rng.IntN(4))
	w.Opcode, w.Bytes = cq.OpRecv, min(c.bytes, j.bytes)
	switch c.opcode {
	case 1:
		w.Opcode, w.Bytes = cq.OpRecvWriteImm, c.bytes
		if p.ud {
			c.opcode, w.Opcode, w.Bytes = 3, cq.OpRecv, min(c.bytes, j.bytes)
		}
		w.SetImm(c.imm)
	case 3:
		w.SetImm(c.imm)
	case 4:
		w.SetInvalidatedRKey(c.imm)
	}
	if p.ud {
		w.SrcQPN = c.source & 0xffffff
		if c.source>>28&3 != 0 {
			w.Flags |= cq.FlagGRH
		}
		switch {
		case !m.ethernet:
			w.SLID, w.SL = c.slid, byte(c.source>>24&15)
		case c.headers&1 != 0:
			w.SL = byte(c.vlan >> 13)
		}
	}
	return end{w, true}, true
}

// poll polls and checks.
func (m *cqModel) poll(t *testing.T, step int, batch []cq.WC) {
	if empty := m.q.Empty(); empty != (len(m.ring) == 0) {
		t.Fatalf("step %d: Empty is %v with %d in the ring", step, empty, len(m.ring))
	}
	if p := m.q.Produced(); p != m.read+uint32(len(m.ring)) {
		t.Fatalf("step %d: produced %#x, want %#x", step, p, m.read+uint32(len(m.ring)))
	}
	before := bytes.Clone(m.mem)
	n, drained := m.q.Poll(batch)
	shown := 0
	for len(m.ring) > 0 && shown < len(batch) {
		e := m.ring[0]
		m.ring = m.ring[1:]
		m.read++
		if !e.show {
			continue
		}
		if shown >= n {
			t.Fatalf("step %d: %d completions, there are more", step, n)
		}
		if batch[shown] != e.wc {
			t.Fatalf("step %d: completion\n%+v, want\n%+v", step, batch[shown], e.wc)
		}
		shown++
	}
	if n != shown || drained != (len(m.ring) == 0) {
		t.Fatalf("step %d: %d completions of %d, drained %v with %d left", step, n, shown, drained, len(m.ring))
	}
	if m.q.Consumed() != m.read || m.device.consumed() != (m.read+m.skew)&0xffffff {
		t.Fatalf("step %d: consumed %#x, the record has %#x, want %#x and %#x", step, m.q.Consumed(), m.device.consumed(), m.read, m.read+m.skew)
	}
	if !bytes.Equal(before, m.mem) || load32(m.device.record, 4) != 0 {
		t.Fatalf("step %d: Poll wrote more than the consumer index", step)
	}
}
