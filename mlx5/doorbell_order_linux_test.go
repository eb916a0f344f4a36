// In race builds the record is stored inside of the race detector, where a fault is
// the end of the process.
//
//go:build !race

package mlx5

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// watched is memory whose stores can be caught: a page of its own.
type watched struct {
	name string
	mem  []byte
}

func newWatched(t *testing.T, name string, n int) *watched {
	t.Helper()
	page := os.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, (n+page-1)/page*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return &watched{name, mem}
}

func (w *watched) protect(t *testing.T, prot int) {
	t.Helper()
	if err := syscall.Mprotect(w.mem, prot); err != nil {
		t.Fatal(err)
	}
}

// caught runs f with w read-only. It says whether f stored there, and does not
// return to f then: what f had stored elsewhere by that time is what came before.
func (w *watched) caught(t *testing.T, f func()) (did bool) {
	t.Helper()
	w.protect(t, syscall.PROT_READ)
	defer w.protect(t, syscall.PROT_READ|syscall.PROT_WRITE)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			did = true
		default:
			panic(r)
		}
	}()
	f()
	return false
}

// TestDoorbellOrder finds out in which order Publish stores, by making one place
// after the other read-only: when it stores to the record all requests stand in
// their blocks, when it stores to the register the record does too, and that is all
// there is. On receive queues the record comes last and there is no register.
func TestDoorbellOrder(t *testing.T) {
	for name, bell := range map[string]func([]byte) (*Doorbell, error){"uncached": UncachedDoorbell, "combining": CombiningDoorbell, "BlueFlame": BlueFlame} {
		for _, n := range []int{1, 3} {
			ring, record, register := newWatched(t, "ring", 4096), newWatched(t, "record", 8), newWatched(t, "register", 512)
			size, err := SizeSend(testLimits, RC, 16, 1, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			d, err := bell(register.mem[:512])
			if err != nil {
				t.Fatal(err)
			}
			q, err := NewSQ(SQConfig{Memory: ring.mem[:size.Bytes], Record: record.mem[:8], Doorbell: d, QPN: 0x4a5, Size: size,
				Requests: cq.NewRequests(16, cq.SendSide, 0x4a5, new(cq.State))})
			if err != nil {
				t.Fatal(err)
			}
			put := func() {
				for range n {
					q.Put(&cq.SendRequest{Op: cq.OpSend, Flags: cq.Inline, Data: []byte("payload")})
				}
			}
			none := bytes.Clone(register.mem)
			old := bytes.Clone(record.mem[:8])
			if ring.caught(t, put) != true {
				t.Fatal("Put stored nothing")
			}
			if !bytes.Equal(record.mem[:8], old) || !bytes.Equal(register.mem, none) {
				t.Errorf("%s: Put stored to record or register", name)
			}
			*q = SQ{wqes: q.wqes, qpn: q.qpn, operations: q.operations, maxInline: q.maxInline, record: q.record, bell: q.bell, requests: q.requests}
			put()
			if ring.caught(t, func() { before := *q; q.Publish(); *q = before; register.clear(); record.clear() }) {
				t.Errorf("%s: Publish stores to the ring", name)
			}
			if !record.caught(t, q.Publish) {
				t.Errorf("%s: Publish does not store to the record", name)
			}
			for i := range n {
				if want := fmt.Sprintf("00%04x0a 0004a502 00000008 00000000 80000007 7061796c 6f6164", i); dump(ring.mem[i*64:i*64+27]) != want {
					t.Errorf("%s: when the record is stored request %d is %s", name, i, dump(ring.mem[i*64:i*64+27]))
				}
			}
			if !bytes.Equal(register.mem, none) {
				t.Errorf("%s: the register is stored before the record", name)
			}
			if !register.caught(t, q.Publish) {
				t.Errorf("%s: Publish does not store to the register", name)
			}
			if want := []byte{0, 0, 0, 0, 0, 0, 0, byte(n)}; !bytes.Equal(record.mem[:8], want) {
				t.Errorf("%s: when the register is stored the record is % x", name, record.mem[:8])
			}
		}
	}
}

func (w *watched) clear() { clear(w.mem) }

func TestReceiveOrder(t *testing.T) {
	ring, record := newWatched(t, "ring", 64), newWatched(t, "record", 8)
	size, err := SizeRecv(testLimits, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	q, err := NewRQ(RQConfig{Memory: ring.mem[:size.Bytes], Record: record.mem[:8], Size: size, Requests: cq.NewRequests(4, cq.RecvSide, 1, new(cq.State))})
	if err != nil {
		t.Fatal(err)
	}
	if record.caught(t, func() { q.Put(0, sges[:1]) }) {
		t.Error("Put stores to the record")
	}
	if !record.caught(t, q.Publish) || ring.mem[3] != 0x40 {
		t.Errorf("when the record is stored the receive is %s", dump(ring.mem[:16]))
	}
	if ring.caught(t, q.Publish) {
		t.Error("Publish stores to the ring")
	}

	shared, err := SizeShared(testLimits, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	table := cq.NewSharedRequests(3)
	s, err := NewSRQ(SRQConfig{Memory: ring.mem[:shared.Bytes], Record: record.mem[:8], Size: shared, Requests: table})
	if err != nil {
		t.Fatal(err)
	}
	seq, _ := table.Stage(1, cq.OpRecv, 0, false)
	if record.caught(t, func() { s.Put(uint64(seq), sges[:1]) }) {
		t.Error("Put of a shared queue stores to the record")
	}
	if !record.caught(t, s.Publish) || ring.mem[16+3] != 0x40 {
		t.Errorf("when the record is stored the shared receive is %s", dump(ring.mem[:32]))
	}
}
