package rxe

// Faults that other projects' soft-RoCE drivers, or completion queues like its,
// had: one test for each kind. The numbers are those of a collection of such
// reports; the addresses are where they are public.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// A word that is shared with the driver and wider than the machine's needs atomics
// that 32-bit machines do not have, or have only where it is aligned. (siw's driver
// did not build there.) Soft-RoCE's words have 32 bits; and what Go programs share
// has types that align themselves, in all packages that share anything.
func TestBug09SharedWordsAreNarrow(t *testing.T) {
	header := reflect.TypeFor[abi.RxeQueueBuf]()
	for name, off := range map[string]uintptr{"ProducerIndex": 128, "ConsumerIndex": 256} {
		f, ok := header.FieldByName(name)
		if !ok || f.Offset != off || f.Type.Size() != 4 {
			t.Errorf("%s: offset %d, %d bytes, want %d and 4", name, f.Offset, f.Type.Size(), off)
		}
	}
	files := 0
	for _, dir := range []string{".", "../cq", "../poll", "../uverbs"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if len(file.Comments) > 0 && strings.HasPrefix(file.Comments[0].List[0].Text, "//go:build amd64 &&") {
				continue // no machine of 32 bits
			}
			ast.Inspect(file, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "atomic" && strings.HasSuffix(s.Sel.Name, "64") && s.Sel.Name != "Uint64" && s.Sel.Name != "Int64" {
					t.Errorf("%s: atomic.%s needs 64-bit alignment, which 32-bit machines do not give to a field: use the type", name, s.Sel.Name)
				}
				return true
			})
		}
	}
	if files < 40 {
		t.Errorf("%d files: is this the module?", files)
	}
}

// A poll that finds nothing, or the end of a batch after it, must not move the
// consumer past the producer. https://github.com/linux-rdma/rdma-core/pull/1512
func TestBug24EmptyPollsMoveNothing(t *testing.T) {
	for _, slots := range []int{2, 4, 8} {
		mem := heapRing(slots, 64, uint32(slots-1)) // it wraps at once
		var eps cq.Endpoints
		var state cq.State
		q, err := NewCQ(mem, &eps, &state)
		if err != nil {
			t.Fatal(err)
		}
		driver, p := newCompleter(mem), newParty(&eps, &state, 17, 4)
		empty := func() {
			t.Helper()
			for _, size := range []int{0, 1, 7} {
				if n, drained := q.Poll(make([]cq.WC, size)); n != 0 || !drained {
					t.Fatalf("%d slots: an empty ring gave %d completions, drained %v", slots, n, drained)
				}
			}
			if c := load32(mem, offConsumer); c != driver.producer {
				t.Fatalf("%d slots: consumer index %d, producer %d", slots, c, driver.producer)
			}
		}
		empty()
		for id := range uint64(3 * slots) {
			driver.post(&cqe{wrid: p.postRecv(id, 8), qpn: 17, opcode: 128, bytes: 1})
			driver.publish()
			if n, drained := q.Poll(nil); n != 0 || drained {
				t.Fatalf("%d slots: no room, and %d completions, drained %v", slots, n, drained)
			}
			var wcs [4]cq.WC
			if n, _ := q.Poll(wcs[:]); n != 1 || wcs[0].ID != id {
				t.Fatalf("%d slots: %d completions, %+v, want request %d", slots, n, wcs[0], id)
			}
			empty()
			// A completion that is dropped counts as read, too.
			driver.post(&cqe{wrid: 1 << 60})
			driver.publish()
			if n, drained := q.Poll(wcs[:]); n != 0 || !drained {
				t.Fatalf("%d slots: a dropped completion: %d, %v", slots, n, drained)
			}
			empty()
		}
	}
}

// Indices without acquire and release let a poller read an entry before it is
// written, or the driver write one before it is read. (Patches to rdma_rxe from
// December 2020 to February 2023.) The driver writes rubbish to each slot as soon as
// it has it, then the entry, then the index.
func TestBug25EntryBeforeIndex(t *testing.T) {
	const slots, total = 4, 8000
	mem := heapRing(slots, 128, 2)
	var eps cq.Endpoints
	var state cq.State
	q, err := NewCQ(mem, &eps, &state)
	if err != nil {
		t.Fatal(err)
	}
	p := newParty(&eps, &state, 17, slots-1)
	// What each entry says follows from its number.
	entry := func(id uint64) (c cqe) {
		return cqe{opcode: 128, bytes: uint32(id * 7), flags: 3, srcQPN: uint32(id) | 1, ex: [4]byte{byte(id >> 8), byte(id), 1, 2}, qpn: 17}
	}
	posted := make(chan uint64, slots)
	var all sync.WaitGroup
	all.Go(func() { // the driver
		driver := newCompleter(mem)
		for id := uint64(0); id < total; {
			used, err := driver.used()
			if err != nil {
				t.Error(err)
				return
			}
			if used == slots-1 {
				runtime.Gosched()
				continue
			}
			slot := mem[offSlots+int(driver.producer)*driver.element:][:driver.element]
			for i := range slot {
				slot[i] = 0xff
			}
			c := entry(id)
			c.wrid = <-posted
			driver.post(&c)
			driver.publish()
			id++
		}
	})
	var wcs [3]cq.WC
	staged := uint64(0)
	for id := uint64(0); id < total; {
		for ; staged < total && p.recv.Room() > 0; staged++ {
			posted <- p.postRecv(staged, 1<<30)
		}
		n, _ := q.Poll(wcs[:])
		for _, w := range wcs[:n] {
			c := entry(id)
			imm, ok := w.Imm()
			if w.ID != id || w.Bytes != c.bytes || w.SrcQPN != c.srcQPN || !ok || imm != uint32(id&0xffff)<<16|0x102 {
				t.Fatalf("completion %d is %+v", id, w)
			}
			id++
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	all.Wait()
	if n := state.Stray.Load(); n != 0 {
		t.Errorf("%d entries were not what the driver wrote", n)
	}
}

// The consumer index must not move while an entry is read: the driver writes to what
// is behind it. (A question asked of mlx5, which has the same order to keep.) The
// call-back of an invalidation comes out of the middle of a batch.
func TestBug36IndexAfterTheLastRead(t *testing.T) {
	s := newScene(t, make([]byte, ringBytes(8, 64)), 8, 64, 5)
	shared := newSharedScene(t, 4, 8)
	looks := 0
	look := func(mem []byte, start uint32) func(uint32) {
		return func(uint32) {
			looks++
			if c := load32(mem, offConsumer); c != start {
				t.Errorf("consumer index %d in the middle of a batch that began at %d", c, start)
			}
		}
	}
	s.eps.Get(sceneOpen).Invalidated = look(s.mem, 5)
	shared.ep[0].Invalidated = look(shared.driver[0].mem, 6)
	for i := range uint64(3) {
		s.driver.post(&cqe{wrid: wridRecv + i, qpn: 17, opcode: 128, flags: 4})
		shared.complete(0, cqe{wrid: shared.post(i, 8), qpn: 17, opcode: 128, flags: 4})
	}
	s.driver.publish()
	for _, c := range []struct {
		q    *CQ
		mem  []byte
		want uint32
	}{{s.q, s.mem, 0}, {shared.q[0], shared.driver[0].mem, 1}} {
		var wcs [8]cq.WC
		if n, _ := c.q.Poll(wcs[:]); n != 3 || load32(c.mem, offConsumer) != c.want {
			t.Errorf("%d completions; consumer index %d, want %d", n, load32(c.mem, offConsumer), c.want)
		}
	}
	if looks != 6 {
		t.Errorf("%d looks, want 6", looks)
	}
}

// On an error only the id, the status, the queue pair and the vendor's code mean
// anything: programs printed, or went by, what stood beside them.
// https://github.com/ofiwg/libfabric/issues/5653
// https://github.com/spdk/spdk/issues/3212
func TestBug40NothingElseOnError(t *testing.T) {
	rubbish := cqe{opcode: 32656, bytes: 32659, vendor: 0x81, ex: [4]byte{1, 2, 3, 4}, srcQPN: 77, flags: ^uint32(0), pkey: 5, slid: 6, sl: 7, pathBits: 8, port: 9}
	for status := uint32(1); status < 300; status++ {
		s := newScene(t, make([]byte, ringBytes(16, 64)), 16, 64, 0)
		shared := newSharedScene(t, 2, 8)
		c := rubbish
		c.qpn, c.status = 17, status
		for _, wrid := range slices.Sorted(maps.Keys(s.posted)) { // an end of a send ends the quiet ones before
			p := s.posted[wrid]
			c.wrid = wrid
			want := cq.WC{ID: p.id, Side: p.side, QPN: 17, Status: cq.Status(status), VendorErr: 0x81}
			if o := s.poll(t, &c); o.n != 1 || o.wc != want {
				t.Fatalf("status %d: %d, %+v, want %+v", status, o.n, o.wc, want)
			}
		}
		c.wrid = shared.post(5, 8)
		shared.complete(0, c)
		var wcs [2]cq.WC
		want := cq.WC{ID: 5, Side: cq.RecvSide, QPN: 17, Status: cq.Status(status), VendorErr: 0x81}
		if n, _ := shared.q[0].Poll(wcs[:]); n != 1 || wcs[0] != want {
			t.Fatalf("status %d on a shared queue: %d, %+v, want %+v", status, n, wcs[0], want)
		}
	}
}

// A write with immediate data ends a receive with the length of the write, which has
// nothing to do with the receive's memory; drivers said 0, or what the receive had.
// https://github.com/linux-rdma/rdma-core/pull/146
func TestBug43LengthOfWriteWithImmediate(t *testing.T) {
	for _, n := range []uint32{0, 1, 100, 4096, 1 << 30} {
		for _, room := range []uint32{0, 64, 1 << 20} {
			for _, shared := range []bool{false, true} {
				s := newSharedScene(t, 4, 8)
				wrid := s.post(1, room)
				if !shared {
					p := newParty(&s.eps, &s.state[0], 30, 4)
					wrid = p.postRecv(1, room)
				}
				qpn := map[bool]uint32{false: 30, true: 17}[shared]
				s.complete(0, cqe{wrid: wrid, qpn: qpn, opcode: 129, bytes: n, flags: 3, ex: [4]byte{0, 0, 0, 9}})
				want := cq.WC{ID: 1, QPN: qpn, Side: cq.RecvSide, Opcode: cq.OpRecvWriteImm, Bytes: n}
				want.SetImm(9)
				var wcs [1]cq.WC
				if k, _ := s.q[0].Poll(wcs[:]); k != 1 || wcs[0] != want {
					t.Errorf("write of %d, receive of %d, shared %v: %d, %+v, want %+v", n, room, shared, k, wcs[0], want)
				}
			}
		}
	}
}

// What a completion was for is known from what was posted, not from the driver's
// opcode, which was the protocol's, or of the wrong queue, or not there.
// https://github.com/linux-rdma/rdma-core/pull/1116
func TestBug45OpcodeIsTheRequests(t *testing.T) {
	driver := []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 127, 128, 129, 130, 255, 1 << 31, ^uint32(0)}
	for op := range sendOps {
		op := cq.Opcode(op)
		if sendOps[op] == sendOps[cq.OpWrite] && op != cq.OpWrite {
			continue // no operation
		}
		for _, says := range driver {
			s := newScene(t, make([]byte, ringBytes(2, 64)), 2, 64, 0)
			wrid, _ := newParty(&s.eps, &s.state, 40, 1).postSend(1, op, 50, false)
			o := s.poll(t, &cqe{wrid: wrid, qpn: 40, opcode: says, bytes: 99, flags: ^uint32(0), ex: [4]byte{1}, srcQPN: 3})
			if want := (cq.WC{ID: 1, QPN: 40, Opcode: op, Bytes: 50}); o.n != 1 || o.wc != want {
				t.Errorf("%v, and the driver says %d: %+v, want %+v", op, says, o.wc, want)
			}
		}
	}
	for _, says := range driver {
		s := newScene(t, make([]byte, ringBytes(2, 64)), 2, 64, 0)
		want := fmt.Sprint(cq.OpRecv)
		if says == 129 {
			want = fmt.Sprint(cq.OpRecvWriteImm)
		}
		if o := s.poll(t, &cqe{wrid: wridRecv, qpn: 17, opcode: says, bytes: 8}); o.n != 1 || fmt.Sprint(o.wc.Opcode) != want || o.wc.Side != cq.RecvSide {
			t.Errorf("a receive, and the driver says %d: %+v, want %s", says, o.wc, want)
		}
	}
}
