package mlx5

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// testShared is a shared receive queue on memory of its own, and the device that
// follows its list.
type testShared struct {
	*SRQ
	size     SharedSize
	mem      []byte
	record   []byte
	requests *cq.SharedRequests

	staged map[uint32][]cq.SGE // by request
	posted map[uint32][]cq.SGE
	order  []uint32 // requests as they were posted

	at      uint32            // the element that the device takes next
	taken   uint16            // how many it has taken
	holds   map[uint32]uint32 // the elements that it has taken and not ended, and their requests
	settled map[uint32]uint16 // what the header of those said
}

func newTestShared(tb testing.TB, limits Limits, requests, sge uint32) *testShared {
	tb.Helper()
	size, err := SizeShared(limits, requests, sge)
	if err != nil {
		tb.Fatal(err)
	}
	return newSharedOf(tb, size, requests)
}

func newSharedOf(tb testing.TB, size SharedSize, requests uint32) *testShared {
	tb.Helper()
	q := &testShared{size: size, mem: guarded(tb, size.Bytes, true), record: aligned(recordBytes), requests: cq.NewSharedRequests(requests),
		staged: map[uint32][]cq.SGE{}, posted: map[uint32][]cq.SGE{}, holds: map[uint32]uint32{}, settled: map[uint32]uint16{}}
	var err error
	q.SRQ, err = NewSRQ(SRQConfig{Memory: q.mem, Record: q.record, Size: size, Requests: q.requests})
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

func (q *testShared) stage(sges []cq.SGE) uint32 {
	seq, _ := q.requests.Stage(7, cq.OpRecv, 0, false)
	q.Put(cq.MakeWRID(3, cq.RecvSide, seq), sges)
	q.staged[seq] = lengthy(sges)
	q.order = append(q.order, seq)
	return seq
}

func (q *testShared) flush() {
	q.requests.Commit()
	q.Publish()
	for seq, sges := range q.staged {
		q.posted[seq] = sges
	}
	clear(q.staged)
}

func (q *testShared) takeBack(n int) {
	q.requests.Rollback(uint32(n))
	q.Rollback(uint32(n))
	for _, seq := range q.order[len(q.order)-n:] {
		delete(q.staged, seq)
	}
	q.order = q.order[:len(q.order)-n]
}

// available is how many elements the device may take.
func (q *testShared) available() uint16 {
	return uint16(q.record[2])<<8 | uint16(q.record[3]) - q.taken
}

// take lets the device take the next element, as it follows the list, and checks
// what it finds.
func (q *testShared) take() error {
	e := q.at
	if _, ok := q.holds[e]; ok {
		return fmt.Errorf("element %d comes again while the device has it", e)
	}
	wqe := q.mem[e<<q.size.Shift:][:q.size.RequestBytes]
	seq, ok := q.requests.At(uint16(e))
	want, posted := q.posted[seq]
	if !ok || !posted {
		return fmt.Errorf("element %d leads to request %#x, %v, which is posted: %v", e, seq, ok, posted)
	}
	if got := readRecv(wqe[16:]); !sameSGEs(got, want) {
		return fmt.Errorf("element %d is %v, want %v", e, got, want)
	}
	if wqe[0]|wqe[1] != 0 || !bytes.Equal(wqe[4:16], make([]byte, 12)) {
		return fmt.Errorf("element %d has header % x", e, wqe[:16])
	}
	next := uint16(wqe[2])<<8 | uint16(wqe[3])
	q.holds[e], q.settled[e] = seq, next
	q.at = uint32(next)
	q.taken++
	return nil
}

// end lets the device end the receive of an element. The link that it has followed
// must still be what it was.
func (q *testShared) end(e uint32) error {
	seq := q.holds[e]
	if now := uint16(q.mem[e<<q.size.Shift+2])<<8 | uint16(q.mem[e<<q.size.Shift+3]); now != q.settled[e] {
		return fmt.Errorf("element %d says that %d comes next, the device followed it to %d", e, now, q.settled[e])
	}
	var w cq.WC
	if at, ok := q.requests.At(uint16(e)); !ok || at != seq || !q.requests.End(1, seq, cq.StatusSuccess, &w) {
		return fmt.Errorf("element %d with request %#x did not end", e, seq)
	}
	delete(q.holds, e)
	delete(q.posted, seq)
	return nil
}

// fault lets the device give an element back unused.
func (q *testShared) fault(e uint32) {
	delete(q.holds, e)
	q.requests.Repost(uint16(e))
}

// anyHeld is an element that the device has.
func (q *testShared) anyHeld(rng *rand.Rand) uint32 {
	n := rng.IntN(len(q.holds))
	for e := range q.size.Elements {
		if _, ok := q.holds[e]; ok {
			if n == 0 {
				return e
			}
			n--
		}
	}
	panic("none")
}

// TestSharedLaps drives shared queues of several sizes, with and without the room
// that keeps elements unused for long: the device follows the list and ends what it
// took in any order, or gives it back, until its 16-bit count has gone round.
func TestSharedLaps(t *testing.T) {
	few := testLimits
	few.SharedRequests = 30
	for _, limits := range []Limits{testLimits, few} {
		for _, requests := range []uint32{1, 2, 3, 16, 30} {
			q := newTestShared(t, limits, requests, 2)
			rng := rand.New(rand.NewPCG(uint64(requests), 3))
			q.count = 0xff00 // as if so many had been posted
			storeRecord(q.SRQ.record, q.count)
			q.taken = 0xff00
			for steps := 0; q.count < 0x10300; steps++ {
				var err error
				switch k := rng.IntN(8); {
				case k < 2 && q.requests.Room() > 0:
					q.stage(randomSGEs(rng, int(q.size.MaxSGE)))
				case k == 2:
					q.flush()
				case k == 3 && len(q.staged) > 0 && rng.IntN(3) == 0:
					q.takeBack(rng.IntN(len(q.staged)) + 1)
				case k < 6 && q.available() > 0:
					err = q.take()
				case len(q.holds) > 0 && rng.IntN(4) > 0:
					err = q.end(q.anyHeld(rng))
				case len(q.holds) > 0:
					q.fault(q.anyHeld(rng))
				}
				if err != nil {
					t.Fatalf("%d requests in %d elements, step %d: %v", requests, q.size.Elements, steps, err)
				}
				if q.Empty() != (len(q.posted) == 0) {
					t.Fatalf("%d requests, step %d: empty is %v with %d posted", requests, steps, q.Empty(), len(q.posted))
				}
				if int(q.available()) > len(q.posted) {
					t.Fatalf("%d requests, step %d: the device may take %d of %d", requests, steps, q.available(), len(q.posted))
				}
				if steps > 1_000_000 {
					t.Fatal("it does not come to an end")
				}
			}
		}
	}
}

// TestRepostWhileStaged: what the device gives back while a batch is staged is
// posted after the batch, or once the batch is taken back.
func TestRepostWhileStaged(t *testing.T) {
	for _, back := range []bool{false, true} {
		q := newTestShared(t, testLimits, 4, 2)
		q.stage(sges[:2])
		q.flush()
		if err := q.take(); err != nil {
			t.Fatal(err)
		}
		q.stage(sges[2:])
		q.stage(nil)
		q.fault(0)
		if q.available() != 0 {
			t.Fatal("posted between requests that are staged")
		}
		if back {
			q.takeBack(1)
			if q.available() != 0 {
				t.Fatal("posted while one is staged")
			}
			q.takeBack(1)
		} else {
			q.flush()
		}
		if want := uint16(len(q.posted)); q.available() != want {
			t.Fatalf("%d available, want %d", q.available(), want)
		}
		for q.available() > 0 {
			if err := q.take(); err != nil {
				t.Fatal(err)
			}
		}
		// A second time, and elements that have nothing, are ignored.
		q.requests.Repost(0)
		q.requests.Repost(0xffff)
		if q.available() != 0 {
			t.Error("posted twice")
		}
		for len(q.holds) > 0 {
			if err := q.end(q.anyHeld(rand.New(rand.NewPCG(1, 1)))); err != nil {
				t.Fatal(err)
			}
		}
		if q.requests.Room() != 4 {
			t.Errorf("room %d", q.requests.Room())
		}
	}
}

// TestRepostBeside lets pollers give elements back while the poster posts.
func TestRepostBeside(t *testing.T) {
	const depth, rounds = 8, 2000
	q := newTestShared(t, testLimits, depth, 1)
	work := make(chan uint16, depth)
	room := make(chan struct{}, depth)
	var pollers sync.WaitGroup
	for p := range 2 {
		pollers.Go(func() {
			var w cq.WC
			for e := range work {
				seq, ok := q.requests.At(e)
				if !ok || !q.requests.Posted(seq) {
					t.Errorf("element %d has no request", e)
				} else if p == 0 && seq>>20%2 == 0 {
					// The device gives it back, takes it from another
					// element, and ends it there.
					q.requests.Repost(e)
				}
				q.requests.End(1, seq, cq.StatusSuccess, &w)
				room <- struct{}{}
			}
		})
	}
	for range depth {
		room <- struct{}{}
	}
	for i := range rounds {
		<-room
		for q.requests.Room() == 0 {
			t.Fatal("no room")
		}
		seq, _ := q.requests.Stage(uint64(i), cq.OpRecv, 0, false)
		q.Put(uint64(seq), sges[:1])
		e := uint16(q.SRQ.staged[0].element)
		q.requests.Commit()
		q.Publish()
		work <- e
	}
	close(work)
	pollers.Wait()
	if q.requests.Room() != depth || !q.Empty() || q.count < rounds {
		t.Errorf("room %d, empty %v, count %d", q.requests.Room(), q.Empty(), q.count)
	}
	// The list has every element once but for those that places remember.
	seen := map[uint32]bool{}
	for e := q.head; ; e = uint32(q.SRQ.next[e]) {
		if seen[e] {
			t.Fatalf("element %d is in the list twice", e)
		}
		if seen[e] = true; e == q.tail {
			break
		}
	}
	for _, e := range q.element {
		if e != 0 {
			if seen[e-1] {
				t.Errorf("element %d is both used and free", e-1)
			}
			seen[e-1] = true
		}
	}
	if len(seen) != int(q.size.Elements) {
		t.Errorf("%d of %d elements", len(seen), q.size.Elements)
	}
}

func TestSharedPutPanics(t *testing.T) {
	q := newTestShared(t, testLimits, 4, 1)
	before := bytes.Clone(q.mem)
	if !panics(func() { q.Put(0, sges[:2]) }) || !bytes.Equal(q.mem, before) {
		t.Error("Put took two elements, or wrote them")
	}
	q.stage(nil) // and did not leave the queue locked
	q.flush()
}

func TestNewSRQErrors(t *testing.T) {
	good := func() SRQConfig {
		size, err := SizeShared(testLimits, 8, 2)
		if err != nil {
			t.Fatal(err)
		}
		return SRQConfig{Memory: aligned(size.Bytes), Record: aligned(8), Size: size, Requests: cq.NewSharedRequests(8)}
	}
	if _, err := NewSRQ(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*SRQConfig){
		"no size":                func(c *SRQConfig) { c.Size = SharedSize{} },
		"less memory":            func(c *SRQConfig) { c.Memory = c.Memory[64:] },
		"crooked memory":         func(c *SRQConfig) { c.Memory = aligned(len(c.Memory) + 64)[32 : 32+len(c.Memory)] },
		"more elements than fit": func(c *SRQConfig) { c.Size.Elements *= 2 },
		"too many elements": func(c *SRQConfig) {
			c.Size.Elements = 1 << 17
			c.Size.Bytes = 64 << 17
			c.Memory = aligned(c.Size.Bytes)
		},
		"tiny elements": func(c *SRQConfig) {
			c.Size.Shift = 4
			c.Size.Bytes = int(c.Size.Elements) * 16
			c.Memory = aligned(c.Size.Bytes)
		},
		"more pointers than fit": func(c *SRQConfig) { c.Size.MaxSGE = 4 },
		"no element to spare":    func(c *SRQConfig) { c.Size.Requests = c.Size.Elements },
		"no table":               func(c *SRQConfig) { c.Requests = nil },
		"a deeper table":         func(c *SRQConfig) { c.Requests = cq.NewSharedRequests(c.Size.Requests + 1) },
		"a short record":         func(c *SRQConfig) { c.Record = c.Record[:7] },
		"a crooked record":       func(c *SRQConfig) { c.Record = aligned(16)[1:9] },
	} {
		c := good()
		spoil(&c)
		if _, err := NewSRQ(c); err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSharedRecorded compares sizes, the list of a new queue, and what is posted.
// libmlx5 chooses other elements once the first ones are used, keeps elements of
// length 0, and gives back in another order; what an element has to say is the
// same.
func TestSharedRecorded(t *testing.T) {
	for _, file := range []string{"srq.txt", "srq_nowait.txt"} {
		r := loadRecording(t, file)
		var q *testShared
		sizes, posts := 0, 0
		for i := range r.cases {
			c := &r.cases[i]
			if c.has("ask") {
				if q = recordedShared(t, &r, c); q != nil {
					sizes++
				}
				continue
			}
			if !c.has("req") || q == nil {
				continue
			}
			requests, wqes, contents := c.all("req"), c.all("wqe"), c.all("bytes")
			if len(wqes) == 0 {
				continue // all refused
			}
			if len(wqes) != len(contents) {
				t.Fatalf("%s: %d elements, %d contents", c.name, len(wqes), len(contents))
			}
			for len(q.posted) > 0 { // whatever libmlx5 still has
				for q.available() > 0 {
					if err := q.take(); err != nil {
						t.Fatal(err)
					}
				}
				if err := q.end(q.anyHeld(rand.New(rand.NewPCG(1, 1)))); err != nil {
					t.Fatal(err)
				}
			}
			if q.requests.Room() < len(wqes) {
				t.Fatalf("%s: room for %d, recorded %d", c.name, q.requests.Room(), len(wqes))
			}
			for k := range wqes {
				sges := recordedSGEs(t, words(t, requests[k]).m["sge"])
				head := q.head
				q.stage(sges)
				if len(lengthy(sges)) != len(sges) {
					continue
				}
				wqe := q.mem[head<<q.size.Shift:][:q.size.RequestBytes]
				// They were recorded by index, in which libmlx5 differs.
				same := slices.IndexFunc(contents, func(b string) bool { return matches(t, wqe[16:], strings.ReplaceAll(b, " ", "")[32:]) })
				if same < 0 {
					t.Errorf("%s: %s, recorded\n%s", c.name, dump(wqe), strings.Join(contents, "\n"))
					continue
				}
				contents = slices.Delete(contents, same, same+1)
				posts++
			}
			was := q.count
			q.flush()
			if srq, _, _ := strings.Cut(c.one(t, "srq"), " "); len(wqes) == len(requests) && uint16(q.count-was) != uint16(parseNumber(t, "0x"+srq)-parseNumber(t, "0x"+strings.Fields(c.one(t, "srq"))[2])) {
				t.Errorf("%s: %d posted, recorded %s", c.name, q.count-was, c.one(t, "srq"))
			}
		}
		if sizes < 2 || posts < 4 {
			t.Errorf("%s: only %d sizes and %d posts were compared", file, sizes, posts)
		}
	}
}

// recordedShared makes a queue as one was made there, and compares.
func recordedShared(t *testing.T, r *recording, c *recordedCase) *testShared {
	t.Helper()
	ask := words(t, c.one(t, "ask"))
	size, err := SizeShared(r.limits, ask.number("max_wr"), ask.number("max_sge"))
	if strings.HasPrefix(c.one(t, "got"), "errno") {
		if err == nil {
			t.Errorf("%s: %+v, recorded %s", c.name, size, c.one(t, "got"))
		}
		return nil
	}
	got := words(t, c.one(t, "got"))
	if got.number("wqe_size") > r.limits.RecvBytes {
		// libmlx5 holds the size of an element against the number of
		// receives.
		if err == nil {
			t.Errorf("%s: %+v, past the device's limit", c.name, size)
		}
		return nil
	}
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
		return nil
	}
	if size.Requests != got.number("max_wr") || size.MaxSGE != got.number("max_sge") || size.Elements-1 != got.number("kernel_max_wr") || size.RequestBytes != got.number("wqe_size") ||
		(size.Bytes+4095)&^4095 != int(got.number("buffer")) {
		t.Errorf("%s: %+v, recorded %s", c.name, size, c.one(t, "got"))
		return nil
	}
	if size.Requests == 0 {
		return nil
	}
	q := newSharedOf(t, size, size.Requests)
	for _, link := range strings.Split(strings.Join(c.all("links"), ""), ",") {
		var e, next uint32
		if n, _ := fmt.Sscanf(link, "%d:%d", &e, &next); n != 2 {
			continue
		}
		// The last of its two lists libmlx5 links later.
		if mine := uint32(q.SRQ.next[e]); next != 0 && mine != next {
			t.Errorf("%s: element %d is followed by %d, recorded %d", c.name, e, mine, next)
		}
	}
	return q
}
