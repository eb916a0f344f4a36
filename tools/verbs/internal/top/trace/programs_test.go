//go:build linux

package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/goverbs/goverbs/abi"
)

// Addresses of things in the memory of the tests.
const (
	cqAt     = 0xffff_8880_0001_0000
	deviceAt = 0xffff_8880_0002_0000
	uobjAt   = 0xffff_8880_0003_0000
	queueAt  = 0xffff_8880_0004_0000
	bufferAt = 0xffff_8880_0005_0000
	evQueue  = 0xffff_8880_0006_0000
	fileAt   = 0xffff_8880_0007_0000
	cqeAt    = 0xffff_8880_0008_0000
	eventAt  = 0xffff_8880_0009_0000
	userAt   = 0x7f00_0000_1000
)

// A scene is a soft-RoCE CQ in the memory of a machine.
type scene struct {
	*machine
	o    cqOffsets
	ring ringOffsets
}

func newScene(t *testing.T, kernel string) *scene {
	t.Helper()
	r := storedKernel(t, kernel)
	s := &scene{machine: newMachine(t)}
	var err error
	if s.o, err = r.cq(); err != nil {
		t.Fatal(err)
	}
	if s.ring, err = r.ring(); err != nil {
		t.Fatal(err)
	}
	k := func(base uint64, offset int32) uint64 { return base + uint64(int64(offset)) }
	s.put(k(cqAt, s.o.restrack+s.o.id), 4, 5)
	s.put(k(cqAt, s.o.device), 8, deviceAt)
	s.put(k(deviceAt, s.o.index), 4, 3)
	s.put(k(deviceAt, s.o.driver), 4, uint64(driverRXE))
	s.put(k(cqAt, s.o.entries), 4, 100)
	s.put(k(cqAt, s.o.vector), 4, 1)
	s.put(k(cqAt, s.o.uobject), 8, uobjAt)
	s.put(k(uobjAt, s.o.handle), 8, 0xabcd)
	s.put(k(uobjAt, s.o.eventsRead), 4, 9)
	s.put(k(uobjAt, s.o.errorsRead), 4, 2)
	s.put(k(uobjAt, s.o.pending), 8, k(uobjAt, s.o.pending))
	s.put(k(cqAt, s.ring.queue), 8, queueAt)
	s.put(k(cqAt, s.ring.notify), 1, 2)
	s.put(k(queueAt, s.ring.buffer), 8, bufferAt)
	s.put(k(queueAt, s.ring.mask), 4, 127)
	s.put(k(queueAt, s.ring.producer), 4, 3)
	s.put(bufferAt+bufLog2, 4, 6)
	s.put(bufferAt+bufMask, 4, 127)
	s.put(bufferAt+bufProducer, 4, 3)
	s.put(bufferAt+bufConsumer, 4, 120)
	return s
}

// entryOf reads a map's value.
func entryOf[K, V any](t *testing.T, m *machine, name table, k K) (V, bool) {
	t.Helper()
	var v V
	key, err := binary.Append(nil, binary.LittleEndian, k)
	if err != nil {
		t.Fatal(err)
	}
	b, ok := m.tables[name][string(key)]
	if ok {
		if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, &v); err != nil {
			t.Fatal(err)
		}
	}
	return v, ok
}

func (m *machine) number(i uint32) uint64 {
	return binary.LittleEndian.Uint64(m.tables[state][string(binary.LittleEndian.AppendUint32(nil, i))])
}

// everyWay runs a test with each kernel's offsets, hook and architecture.
func everyWay(t *testing.T, f func(t *testing.T, s *scene, h hook, r registers)) {
	for _, kernel := range []string{"6.1", "6.12"} {
		for arch, r := range registersOf {
			for _, h := range []hook{kprobe, fentry} {
				t.Run(fmt.Sprintf("%s %s %v", kernel, arch, h), func(t *testing.T) { f(t, newScene(t, kernel), h, r) })
			}
		}
	}
}

var theCQ = CQID{DeviceIndex: 3, ResID: 5}

func (s *scene) pull(h hook, r registers, ring *ringOffsets) {
	g := pullGroup(&s.o, 77, ring)
	s.call(g.probes(h)[0], h, r, 0, 0x1234, 1, cqAt+uint64(s.o.restrack), 0)
}

func TestPull(t *testing.T) {
	everyWay(t, func(t *testing.T, s *scene, h hook, r registers) {
		k := func(base uint64, offset int32) uint64 { return base + uint64(int64(offset)) }
		look := func() (CQ, bool) {
			v, ok := entryOf[CQID, snapshot](t, s.machine, snapshots, theCQ)
			return v.cq(s.o.pending), ok
		}
		s.thread = 78 << 32
		s.pull(h, r, &s.ring)
		if _, ok := look(); ok || s.number(statePulls) != 0 {
			t.Fatal("the dump of another process was heeded")
		}
		s.thread = 77<<32 | 1
		s.pull(h, r, &s.ring)
		q, ok := look()
		if !ok || s.number(statePulls) != 1 || q.Entries != 100 || q.Vector != 1 || q.Driver != driverRXE {
			t.Fatalf("%v, %+v", ok, q)
		}
		if u := q.User; u == nil || *u != (UserCQ{Handle: 0xabcd, EventsRead: 9, ErrorsRead: 2}) {
			t.Errorf("%+v", u)
		}
		if g := q.Ring; g == nil || *g != (Ring{Occupied: 11, Usable: 127, Produced: 3, Armed: ArmedNext}) {
			t.Errorf("%+v", g)
		}

		s.put(k(uobjAt, s.o.pending), 8, 0xffff_8880_dead_0000)
		s.put(k(cqAt, s.ring.notify), 1, 0)
		s.pull(h, r, &s.ring)
		if q, _ := look(); !q.User.Pending || q.Ring.Armed != NotArmed {
			t.Errorf("an event waits: %+v, %+v", q.User, q.Ring)
		}

		s.pull(h, r, nil)
		if q, _ := look(); q.Ring != nil || q.User == nil {
			t.Errorf("without offsets for rings: %+v", q)
		}

		// Garbage where the queue's address should be, at each step.
		for _, at := range []uint64{k(cqAt, s.ring.queue), k(queueAt, s.ring.buffer)} {
			old, _ := s.at(at, 8)
			s.put(at, 8, 0xdead_beef_0000_0001)
			s.pull(h, r, &s.ring)
			if q, ok := look(); !ok || q.Ring != nil || q.User == nil {
				t.Errorf("with garbage at %#x: %v %+v", at, ok, q)
			}
			s.memory[at] = old
		}

		s.put(k(deviceAt, s.o.driver), 4, uint64(abi.RDMA_DRIVER_MLX5))
		s.put(k(cqAt, s.o.uobject), 8, 0)
		s.pull(h, r, &s.ring)
		if q, _ := look(); q.Ring != nil || q.User != nil || q.Driver != uint32(abi.RDMA_DRIVER_MLX5) {
			t.Errorf("a CQ of the kernel on mlx5: %+v", q)
		}

		clear(s.tables[snapshots])
		s.put(k(cqAt, s.o.device), 8, 0)
		s.pull(h, r, &s.ring)
		if n := len(s.tables[snapshots]); n != 0 {
			t.Errorf("%d CQs without a device", n)
		}
	})
}

// Without room, a loss is counted.
func TestNoRoom(t *testing.T) {
	s := newScene(t, "6.12")
	for i := range uint64(roomCQs) {
		s.tables[snapshots][string(binary.LittleEndian.AppendUint64(nil, i|1<<40))] = make([]byte, sizeOf[snapshot]())
	}
	s.pull(kprobe, registersOf["amd64"], &s.ring)
	if s.number(lostPulls) != 1 || len(s.tables[snapshots]) != roomCQs {
		t.Errorf("%d lost, %d kept", s.number(lostPulls), len(s.tables[snapshots]))
	}
	for i := range uint64(roomErrors) {
		s.tables[failures][string(binary.LittleEndian.AppendUint64(nil, i|1<<40))] = make([]byte, 8)
	}
	s.put(eventAt+uint64(s.o.errorOf), 8, cqAt)
	s.call(errorsGroup(&s.o).probes(kprobe)[0], kprobe, registersOf["amd64"], 0, eventAt, 0)
	if s.number(lostCounters) != 1 {
		t.Errorf("%d counters lost", s.number(lostCounters))
	}
}

func TestCQError(t *testing.T) {
	everyWay(t, func(t *testing.T, s *scene, h hook, r registers) {
		s.put(eventAt+uint64(s.o.errorOf), 8, cqAt)
		p := errorsGroup(&s.o).probes(h)[0]
		for range 3 {
			s.call(p, h, r, 0, eventAt, 0)
		}
		if n, ok := entryOf[CQID, uint64](t, s.machine, failures, theCQ); !ok || n != 3 {
			t.Errorf("%d, %v", n, ok)
		}
		s.put(eventAt+uint64(s.o.errorOf), 8, 0x11)
		s.call(p, h, r, 0, eventAt, 0)
		s.call(p, h, r, 0, 0, 0)
		if n := len(s.tables[failures]); n != 1 {
			t.Errorf("%d CQs with errors after garbage", n)
		}
	})
}

// An event is counted when it is made, and timed until it has been read.
func TestEventAndReader(t *testing.T) {
	everyWay(t, func(t *testing.T, s *scene, h hook, r registers) {
		named := map[string]probe{}
		for _, p := range eventsGroup(&s.o).probes(h) {
			named[p.name] = p
		}
		s.put(fileAt+uint64(s.o.fileData), 8, evQueue-uint64(s.o.evQueue))
		s.put(userAt, 8, 0xabcd)
		made := func(queue uint64) { s.call(named["verbs_event"], h, r, 0, cqAt, queue) }
		read := func(result int64) {
			if p, ok := named["verbs_read_in"]; ok {
				s.call(p, h, r, 0, fileAt, userAt, 8, 0)
			}
			s.call(named["verbs_read"], h, r, uint64(result), fileAt, userAt, 8, 0)
		}
		counts := func() eventCounts { c, _ := entryOf[CQID, eventCounts](t, s.machine, events, theCQ); return c }

		read(8) // nothing was made
		made(0) // no channel
		if len(s.tables[events])+len(s.tables[stamps]) != 0 {
			t.Fatalf("%v, %v", s.tables[events], s.tables[stamps])
		}
		s.clock = 5000
		made(evQueue)
		read(-11) // EAGAIN
		if c := counts(); c.Count != 1 || c.N != 0 || len(s.tables[stamps]) != 1 {
			t.Fatalf("%+v", c)
		}
		s.clock += 1000
		read(8)
		if c := counts(); c.N != 1 || c.Total != 1000 || c.Max != 1000 || c.Log2[9] != 1 || len(s.tables[stamps]) != 0 {
			t.Fatalf("%+v", c)
		}
		made(evQueue)
		s.clock += 7
		made(evQueue) // the same CQ again before it was read
		s.clock += 100
		read(8)
		if c := counts(); c.Count != 3 || c.N != 2 || c.Total != 1100 || c.Log2[6] != 1 {
			t.Fatalf("%+v", c)
		}
		s.put(userAt, 8, 0xbad)
		made(evQueue)
		read(8) // of another CQ on the channel
		delete(s.memory, userAt)
		read(8) // unreadable
		if c := counts(); c.Count != 4 || c.N != 2 {
			t.Fatalf("%+v", c)
		}
		if n := len(s.tables[readers]); n != 0 {
			t.Errorf("%d readers left", n)
		}
	})
}

// The magnitude of a time is the number of its highest bit, up to 31.
func TestMagnitude(t *testing.T) {
	values := []uint64{0, ^uint64(0), 1<<32 - 1, 1 << 31, 1<<31 - 1}
	for i := range 64 {
		values = append(values, 1<<i, 1<<i+1, 1<<i-1)
	}
	for _, v := range values {
		m := newMachine(t)
		e := newEmitter(kprobe, registersOf["amd64"])
		e.add(asm.LoadMem(asm.R7, asm.R6, 0, asm.DWord))
		e.magnitude(asm.R2, asm.R7)
		e.slot(asm.R1, -8)
		e.add(asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord))
		m.ctx = binary.LittleEndian.AppendUint64(nil, v)
		if err := m.run(e.finish()); err != nil {
			t.Fatal(err)
		}
		want := uint64(min(31, max(0, bits.Len64(v)-1)))
		if got := binary.LittleEndian.Uint64(m.stack[504:]); got != want {
			t.Errorf("%#x: %d, want %d", v, got, want)
		}
	}
}

func TestPosts(t *testing.T) {
	everyWay(t, func(t *testing.T, s *scene, h hook, r registers) {
		post := func(ring *ringOffsets, status uint64) {
			s.put(cqeAt+8, 4, status)
			s.call(everyCQEGroup(&s.o, ring).probes(h)[0], h, r, 0, cqAt, cqeAt, 0)
		}
		counts := func() postCounts { c, _ := entryOf[CQID, postCounts](t, s.machine, posts, theCQ); return c }
		post(&s.ring, 0)
		if c := counts(); c.CQEs != 1 || c.ByStatus[0] != 1 || c.HighWater != 12 || c.Dropped != 0 {
			t.Fatalf("%+v", c)
		}
		post(&s.ring, 10)
		post(&s.ring, 0xffff_ffff)
		post(&s.ring, 31)
		post(&s.ring, 32)
		if c := counts(); c.CQEs != 5 || c.ByStatus[10] != 1 || c.ByStatus[31] != 3 || c.HighWater != 12 {
			t.Fatalf("%+v", c)
		}
		s.put(bufferAt+bufConsumer, 4, 4) // full: 127 of 127
		post(&s.ring, 0)
		if c := counts(); c.Dropped != 1 || c.HighWater != 127 || c.CQEs != 6 {
			t.Fatalf("%+v", c)
		}
		// An index that the process made up stays within the ring.
		s.put(bufferAt+bufConsumer, 4, 0xffff_ff00)
		post(&s.ring, 0)
		if c := counts(); c.HighWater != 127 || c.CQEs != 7 {
			t.Fatalf("%+v", c)
		}
		guess := s.ring
		guess.guessed, guess.producer = true, -1
		post(&guess, 0)
		s.put(bufferAt+bufMask, 4, 63) // does not look like a ring
		s.put(bufferAt+bufConsumer, 4, 4)
		post(&guess, 0)
		if c := counts(); c.CQEs != 9 || c.Dropped != 1 {
			t.Fatalf("%+v", c)
		}
		delete(s.memory, cqeAt+8)
		s.call(everyCQEGroup(&s.o, &guess).probes(h)[0], h, r, 0, cqAt, cqeAt, 0)
		if c := counts(); c.CQEs != 10 || c.ByStatus[31] != 4 {
			t.Fatalf("%+v", c)
		}
	})
}

func TestCalls(t *testing.T) {
	everyWay(t, func(t *testing.T, s *scene, h hook, r registers) {
		named := map[string]probe{}
		for _, p := range syscallsGroup().probes(h) {
			named[p.name] = p
		}
		header := func(object, method, attrs uint64, ids ...uint64) {
			s.put(userAt, 8, (24+16*attrs)&0xffff|object<<16|method<<32|attrs<<48)
			s.put(userAt+8, 8, 0)
			s.put(userAt+16, 8, uint64(driverRXE))
			for i := range uint64(attrsShown) {
				s.put(userAt+24+16*i, 8, 0)
				s.put(userAt+32+16*i, 8, 0)
				if i < uint64(len(ids)) {
					s.put(userAt+24+16*i, 8, ids[i])
					s.put(userAt+32+16*i, 8, 0x17)
				}
			}
		}
		ioctl := func(took uint64, result int64) {
			s.call(named["verbs_ioctl_in"], h, r, 0, fileAt, 1, userAt)
			s.clock += took
			s.call(named["verbs_ioctl"], h, r, uint64(result), fileAt, 1, userAt)
		}
		want := func(via Via, code, driver uint32, counts callCounts) {
			t.Helper()
			copy(counts.Comm[:], "a name")
			got, ok := entryOf[callKey, callCounts](t, s.machine, calls, callKey{77, uint32(via), code, driver})
			if !ok || got != counts {
				t.Errorf("%v %#x: %v %+v, want %+v", via, code, ok, got, counts)
			}
		}
		rxe := driverRXE
		header(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, 2)
		ioctl(100, 0)
		ioctl(50, -22)
		want(Ioctl, abi.UVERBS_OBJECT_CQ|abi.UVERBS_METHOD_CQ_CREATE<<16, rxe, callCounts{Count: 2, Failed: 1, Total: 150, Max: 100})

		header(0, 0, 3, 0, 1, abi.UVERBS_ATTR_WRITE_CMD)
		ioctl(10, 0)
		want(InvokeWrite, 0x17, rxe, callCounts{Count: 1, Total: 10, Max: 10})
		header(0, 0, 2, 0, 1, abi.UVERBS_ATTR_WRITE_CMD) // behind the end
		ioctl(10, 0)
		want(InvokeWrite, unreadable, rxe, callCounts{Count: 1, Total: 10, Max: 10})
		header(0, 0, 0xffff, 0, 1, 0, 0)
		ioctl(10, 0)
		want(InvokeWrite, unreadable, rxe, callCounts{Count: 2, Total: 20, Max: 10})

		s.put(userAt, 8, 28)
		write := func() {
			s.call(named["verbs_write_in"], h, r, 0, fileAt, userAt, 32, 0)
			s.clock += 3
			s.call(named["verbs_write"], h, r, 32, fileAt, userAt, 32, 0)
		}
		write()
		want(Write, abi.IB_USER_VERBS_CMD_POST_SEND, 0, callCounts{Count: 1, Total: 3, Max: 3})
		clear(s.memory)
		write()
		want(Write, unreadable, 0, callCounts{Count: 1, Total: 3, Max: 3})
		ioctl(3, 0)
		want(Ioctl, unreadable, 0, callCounts{Count: 1, Total: 3, Max: 3})
		if n := len(s.tables[running]); n != 0 {
			t.Errorf("%d calls have not ended", n)
		}
		s.call(named["verbs_ioctl"], h, r, 0, fileAt, 1, userAt) // of a call from before
		want(Ioctl, unreadable, 0, callCounts{Count: 1, Total: 3, Max: 3})
	})
}

// Each program is one that the library can encode, for the kernel's limits:
// names, jumps, maps.
func TestPrograms(t *testing.T) {
	names := map[string]bool{}
	for _, g := range everyGroup() {
		for h, r := range map[hook]registers{kprobe: registersOf["arm64"], fentry: registersOf["amd64"]} {
			spec := g.spec(h, r)
			for name, p := range spec.Programs {
				names[name] = true
				if len(name) > 15 {
					t.Errorf("%s is cut by the kernel", name)
				}
				for _, in := range p.Instructions {
					if ref := in.Reference(); in.IsLoadFromMap() && spec.Maps[ref] == nil {
						t.Errorf("%s wants a map %q", name, ref)
					}
				}
				if n := len(p.Instructions); n > 400 {
					t.Errorf("%s has %d instructions", name, n)
				}
			}
			for name, m := range spec.Maps {
				if len(m.Name) > 15 || m.Name != "verbs_"+name {
					t.Errorf("map %s is called %s", name, m.Name)
				}
			}
		}
	}
	if len(names) != 10 {
		t.Errorf("%d programs: %v", len(names), names)
	}
}
