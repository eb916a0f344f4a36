package mlx5

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// testReceiver is a receive queue on memory of its own.
type testReceiver struct {
	*RQ
	size     RecvSize
	mem      []byte
	record   []byte
	requests *cq.Requests
}

func newTestReceiver(tb testing.TB, requests, sge uint32) *testReceiver {
	tb.Helper()
	size, err := SizeRecv(testLimits, requests, sge)
	if err != nil {
		tb.Fatal(err)
	}
	q := &testReceiver{size: size, mem: guarded(tb, size.Bytes, true), record: aligned(recordBytes)}
	q.requests = cq.NewRequests(size.Requests, cq.RecvSide, 9, new(cq.State))
	q.RQ, err = NewRQ(RQConfig{Memory: q.mem, Record: q.record, Size: size, Requests: q.requests})
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

func (q *testReceiver) stage(sges []cq.SGE) uint32 {
	seq, _ := q.requests.Stage(7, cq.OpRecv, 0, false)
	q.Put(cq.MakeWRID(3, cq.RecvSide, seq), sges)
	return seq
}

func (q *testReceiver) flush() {
	q.requests.Commit()
	q.Publish()
}

// recvGolden are receives of a queue of 4 elements and their WQEs, composed by
// hand: data pointers, and the terminator of a list that is not full. What is after
// it is anything.
var recvGolden = []struct {
	name string
	sges []cq.SGE
	want string
}{
	{"nothing", nil, "00000000 00000100 0000000000000000"},
	{"one", sges[:1], "00000040 000001a1 00007f0000001000 00000000 00000100 0000000000000000"},
	{"of no length only", []cq.SGE{{Addr: 1, LKey: 2}}, "00000000 00000100 0000000000000000"},
	{"of no length among others", []cq.SGE{{Addr: 1, LKey: 2}, sges[2], {Addr: 1, LKey: 2}, sges[1]},
		pointer2 + pointer1 + "00000000 00000100 0000000000000000"},
	{"three", sges, "00000040 000001a1 00007f0000001000" + pointer1 + pointer2 + "00000000 00000100 0000000000000000"},
	{"all four", []cq.SGE{sges[2], sges[1], sges[1], sges[2]}, pointer2 + pointer1 + pointer1 + pointer2},
}

func TestRecvGolden(t *testing.T) {
	q := newTestReceiver(t, 4, 4)
	for _, c := range recvGolden {
		for i := range uint32(6) {
			fill(q.mem)
			fill(q.record)
			begin := 0xfffc + i
			q.next, q.published = begin, begin
			seq := q.stage(c.sges)
			want := parseBytes(t, c.want)
			at := begin & 3 * 64
			if !bytes.Equal(q.mem[at:at+uint32(len(want))], want) {
				t.Errorf("%s: %s, want %s", c.name, dump(q.mem[at:at+64]), dump(want))
			}
			fill(q.mem[at : at+uint32(len(want))])
			if len(bytes.TrimLeft(q.mem, "\xdb")) > 0 || q.record[0] != recordedFill {
				t.Errorf("%s: more was written", c.name)
			}
			q.flush()
			if want := []byte{0, 0, byte((begin + 1) >> 8), byte(begin + 1)}; !bytes.Equal(q.record[:4], want) || q.record[4] != recordedFill {
				t.Errorf("%s: record % x, want % x", c.name, q.record, want)
			}
			if found, ok := q.requests.Find(uint16(begin)); !ok || found != seq {
				t.Errorf("%s: its place leads to %d, %v, want %d", c.name, found, ok, seq)
			}
			q.requests.Abandon(make([]cq.WC, 8), q.requests.Tail(), false)
		}
	}
}

// readRecv reads a receive as the device would: elements up to the terminator or
// the end.
func readRecv(wqe []byte) (sges []cq.SGE) {
	number := func(b []byte) (v uint64) {
		for _, x := range b {
			v = v<<8 | uint64(x)
		}
		return v
	}
	for ; len(wqe) > 0; wqe = wqe[16:] {
		e := cq.SGE{Length: uint32(number(wqe[:4])), LKey: uint32(number(wqe[4:8])), Addr: number(wqe[8:16])}
		if e.LKey == 0x100 && e.Length == 0 {
			break
		}
		sges = append(sges, e)
	}
	return sges
}

// lengthy are the elements that have a length.
func lengthy(all []cq.SGE) (sges []cq.SGE) {
	for _, e := range all {
		if e.Length != 0 {
			sges = append(sges, e)
		}
	}
	return sges
}

func sameSGEs(a, b []cq.SGE) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func randomSGEs(rng *rand.Rand, most int) (sges []cq.SGE) {
	for range rng.IntN(most + 1) {
		sges = append(sges, cq.SGE{Addr: rng.Uint64(), Length: rng.Uint32() >> 1 * uint32(rng.IntN(2)), LKey: rng.Uint32()})
	}
	return sges
}

// TestRecvLaps drives receive queues over many laps and over the wrap of the count
// that the device keeps in 16 bits, taking back what was staged now and then.
func TestRecvLaps(t *testing.T) {
	for _, shape := range [][2]uint32{{1, 1}, {4, 3}, {64, 2}} {
		for _, start := range []uint32{0, 0xfff0, 0xffff_fff0} {
			q := newTestReceiver(t, shape[0], shape[1])
			rng := rand.New(rand.NewPCG(uint64(start), uint64(shape[0])))
			q.next, q.published = start, start
			var posted [][]cq.SGE
			device := start
			for q.published-start < max(3*q.size.Requests, 100) {
				var staged [][]cq.SGE
				for n := rng.IntN(5); n > 0 && q.requests.Room() > 0; n-- {
					sges := randomSGEs(rng, int(q.size.MaxSGE))
					q.stage(sges)
					staged = append(staged, lengthy(sges))
				}
				if rng.IntN(4) == 0 {
					n := rng.IntN(len(staged) + 1)
					q.requests.Rollback(uint32(n))
					q.Rollback(uint32(n))
					staged = staged[:len(staged)-n]
				}
				q.flush()
				posted = append(posted, staged...)
				// The device takes some and ends them.
				var w cq.WC
				for n := rng.IntN(5); n > 0 && len(posted) > 0; n-- {
					if got := readRecv(q.mem[device%q.size.Requests<<q.size.Shift:][:q.size.RequestBytes]); !sameSGEs(got, posted[0]) {
						t.Fatalf("receive %#x is %v, want %v", device, got, posted[0])
					}
					seq, ok := q.requests.Find(uint16(device))
					if _, ended := q.requests.Complete(seq, cq.StatusSuccess, &w); !ok || !ended {
						t.Fatalf("receive %#x did not end", device)
					}
					device++
					posted = posted[1:]
				}
				if behind := q.record[2:4]; !bytes.Equal(behind, []byte{byte(q.next >> 8), byte(q.next)}) && q.next != start {
					t.Fatalf("record % x at receive %#x", q.record, q.next)
				}
				if q.Empty() != (len(posted) == 0) {
					t.Fatalf("empty is %v with %d outstanding", q.Empty(), len(posted))
				}
			}
			if _, ok := q.requests.Find(uint16(q.next)); ok {
				t.Error("a receive that was not posted is found")
			}
		}
	}
}

// Published receives are the device's.
func TestRecvRollbackPublished(t *testing.T) {
	q := newTestReceiver(t, 4, 1)
	q.stage(nil)
	q.flush()
	q.stage(nil)
	q.Rollback(3)
	if q.next != 1 || q.record[3] != 1 {
		t.Errorf("at receive %d, record % x", q.next, q.record)
	}
	q.requests.Abandon(make([]cq.WC, 8), q.requests.Tail(), false)
	q.Reset()
	if q.next != 0 || !bytes.Equal(q.record, make([]byte, 8)) {
		t.Errorf("after a reset at receive %d, record % x", q.next, q.record)
	}
}

func TestRecvPutPanics(t *testing.T) {
	q := newTestReceiver(t, 4, 1)
	fill(q.mem)
	if !panics(func() { q.Put(0, sges[:2]) }) {
		t.Error("Put took two elements")
	}
	if len(bytes.TrimLeft(q.mem, "\xdb")) > 0 || q.next != 0 {
		t.Error("and wrote them")
	}
}

func TestNewRQErrors(t *testing.T) {
	good := func() RQConfig {
		size, err := SizeRecv(testLimits, 8, 2)
		if err != nil {
			t.Fatal(err)
		}
		return RQConfig{Memory: aligned(size.Bytes), Record: aligned(8), Size: size, Requests: cq.NewRequests(8, cq.RecvSide, 1, new(cq.State))}
	}
	if _, err := NewRQ(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*RQConfig){
		"no requests":            func(c *RQConfig) { c.Size = RecvSize{} },
		"less memory":            func(c *RQConfig) { c.Memory = c.Memory[:len(c.Memory)-16] },
		"crooked memory":         func(c *RQConfig) { c.Memory = aligned(len(c.Memory) + 64)[16 : 16+len(c.Memory)] },
		"not a power of two":     func(c *RQConfig) { c.Size.Requests = 7; c.Size.Bytes = 7 * 32; c.Memory = aligned(7 * 32) },
		"more requests than fit": func(c *RQConfig) { c.Size.Requests *= 2 },
		"more elements than fit": func(c *RQConfig) { c.Size.MaxSGE = 3 },
		"a silly shift":          func(c *RQConfig) { c.Size.Shift = 70 },
		"no table":               func(c *RQConfig) { c.Requests = nil },
		"a deeper table":         func(c *RQConfig) { c.Requests = cq.NewRequests(9, cq.RecvSide, 1, new(cq.State)) },
		"a short record":         func(c *RQConfig) { c.Record = nil },
		"a crooked record":       func(c *RQConfig) { c.Record = aligned(16)[2:10] },
	} {
		c := good()
		spoil(&c)
		if _, err := NewRQ(c); err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecvRecorded compares receives with libmlx5's.
func TestRecvRecorded(t *testing.T) {
	r := loadRecording(t, "recv.txt")
	queues := map[string]*testReceiver{}
	did := 0
	for i := range r.cases {
		c := &r.cases[i]
		rq := c.one(t, "rq")
		w := words(t, rq)
		q := queues[rq]
		if q == nil {
			q = newTestReceiver(t, w.number("rq_wqe_count"), w.number("max_recv_sge"))
			queues[rq] = q
			if q.size.Requests != w.number("rq_wqe_count") || q.size.Shift != w.number("rq_wqe_shift") || q.size.MaxSGE != w.number("max_recv_sge") {
				t.Fatalf("%s: size %+v, recorded %s", c.name, q.size, rq)
			}
		}
		start, end := uint32(parseNumber(t, c.one(t, "start"))), uint32(parseNumber(t, c.one(t, "end")))
		requests := c.all("req")
		code, refused, failed := strings.Cut(c.one(t, "result"), " at ")
		if failed {
			requests = requests[:parseNumber(t, refused)]
		}
		if len(requests) == 0 {
			if code == "errno 22" && len(recordedSGEs(t, words(t, c.all("req")[0]).m["sge"])) > int(q.size.MaxSGE) && !panics(func() { q.Put(0, recordedSGEs(t, words(t, c.all("req")[0]).m["sge"])) }) {
				t.Errorf("%s: Put took what libmlx5 refuses", c.name)
			}
			continue // else for its state, which the ring does not know
		}
		q.next, q.published = start, start
		q.RQ.requests = cq.NewRequests(q.size.Requests, cq.RecvSide, 1, new(cq.State))
		fill(q.mem)
		for _, v := range requests {
			q.Put(0, recordedSGEs(t, words(t, v).m["sge"]))
		}
		q.Publish()
		if q.next&0xffff != end {
			t.Errorf("%s: ends at %d, recorded %d", c.name, q.next, end)
		}
		for i, recorded := range c.all("bytes") {
			wqe := q.mem[(start+uint32(i))%q.size.Requests<<q.size.Shift:][:q.size.RequestBytes]
			if !matches(t, wqe, recorded) {
				t.Errorf("%s: receive %d\n%s, recorded\n%s", c.name, i, dump(wqe), recorded)
			}
		}
		if !matches(t, q.record[:4], c.one(t, "rcv")) {
			t.Errorf("%s: record % x, recorded %s", c.name, q.record[:4], c.one(t, "rcv"))
		}
		did++
	}
	if did < 25 {
		t.Errorf("only %d of %d cases were compared", did, len(r.cases))
	}
}
