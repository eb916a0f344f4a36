package mlx5

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// A sweep takes out what one queue pair completed, wherever it stands in the ring,
// and leaves the rest in order, and the owner bits such that polling goes on for
// laps.
func TestSweep(t *testing.T) {
	for _, size := range []int{64, 128} {
		for _, version := range []int{0, 1} {
			for _, start := range []uint32{0, 5, 1<<24 - 3, 1<<32 - 3} {
				t.Run(fmt.Sprintf("size=%d/v%d/start=%#x", size, version, start), func(t *testing.T) {
					testSweep(t, size, version, start)
				})
			}
		}
	}
}

func testSweep(t *testing.T, size, version int, start uint32) {
	rng := rand.New(rand.NewPCG(uint64(size), uint64(start)))
	const entries = 8
	mem := guarded(t, entries*size, true)
	m := newCQModel(t, mem, guarded(t, 8, true), variant{size: size, version: version, stamps: true}, start, rng)
	wcs := make([]cq.WC, 2*entries)
	swept := 0
	for step := range 1500 {
		m.post()
		m.complete(t)
		m.poll(t, step, wcs[:rng.IntN(4)])
		if rng.IntN(3) > 0 {
			continue
		}
		// Polling is not part of this: what QP does the model hold what of?
		qpn := m.pairs[rng.IntN(len(m.pairs))].ep.QPN
		var keep []end
		want := 0
		at := m.device.producer - uint32(len(m.ring))
		for i, e := range m.ring {
			c := parseCompletion(m.device.entry(at + uint32(i)))
			if c.qpn != qpn {
				keep = append(keep, e)
				continue
			}
			want++
		}
		if got := m.q.Sweep(qpn); got != want {
			t.Fatalf("step %d: %d swept, want %d", step, got, want)
		}
		m.ring = keep
		m.read += uint32(want)
		m.late += uint64(want)
		swept += want
		if m.device.consumed() != m.read&0xffffff {
			t.Fatalf("step %d: the record has %#x, want %#x", step, m.device.consumed(), m.read)
		}
		// The model's requests of that queue pair never end now.
		for _, p := range m.pairs {
			if p.ep.QPN == qpn {
				for done := false; !done; {
					_, done = p.send.Abandon(wcs, p.send.Tail(), false)
				}
				for done := false; !done; {
					_, done = p.recv.Abandon(wcs, p.recv.Tail(), false)
				}
				p.sends, p.recvs, p.failed = nil, nil, false
				p.sendPos, p.recvPos = 0, 0 // as after RESET
			}
		}
	}
	for len(m.ring) > 0 {
		m.poll(t, 1500, wcs)
	}
	if swept < 40 {
		t.Errorf("only %d swept", swept)
	}
	if got := m.state.Late.Load(); got != m.late {
		t.Errorf("%d late, want %d", got, m.late)
	}
}

// What is in the old ring is in the new one, in order, and polling goes on there.
func TestResize(t *testing.T) {
	for _, size := range []int{64, 128} {
		for _, start := range []uint32{0, 7, 1<<24 - 9, 1<<32 - 9} {
			t.Run(fmt.Sprintf("size=%d/start=%#x", size, start), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(size), uint64(start)))
				mems := map[int][][]byte{}
				for _, n := range []int{2, 4, 8, 16, 32} {
					mems[n] = [][]byte{guarded(t, n*size, true), guarded(t, n*size, false)}
				}
				m := newCQModel(t, mems[8][0], guarded(t, 8, true), variant{size: size, version: 1}, start, rng)
				wcs := make([]cq.WC, 70)
				resized := 0
				for step := range 1500 {
					m.post()
					m.complete(t)
					m.poll(t, step, wcs[:rng.IntN(5)])
					n := 2 << rng.IntN(5)
					if used, _ := m.device.used(); rng.IntN(4) > 0 || n <= int(used) || int(used) == m.device.n {
						continue // firmware refuses to lose completions
					}
					resized++
					m.resize(t, mems[n][resized&1])
				}
				if resized < 100 {
					t.Errorf("resized %d times", resized)
				}
			})
		}
	}
}

// resize resizes as the device and software do together.
func (m *cqModel) resize(t *testing.T, mem []byte) {
	t.Helper()
	produced := m.q.Produced()
	old := m.q
	var err error
	m.q, err = m.q.Resize(mem, func() error {
		m.device.add(&completion{opcode: 5})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m.mem = mem
	producer := m.device.producer
	m.device = newCompleter(mem, m.device.record, m.size)
	m.device.producer = producer
	m.skew++
	if got := m.q.Produced(); got != produced || m.q.Consumed() != old.Consumed() || m.q.Capacity() != uint32(m.device.n) {
		t.Fatalf("produced %d before, %d after; consumed %d and %d", produced, got, old.Consumed(), m.q.Consumed())
	}
}

func TestResizeFails(t *testing.T) {
	scene := func(entries int) *scene {
		return newScene(t, variant{size: 64, version: 1}, aligned(entries*64), aligned(8), 3)
	}
	s := scene(4)
	s.device.add(&cqeCases[0].c)
	refused := errors.New("refused")
	if q, err := s.q.Resize(aligned(8*64), func() error { return refused }); q != nil || err != refused {
		t.Errorf("%v, %v", q, err)
	}
	if q, err := s.q.Resize(aligned(7*64), func() error { t.Error("asked"); return nil }); q != nil || err == nil || !strings.Contains(err.Error(), "448 bytes") {
		t.Errorf("%v, %v", q, err)
	}
	if o := s.poll(t); o.n != 1 || o.wc.ID != 100 {
		t.Errorf("%+v after a resize that failed", o)
	}
	// No end, and an end further than the new ring reaches.
	s = scene(4)
	s.device.add(&cqeCases[0].c)
	q, err := s.q.Resize(aligned(8*64), func() error { return nil })
	if !errors.Is(err, ErrResize) || q == nil {
		t.Fatalf("%v, %v", q, err)
	}
	var wcs [8]cq.WC
	if n, _ := q.Poll(wcs[:]); n != 1 || wcs[0].ID != 100 {
		t.Errorf("%d completions, %+v: what was there is lost", n, wcs[0])
	}
	s = scene(8)
	for range 5 {
		s.device.add(&cqeCases[0].c)
	}
	q, err = s.q.Resize(aligned(2*64), func() error { s.device.add(&completion{opcode: 5}); return nil })
	if !errors.Is(err, ErrResize) || q == nil {
		t.Fatalf("%v, %v", q, err)
	}
	if n, _ := q.Poll(wcs[:]); n != 1 || wcs[0].ID != 100 {
		t.Errorf("%d completions, %+v", n, wcs[0])
	}
}

// armed reads what stands in the record and the register.
func armed(record, uar []byte) (ci, arm uint32, register uint64) {
	word := func(off int) uint32 {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], load32(record, off))
		return big.Uint32(b[:])
	}
	return word(0), word(4), big.Uint64(uar[0x20:])
}

func TestArm(t *testing.T) {
	for _, start := range []uint32{0, 1<<24 - 1, 1<<32 - 1} {
		var state cq.State
		var eps cq.Endpoints
		uar, record := guarded(t, 4096, false), guarded(t, 8, true)
		q, d, err := newTestCQ(aligned(4*64), record, 64, start, func(c *CQConfig) {
			c.State, c.Endpoints, c.UAR = &state, &eps, uar
		})
		if err != nil {
			t.Fatal(err)
		}
		q.SetNumber(0xabcdef)
		sn := uint32(0)
		check := func(what string, solicited bool, command uint32) {
			t.Helper()
			q.Arm(solicited)
			ci := q.next & 0xffffff
			want := sn<<28 | command | ci
			if got, arm, register := armed(record, uar); got != ci || arm != want || register != uint64(want)<<32|0xabcdef {
				t.Errorf("%s from %#x: consumer index %#x, arm %#x, register %#x; want %#x, %#x", what, start, got, arm, register, ci, want)
			}
		}
		check("first", false, 0)
		check("again", false, 0)
		check("less after more", true, 0)
		event := func() {
			d.add(&completion{})
			q.Poll(make([]cq.WC, 1))
			q.EventTaken()
			sn = (sn + 1) & 3
		}
		event()
		check("solicited", true, 1<<24)
		check("more after less", false, 0)
		check("less again", true, 0)
		d.add(&completion{})
		q.Poll(make([]cq.WC, 1))
		sn++ // the queue was empty, so there is an event of that, taken or not
		check("after a poll", true, 1<<24)
		q.EventTaken()
		check("after its event", false, 0)
		for range 3 {
			event()
			check("the number wraps", true, 1<<24)
		}
		q2, err := q.Resize(aligned(8*64), func() error { d.add(&completion{opcode: 5}); return nil })
		if err != nil {
			t.Fatal(err)
		}
		q.EventTaken() // whoever still has the old one
		q, sn = q2, 1
		check("after a resize", false, 0)
	}
}

// The device that is told by the register finds the record as it was written before,
// the consumer index of the last Poll too.
func TestArmOrder(t *testing.T) {
	var state cq.State
	var eps cq.Endpoints
	uar, record := aligned(4096), aligned(8)
	q, d, err := newTestCQ(aligned(4*64), record, 64, 0, func(c *CQConfig) {
		c.State, c.Endpoints, c.UAR = &state, &eps, uar
	})
	if err != nil {
		t.Fatal(err)
	}
	rounds := uint32(roundsOr(100))
	var seen atomic.Uint32
	errs := make(chan error, 1)
	go func() {
		defer close(errs)
		for i := uint32(1); i <= rounds; i++ {
			for uint32(loadRegister(uar, 0x20)>>32)&0xffffff != i&0xffffff {
				spin(true)
			}
			ci, arm, _ := armed(record, uar)
			if ci != i || arm&0xffffff != i {
				errs <- fmt.Errorf("round %d: the record has consumer index %d and arm %#x", i, ci, arm)
				return
			}
			seen.Store(i)
		}
	}()
	wcs := make([]cq.WC, 1)
	for i := uint32(1); i <= rounds && len(errs) == 0; i++ {
		d.add(&completion{})
		q.Poll(wcs)
		q.Arm(false)
		for seen.Load() != i && len(errs) == 0 {
			spin(true)
		}
	}
	for err := range errs {
		t.Error(err)
	}
}

func TestNewCQRefuses(t *testing.T) {
	var state cq.State
	var eps cq.Endpoints
	ok := CQConfig{Buffer: aligned(4 * 64), Record: aligned(8), EntrySize: 64, State: &state, Endpoints: &eps}
	if _, err := NewCQ(ok); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		spoil func(*CQConfig)
		says  string
	}{
		"no state":            {func(c *CQConfig) { c.State = nil }, "State"},
		"no endpoints":        {func(c *CQConfig) { c.Endpoints = nil }, "Endpoints or Numbers"},
		"both versions":       {func(c *CQConfig) { c.Numbers = new(cq.Members) }, "Endpoints or Numbers"},
		"size 32":             {func(c *CQConfig) { c.EntrySize = 32 }, "32 bytes"},
		"one entry":           {func(c *CQConfig) { c.Buffer = c.Buffer[:64] }, "64 bytes"},
		"three entries":       {func(c *CQConfig) { c.Buffer = c.Buffer[:3*64] }, "192 bytes"},
		"a piece of an entry": {func(c *CQConfig) { c.Buffer = aligned(2*64 + 1) }, "129 bytes"},
		"no memory":           {func(c *CQConfig) { c.Buffer = nil }, "0 bytes"},
		"unaligned":           {func(c *CQConfig) { c.Buffer = aligned(5 * 64)[8:][:4*64] }, "8 bytes past a multiple of 64"},
		"no record":           {func(c *CQConfig) { c.Record = nil }, "record of 0 bytes"},
		"long record":         {func(c *CQConfig) { c.Record = aligned(16) }, "record of 16 bytes"},
		"unaligned record":    {func(c *CQConfig) { c.Record = aligned(64)[4:12] }, "4 bytes past a multiple of 8"},
		"short UAR":           {func(c *CQConfig) { c.UAR = aligned(32) }, "UAR of 32 bytes"},
		"unaligned UAR":       {func(c *CQConfig) { c.UAR = aligned(128)[4:] }, "4 bytes past a multiple of 8"},
	} {
		bad := ok
		c.spoil(&bad)
		if _, err := NewCQ(bad); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q in it", what, err, c.says)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("armed without a UAR")
		}
	}()
	q, _ := NewCQ(ok)
	q.Arm(false)
}

func TestCQEntries(t *testing.T) {
	for depth, want := range map[int]int{-1: 2, 0: 2, 1: 2, 2: 4, 3: 4, 4: 8, 7: 8, 8: 16, 1<<24 - 1: 1 << 24} {
		if got := CQEntries(depth); got != want {
			t.Errorf("%d entries for a depth of %d, want %d", got, depth, want)
		}
	}
}
