package uverbs_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// writeTo has the pair's a write n bytes of its region to a place, and returns the
// completion.
func (p *pair) writeTo(t *testing.T, to uverbs.Remote, n int) uverbs.WC {
	t.Helper()
	p.a.SendQueue().Write(1, to.At(0), p.mr.Span(0, n))
	return p.flush(t, p.a, 1)[0]
}

// otherMR is another region of the pair's memory, in a PD of choice.
func (p *pair) otherMR(t *testing.T, pd *uverbs.PD) *uverbs.MR {
	t.Helper()
	mr, err := pd.Register(p.mem.Bytes()[64<<10:128<<10], uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	return mr
}

// reregister changes a region. Where the driver cannot, the region has to be as
// before, and the test ends.
func (p *pair) reregister(t *testing.T, mr *uverbs.MR, change uverbs.MRChange) {
	t.Helper()
	before := mr.Remote()
	err := mr.Reregister(change)
	if err == nil {
		return
	}
	if !errors.Is(err, uverbs.ErrNotSupported) || !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatal(err)
	}
	if mr.Remote() != before || mr.PD() != p.pd || mr.Access() != uverbs.LocalWrite|uverbs.RemoteWrite {
		t.Errorf("the region is %+v with %v, was %+v", mr.Remote(), mr.Access(), before)
	}
	if w := p.writeTo(t, mr.Remote(), 64); w.Err() != nil {
		t.Errorf("a write after the refusal: %v", w.Err())
	}
	t.Skip("needs kernel >= 6.5: soft-RoCE changes regions")
}

// A peer whose right to write was taken away, by a change of the region's rights
// or of its protection domain, is told so; one that keeps it goes on.
func TestGuestReregister(t *testing.T) {
	t.Run("access", func(t *testing.T) {
		p := newPair(t, false)
		mr := p.otherMR(t, p.pd)
		if w := p.writeTo(t, mr.Remote(), 64); w.Err() != nil {
			t.Fatal(w.Err())
		}
		p.reregister(t, mr, uverbs.ChangeAccess(uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead))
		copy(p.mem.Bytes(), "still allowed")
		if w := p.writeTo(t, mr.Remote(), 13); w.Err() != nil || string(p.mem.Bytes()[64<<10:][:13]) != "still allowed" {
			t.Fatalf("with the right to read too: %v, %q", w.Err(), p.mem.Bytes()[64<<10:][:13])
		}
		p.a.SendQueue().Read(2, p.mr.Span(4096, 13), mr.Remote().At(0))
		if w := p.flush(t, p.a, 1)[0]; w.Err() != nil || string(p.mem.Bytes()[4096:][:13]) != "still allowed" {
			t.Fatalf("read: %v, %q", w.Err(), p.mem.Bytes()[4096:][:13])
		}
		to := mr.Remote() // soft-RoCE keeps the keys
		if err := mr.Reregister(uverbs.ChangeAccess(uverbs.LocalWrite)); err != nil {
			t.Fatal(err)
		}
		copy(p.mem.Bytes(), "not any more!")
		if w := p.writeTo(t, to, 13); w.Status != uverbs.StatusRemoteAccess {
			t.Errorf("without the right: %v", w.Status)
		}
		if got := string(p.mem.Bytes()[64<<10:][:13]); got != "still allowed" {
			t.Errorf("the memory is %q", got)
		}
	})
	t.Run("PD", func(t *testing.T) {
		p := newPair(t, false)
		mr := p.otherMR(t, p.pd)
		other, err := p.dev.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		p.reregister(t, mr, uverbs.ChangePD(other))
		if err := other.Close(); !errors.Is(err, uverbs.ErrInUse) {
			t.Errorf("close of the new PD: %v", err)
		}
		if w := p.writeTo(t, mr.Remote(), 64); w.Status != uverbs.StatusRemoteAccess {
			t.Errorf("of another PD than the queue pair: %v", w.Status)
		}
	})
	t.Run("PD and back", func(t *testing.T) {
		p := newPair(t, false)
		mr := p.otherMR(t, p.pd)
		other, err := p.dev.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		p.reregister(t, mr, uverbs.ChangePD(other))
		if err := mr.Reregister(uverbs.ChangePD(p.pd), uverbs.ChangeAccess(uverbs.LocalWrite|uverbs.RemoteWrite)); err != nil {
			t.Fatal(err)
		}
		// The kernel counts what stands on a PD as well.
		if err := other.Close(); err != nil {
			t.Errorf("close of the PD that it left: %v", err)
		}
		copy(p.mem.Bytes(), "home again")
		if w := p.writeTo(t, mr.Remote(), 10); w.Err() != nil || string(p.mem.Bytes()[64<<10:][:10]) != "home again" {
			t.Errorf("back in the queue pair's PD: %v, %q", w.Err(), p.mem.Bytes()[64<<10:][:10])
		}
	})
}

// Soft-RoCE does not change the memory of a region in any kernel, and leaves all
// as it was. A ConnectX changes it, and the old memory can go.
func TestGuestReregisterMemory(t *testing.T) {
	p := newPair(t, false)
	mr := p.otherMR(t, p.pd)
	before := mr.Remote()
	mem, err := uverbs.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	if factsOf(t, p.dev).changesMemory {
		if err := mr.Reregister(uverbs.ChangeMemory(mem.Bytes())); err != nil {
			t.Fatal(err)
		}
		if r := mr.Remote(); r.Length != 4096 || r.Addr == before.Addr {
			t.Errorf("the region is %+v, was %+v", r, before)
		}
		if err := mem.Close(); !errors.Is(err, uverbs.ErrInUse) {
			t.Errorf("close of the memory that it is of now: %v", err)
		}
		copy(p.mem.Bytes(), "to the other memory")
		if w := p.writeTo(t, mr.Remote(), 19); w.Err() != nil || string(mem.Bytes()[:19]) != "to the other memory" {
			t.Errorf("a write afterwards: %v, %q", w.Err(), mem.Bytes()[:19])
		}
		if w := p.writeTo(t, before, 19); w.Status != uverbs.StatusRemoteAccess {
			t.Errorf("a write to where it was before: %v", w.Status)
		}
		if err := errors.Join(mr.Close(), mem.Close()); err != nil {
			t.Error(err)
		}
		return
	}
	if err := mr.Reregister(uverbs.ChangeMemory(mem.Bytes())); !errors.Is(err, uverbs.ErrNotSupported) || !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatalf("other memory: %v", err)
	}
	if mr.Remote() != before {
		t.Errorf("the region is %+v, was %+v", mr.Remote(), before)
	}
	if err := mem.Close(); err != nil {
		t.Errorf("close of the memory that it did not become of: %v", err)
	}
	if w := p.writeTo(t, mr.Remote(), 64); w.Err() != nil {
		t.Errorf("a write afterwards: %v", w.Err())
	}
}

// Soft-RoCE imports no dma-bufs; before Linux 5.12 nobody does, nor does the kernel in
// software.
func TestGuestDMABuf(t *testing.T) {
	p := newPair(t, false)
	fd, err := unix.MemfdCreate("no dma-buf", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	kernel := kernelFactsOf(t, p.dev)
	want, says := kernel.dmabuf, kernel.dmabufSays
	mr, err := p.pd.RegisterDMABuf(fd, 0, 4096, 0, uverbs.LocalWrite)
	if mr != nil || !errors.Is(err, want) || !errors.Is(err, uverbs.ErrNotSupported) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v; want %v and %q", err, want, says)
	}
	if w := p.writeTo(t, p.mr.Remote(), 64); w.Err() != nil {
		t.Errorf("a write after the refusal: %v", w.Err())
	}
}

// Every kernel takes rights that it calls optional, whether it heeds them or not.
func TestGuestRelaxedOrdering(t *testing.T) {
	p := newPair(t, false)
	mr, err := p.pd.Register(p.mem.Bytes(), allAccess|uverbs.RelaxedOrdering)
	if err != nil {
		t.Fatal(err)
	}
	if mr.Access() != allAccess|uverbs.RelaxedOrdering {
		t.Errorf("access %v", mr.Access())
	}
	if w := p.writeTo(t, mr.Remote(), 64); w.Err() != nil {
		t.Error(w.Err())
	}
}

// Registered memory of the Go heap stays where the device writes to, whatever the
// collector does and though the program keeps only the region; read-only memory
// cannot be registered for writing.
func TestGuestHeapMemory(t *testing.T) {
	p := newPair(t, false)
	const n = 300
	mr := func() *uverbs.MR {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i * 7)
		}
		mr, err := p.pd.Register(b, allAccess)
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}()
	for round := range 50 {
		clear(p.mem.Bytes()[:2*n])
		runtime.GC()
		for range 100 {
			junk := make([]byte, n) // of the same size class
			for i := range junk {
				junk[i] = 0xee
			}
			runtime.KeepAlive(junk)
		}
		p.a.SendQueue().Read(1, p.mr.Span(0, n), mr.Remote().At(0))
		if w := p.flush(t, p.a, 1)[0]; w.Err() != nil {
			t.Fatal(w.Err())
		}
		for i, c := range p.mem.Bytes()[:n] {
			if c != byte(i*7+round) {
				t.Fatalf("round %d: byte %d is %#x, want %#x", round, i, c, byte(i*7+round))
			}
			p.mem.Bytes()[i]++
		}
		if w := p.writeTo(t, mr.Remote(), n); w.Err() != nil {
			t.Fatal(w.Err())
		}
	}
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	switch ro, err := p.pd.Register(b, uverbs.LocalWrite|uverbs.RemoteWrite); {
	case !simulated():
		if !errors.Is(err, syscall.EFAULT) {
			t.Errorf("read-only memory with LocalWrite: %v", err)
		}
	case err != nil: // nobody looks at pages there
		t.Fatal(err)
	default:
		want := factsOf(t, p.dev).wc(uverbs.WC{ID: 1, QPN: p.a.QPN(), Status: uverbs.StatusRemoteAccess})
		if w := p.writeTo(t, ro.Remote(), 64); w != want || b[0] != 0 {
			t.Errorf("a write to read-only memory: %+v, want %+v; there is %#x", w, want, b[0])
		}
	}
}
