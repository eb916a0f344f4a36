package rxe

import (
	"runtime"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// A poster, a driver and a poller on three goroutines, with nothing between
// them but the rings: what the driver reads is what was put, every request ends
// once and in order, and the race detector finds the edges.
func TestGoroutines(t *testing.T) {
	const total = 20000
	const slots, depth = 8, 7
	var eps cq.Endpoints
	var state cq.State
	sqMem, cqMem := heapRing(slots, 256, 3), heapRing(slots, 128, 5)
	sq, err := NewSQ(sqMem, 2, 32)
	if err != nil {
		t.Fatal(err)
	}
	q, err := NewCQ(cqMem, &eps, &state)
	if err != nil {
		t.Fatal(err)
	}
	p := newParty(&eps, &state, 17, depth)

	go func() { // the poster
		data := make([]byte, 8)
		for id := uint64(0); id < total; {
			n := min(p.send.Room(), sq.Space())
			if n == 0 {
				runtime.Gosched()
				continue
			}
			for ; n > 0 && id < total; n-- {
				seq, _ := p.send.Stage(id, cq.OpSend, 8, false)
				native.PutUint64(data, id)
				sq.Put(&cq.SendRequest{WRID: cq.MakeWRID(p.index, cq.SendSide, seq), Op: cq.OpSend, Flags: cq.Inline, Length: 8, Data: data})
				id++
			}
			p.send.Commit()
			sq.Publish()
		}
	}()

	failed := make(chan string, 1)
	go func() { // the driver
		driver := newCompleter(cqMem)
		consumer := load32(sqMem, offConsumer)
		for id := uint64(0); id < total; {
			producer := load32(sqMem, offProducer)
			for consumer != producer {
				used, err := driver.used()
				if err != nil {
					failed <- err.Error()
					return
				}
				if used == slots-1 {
					runtime.Gosched()
					continue
				}
				slot := sqMem[offSlots+int(consumer)*256:]
				if got := native.Uint64(slot[208:]); got != id {
					failed <- "the driver found another request than was put"
					return
				}
				driver.post(&cqe{wrid: native.Uint64(slot), qpn: 17})
				for i := range slot[:256] {
					slot[i] = 0xdb
				}
				consumer = (consumer + 1) & (slots - 1)
				store32(sqMem, offConsumer, consumer)
				driver.publish()
				id++
			}
			runtime.Gosched()
		}
	}()

	var wcs [5]cq.WC
	for next := uint64(0); next < total; {
		select {
		case s := <-failed:
			t.Fatal(s)
		default:
		}
		n, _ := q.Poll(wcs[:])
		for i := range wcs[:n] {
			if wcs[i].ID != next || wcs[i].Status != cq.StatusSuccess {
				t.Fatalf("completion %d is %+v", next, wcs[i])
			}
			next++
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	if state.Stray.Load() != 0 || !q.Empty() || p.send.Outstanding() != 0 {
		t.Errorf("%d stray, %d outstanding, empty %v", state.Stray.Load(), p.send.Outstanding(), q.Empty())
	}
}

// A poller that finds the queue closed leaves the index alone, whatever it has
// read, and its memory may be other memory by then.
func TestClosedBesidePoll(t *testing.T) {
	s := newScene(t, make([]byte, ringBytes(4, 64)), 4, 64, 2)
	s.driver.post(&cqe{wrid: wridSend, qpn: 17})
	s.driver.publish()
	s.state.Set(cq.Closed)
	var wcs [4]cq.WC
	if n, drained := s.q.Poll(wcs[:]); n != 1 || !drained || s.q.Consumed() != 1 {
		t.Errorf("%d completions, drained %v, %d consumed", n, drained, s.q.Consumed())
	}
	if got := load32(s.mem, offConsumer); got != 2 {
		t.Errorf("consumer index %d was stored on a closed queue", got)
	}
	if s.q.Empty() {
		t.Error("a queue that kept a slot says that it gave it back")
	}
	clear(s.mem)
	for range 3 {
		if n, _ := s.q.Poll(wcs[:]); n != 0 {
			t.Errorf("%d completions out of zeros", n)
		}
	}
	if got := load32(s.mem, offConsumer); got != 0 {
		t.Errorf("consumer index %d was stored on a closed queue", got)
	}
}

// Empty from a third goroutine: a ring that always holds something never says
// that it is empty, also when it is a whole lap on between two of its loads.
func TestEmptyBesidePoll(t *testing.T) {
	const slots = 4
	var eps cq.Endpoints
	var state cq.State
	mem := heapRing(slots, 64, 1)
	q, err := NewCQ(mem, &eps, &state)
	if err != nil {
		t.Fatal(err)
	}
	driver := newCompleter(mem)
	p := newParty(&eps, &state, 17, 4)
	add := func() {
		driver.post(&cqe{wrid: p.postRecv(1, 8), qpn: 17})
		driver.publish()
	}
	add()
	var watchers sync.WaitGroup
	stop, started := make(chan struct{}), make(chan struct{})
	for range 2 {
		watchers.Go(func() {
			started <- struct{}{}
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range 1000 {
					if q.Empty() {
						t.Error("a ring with a completion in it says that it is empty")
						return
					}
				}
			}
		})
		<-started
	}
	var wcs [1]cq.WC
	for i := range 40000 {
		add()
		if n, _ := q.Poll(wcs[:]); n != 1 {
			t.Errorf("poll %d: %d completions", i, n)
			break
		}
		if i%1000 == 0 {
			runtime.Gosched()
		}
	}
	close(stop)
	watchers.Wait()
}
