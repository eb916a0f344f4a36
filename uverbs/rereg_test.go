package uverbs

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// changesAll is a device whose driver changes all of a region.
var changesAll = fakekernel.Device{Rereg: reregMemory | reregPD | reregAccess}

// onceWritten sends 8 bytes by RDMA write from one place to another, and returns
// the completion.
func (r *rig) onceWritten(t *testing.T, to Remote, from Span) WC {
	t.Helper()
	r.a.SendQueue().Write(1, to.At(0), from)
	if err := r.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	return wait(t, r.sendQ, 1)[0]
}

// memoryFor is memory that is closed at the end of the test.
func memoryFor(t *testing.T, r *rig, n int) *Memory {
	t.Helper()
	m, err := allocOn(r.k, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return m
}

func register(t *testing.T, pd *PD, b []byte, access Access) *MR {
	t.Helper()
	mr, err := pd.Register(b, access)
	if err != nil {
		t.Fatal(err)
	}
	return mr
}

// regionsOn counts the memory regions that stand on a PD.
func regionsOn(pd *PD) int {
	pd.dev.mu.Lock()
	defer pd.dev.mu.Unlock()
	return pd.users[kindMR]
}

// Taking rights away from a region takes them away from who has its key.
func TestReregisterAccess(t *testing.T) {
	r := newRig(t, false, fakekernel.Device{Rereg: reregPD | reregAccess})
	if w := r.onceWritten(t, r.mr.Remote(), r.mr.Span(8, 8)); w.Status != StatusSuccess {
		t.Fatalf("before: %+v", w)
	}
	key := r.mr.RKey()
	if err := r.mr.Reregister(ChangeAccess(RemoteRead)); err != nil {
		t.Fatal(err)
	}
	if a := r.mr.Access(); a != RemoteRead || r.mr.RKey() != key {
		t.Errorf("access %v, key %#x; was %#x", a, r.mr.RKey(), key)
	}
	r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
	says(t, "receive into it", r.a.RecvQueue().Flush(), ErrInvalid, "LocalWrite")
	r.a.SendQueue().Read(1, r.mr.Span(0, 8), r.mr.Remote().At(0))
	says(t, "read into it", r.a.SendQueue().Flush(), ErrInvalid, "LocalWrite")
	// What was registered for writing can be written to again.
	if err := r.mr.Reregister(ChangeAccess(LocalWrite | RemoteWrite)); err != nil {
		t.Fatal(err)
	}
	if w := r.onceWritten(t, r.mr.Remote(), r.mr.Span(8, 8)); w.Status != StatusSuccess {
		t.Errorf("with the right given back: %+v", w)
	}
	if err := r.mr.Reregister(ChangeAccess(RemoteRead)); err != nil {
		t.Fatal(err)
	}
	if w := r.onceWritten(t, r.mr.Remote(), r.mr.Span(8, 8)); w.Status != StatusRemoteAccess {
		t.Errorf("without the right: %+v", w)
	}
}

func TestReregisterPD(t *testing.T) {
	r := newRig(t, false, changesAll)
	other, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	mr := register(t, other, r.mem.Bytes()[4096:8192], LocalWrite|RemoteWrite)
	says(t, "close its PD", other.Close(), ErrInUse, "1 MR")
	if err := mr.Reregister(ChangePD(r.pd)); err != nil {
		t.Fatal(err)
	}
	if mr.PD() != r.pd {
		t.Error("the region says it is of its old PD")
	}
	copy(r.mem.Bytes(), "a new pd")
	if w := r.onceWritten(t, mr.Remote(), r.mr.Span(0, 8)); w.Status != StatusSuccess || string(r.mem.Bytes()[4096:4104]) != "a new pd" {
		t.Errorf("a region that was moved to the queue pair's PD: %+v, %q", w, r.mem.Bytes()[4096:4104])
	}
	if err := other.Close(); err != nil {
		t.Errorf("close the PD that it left: %v", err)
	}
	third, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	if err := mr.Reregister(ChangePD(third)); err != nil {
		t.Fatal(err)
	}
	if w := r.onceWritten(t, mr.Remote(), r.mr.Span(0, 8)); w.Status != StatusRemoteAccess {
		t.Errorf("a region that was moved away from the queue pair's PD: %+v", w)
	}
	says(t, "close its new PD", third.Close(), ErrInUse, "1 MR")
	if n := regionsOn(r.pd); n != 1 {
		t.Errorf("%d MRs stand on its old PD, want 1", n)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
}

// Spans and the description for peers are of the new memory at once; the old
// memory is free.
func TestReregisterMemory(t *testing.T) {
	r := newRig(t, false, changesAll)
	first, second := memoryFor(t, r, 8192), memoryFor(t, r, 16384)
	mr := register(t, r.pd, first.Bytes(), LocalWrite)
	span, old := mr.Span(8100, 8), mr.Remote()
	if err := mr.Reregister(ChangeMemory(second.Bytes()), ChangeAccess(LocalWrite|RemoteWrite)); err != nil {
		t.Fatal(err)
	}
	if mr.Len() != 16384 || mr.LKey() == old.RKey || mr.Remote().Length != 16384 || mr.Remote().Addr != address(second.Bytes()) || mr.RKey() != mr.LKey() {
		t.Errorf("length %d, keys %#x and %#x, %+v", mr.Len(), mr.LKey(), mr.RKey(), mr.Remote())
	}
	copy(second.Bytes()[8100:], "moved on")
	if w := r.onceWritten(t, r.mr.Remote(), span); w.Status != StatusSuccess || string(r.mem.Bytes()[:8]) != "moved on" {
		t.Errorf("an old span: %+v, %q", w, r.mem.Bytes()[:8])
	}
	if w := r.onceWritten(t, mr.Remote(), r.mr.Span(0, 8)); w.Status != StatusSuccess || string(second.Bytes()[:8]) != "moved on" {
		t.Errorf("written by a peer: %+v, %q", w, second.Bytes()[:8])
	}
	if err := first.Close(); err != nil {
		t.Errorf("close the old memory: %v", err)
	}
	says(t, "close the new memory", second.Close(), ErrInUse, "1 MR")
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
	if err := second.Close(); err != nil {
		t.Errorf("close the new memory after the region: %v", err)
	}
}

// The collector may have the memory that a region was of, not that which it is
// of.
func TestReregisterHeap(t *testing.T) {
	r := newRig(t, false, changesAll)
	var old, now weak.Pointer[byte]
	mr := func() *MR {
		b, c := make([]byte, 1<<16), make([]byte, 1<<16)
		old, now = weak.Make(&b[0]), weak.Make(&c[0])
		mr := register(t, r.pd, b, LocalWrite)
		if err := mr.Reregister(ChangeMemory(c)); err != nil {
			t.Fatal(err)
		}
		return mr
	}()
	collected(t, "the old memory", old)
	if now.Value() == nil {
		t.Error("the new memory was collected")
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	collected(t, "the memory of the closed region", now)
	runtime.KeepAlive(mr)
}

// collected waits until the collector has taken what p points to.
func collected(t *testing.T, what string, p weak.Pointer[byte]) {
	t.Helper()
	for end := time.Now().Add(patience); p.Value() != nil; {
		if time.Now().After(end) {
			t.Errorf("%s is not collected", what)
			return
		}
		runtime.GC()
	}
}

// A driver that cannot do it leaves all as it was.
func TestReregisterNotSupported(t *testing.T) {
	for _, device := range []fakekernel.Device{
		{},
		{Rereg: reregPD | reregAccess},
		{Rereg: changesAll.Rereg, LacksCommands: []uint32{abi.IB_USER_VERBS_CMD_REREG_MR}},
	} {
		r := newRig(t, false, device)
		other, err := r.dev.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		mem := memoryFor(t, r, 4096)
		before := *r.mr.now.Load()
		err = r.mr.Reregister(ChangeMemory(mem.Bytes()), ChangePD(other), ChangeAccess(0))
		says(t, "Reregister", err, ErrNotSupported, "6.12", "as before")
		if now := *r.mr.now.Load(); now.lkey != before.lkey || now.access != before.access || now.length != before.length || r.mr.PD() != r.pd {
			t.Errorf("the region is %+v, was %+v", now, before)
		}
		if w := r.onceWritten(t, r.mr.Remote(), r.mr.Span(8, 8)); w.Status != StatusSuccess {
			t.Errorf("a write afterwards: %+v", w)
		}
		for what, c := range map[string]interface{ Close() error }{"memory": mem, "PD": other} {
			if err := c.Close(); err != nil {
				t.Errorf("close the %s that it did not move to: %v", what, err)
			}
		}
	}
}

// After an error of which nobody knows what it did, the region can only be
// closed, and all that it may be of stays.
func TestReregisterLost(t *testing.T) {
	r := newRig(t, false, changesAll)
	other, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	first, second := memoryFor(t, r, 4096), memoryFor(t, r, 4096)
	mr := register(t, r.pd, first.Bytes(), LocalWrite)
	r.k.FailAt(fakekernel.Ioctl, 1, syscall.ENOMEM)
	err = mr.Reregister(ChangeMemory(second.Bytes()), ChangePD(other))
	says(t, "Reregister", err, syscall.ENOMEM, "4096 bytes asked", "not known: close it")
	r.a.SendQueue().Send(1, mr.Span(0, 1))
	says(t, "a span of it", r.a.SendQueue().Flush(), ErrState, "close it")
	says(t, "Reregister again", mr.Reregister(ChangeAccess(0)), ErrState, "rxe0", "close it")
	says(t, "close the old memory", first.Close(), ErrInUse)
	says(t, "close the new memory", second.Close(), ErrInUse)
	says(t, "close the new PD", other.Close(), ErrInUse, "1 MR")
	if n := regionsOn(r.pd); n != 2 {
		t.Errorf("%d MRs stand on its old PD, want 2", n)
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]interface{ Close() error }{"old memory": first, "new memory": second, "PD": other} {
		if err := c.Close(); err != nil {
			t.Errorf("close the %s after the region: %v", what, err)
		}
	}
	// Without other memory there is none to hold.
	third := memoryFor(t, r, 4096)
	mr = register(t, r.pd, third.Bytes(), LocalWrite)
	r.k.FailAt(fakekernel.Ioctl, 1, syscall.EINVAL)
	says(t, "Reregister", mr.Reregister(ChangeAccess(0)), syscall.EINVAL, "not known: close it")
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	// The device's Close lets go of all of a region that cannot be closed.
	fourth, fifth := memoryFor(t, r, 4096), memoryFor(t, r, 4096)
	mr = register(t, r.pd, fourth.Bytes(), LocalWrite)
	r.k.Fail(func(c fakekernel.Call) error {
		if c.Command == abi.IB_USER_VERBS_CMD_REREG_MR || c.Method == (fakekernel.Method{Object: abi.UVERBS_OBJECT_MR, Method: abi.UVERBS_METHOD_MR_DESTROY}) {
			return syscall.ENOMEM
		}
		return nil
	})
	says(t, "Reregister", mr.Reregister(ChangeMemory(fifth.Bytes())), syscall.ENOMEM)
	says(t, "close", mr.Close(), syscall.ENOMEM)
	says(t, "close the device", r.dev.Close(), syscall.ENOMEM)
	r.k.Fail(nil)
	for _, m := range []*Memory{fourth, fifth} {
		if err := m.Close(); err != nil {
			t.Errorf("close memory after the device: %v", err)
		}
	}
}

func TestReregisterErrors(t *testing.T) {
	r := newRig(t, false, changesAll, fakekernel.Device{Rereg: changesAll.Rereg, DMABuf: true})
	elsewhere, err := on(r.k).open("rxe1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	pd1, err := elsewhere.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	gone, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	fd := r.k.NewDMABuf(make([]byte, 4096))
	dmabuf, err := pd1.RegisterDMABuf(fd, 0, 4096, 0, LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	mem := memoryFor(t, r, 4096)
	mr := register(t, r.pd, mem.Bytes(), RemoteRead)
	closed := register(t, r.pd, mem.Bytes(), 0)
	closed.Close()
	unmapped, err := allocOn(r.k, 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	lost := unmapped.Bytes()
	unmapped.Close()
	for name, test := range map[string]struct {
		mr      *MR
		changes []MRChange
		is      error
		parts   []string
	}{
		"nothing":                {mr, nil, ErrInvalid, []string{"no change", "ChangeAccess"}},
		"zero change":            {mr, []MRChange{{}}, ErrInvalid, []string{"zero MRChange"}},
		"two rights":             {mr, []MRChange{ChangeAccess(0), ChangeAccess(0)}, ErrInvalid, []string{"two changes of the access"}},
		"two PDs":                {mr, []MRChange{ChangePD(r.pd), ChangePD(r.pd)}, ErrInvalid, []string{"two changes of the PD"}},
		"unknown right":          {mr, []MRChange{ChangeAccess(1 << 15)}, ErrInvalid, []string{"0x8000", "LocalWrite"}},
		"remote without local":   {mr, []MRChange{ChangeAccess(RemoteWrite)}, ErrInvalid, []string{"LocalWrite too"}},
		"write to read-only":     {mr, []MRChange{ChangeAccess(LocalWrite)}, ErrInvalid, []string{"LocalWrite", "without a right to write"}},
		"windows to read-only":   {mr, []MRChange{ChangeAccess(MWBind)}, ErrInvalid, []string{"MWBind", "without a right to write"}},
		"flush without support":  {mr, []MRChange{ChangeAccess(FlushGlobal)}, ErrNotSupported, []string{"FlushGlobal"}},
		"nil PD":                 {mr, []MRChange{ChangePD(nil)}, ErrInvalid, []string{"PD is nil"}},
		"another device's PD":    {mr, []MRChange{ChangePD(pd1)}, ErrInvalid, []string{"rxe0", "rxe1"}},
		"closed PD":              {mr, []MRChange{ChangePD(gone)}, os.ErrClosed, []string{"PD"}},
		"no memory":              {mr, []MRChange{ChangeMemory(nil)}, ErrInvalid, []string{"0 bytes"}},
		"other memory, dma-buf":  {dmabuf, []MRChange{ChangeMemory(mem.Bytes())}, ErrInvalid, []string{"dma-buf"}},
		"windows, dma-buf":       {dmabuf, []MRChange{ChangeAccess(LocalWrite | MWBind)}, ErrInvalid, []string{"MWBind", "allowed are"}},
		"closed":                 {closed, []MRChange{ChangeAccess(0)}, os.ErrClosed, []string{"rxe0", "re-register"}},
		"closed, without change": {closed, nil, os.ErrClosed, nil},
	} {
		says(t, name, test.mr.Reregister(test.changes...), test.is, test.parts...)
	}
	// The kernel looks at the memory: a range that is not mapped any more.
	if err := mr.Reregister(ChangeMemory(lost), ChangeAccess(LocalWrite)); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("memory that is not mapped: %v", err)
	}
	for _, mr := range []*MR{mr, dmabuf} {
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A region is not changed below a window that is bound to it.
func TestReregisterUnderWindow(t *testing.T) {
	r := newRig(t, false, changesAll)
	mem := memoryFor(t, r, 4096)
	mr := register(t, r.pd, mem.Bytes(), LocalWrite|RemoteWrite|MWBind)
	defer mr.Close()
	mw, err := r.pd.NewMW()
	if err != nil {
		t.Fatal(err)
	}
	sq := r.a.SendQueue()
	sq.BindMW(1, mw, mr.All(), RemoteWrite)
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, r.sendQ, 1)[0]; w.Status != StatusSuccess {
		t.Fatalf("bind: %+v", w)
	}
	says(t, "with a window", mr.Reregister(ChangeAccess(LocalWrite)), ErrInUse, "1 MW", "invalidate")
	if err := r.mr.Reregister(ChangeAccess(LocalWrite)); err != nil {
		t.Errorf("another region: %v", err)
	}
	sq.LocalInvalidate(2, mw)
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, r.sendQ, 1)[0]; w.Status != StatusSuccess {
		t.Fatalf("invalidation: %+v", w)
	}
	if err := mr.Reregister(ChangeAccess(LocalWrite)); err != nil {
		t.Errorf("without: %v", err)
	}
	if err := mw.Close(); err != nil {
		t.Error(err)
	}
}

// Signals change nothing.
func TestReregisterInterrupted(t *testing.T) {
	r := newRig(t, false, changesAll)
	mem := memoryFor(t, r, 4096)
	mr := register(t, r.pd, mem.Bytes(), LocalWrite)
	r.k.Interrupt(3)
	if err := mr.Reregister(ChangeAccess(LocalWrite|RemoteWrite), ChangeMemory(r.mem.Bytes()[:4096]), ChangePD(r.pd)); err != nil {
		t.Error(err)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
	r.k.Fail(nil)
}

// Reregister beside posting, other changes, and the closing of what it stands
// on. The queue pair uses the region without end: each request moves right bytes
// or its Flush is refused in words.
func TestReregisterRaces(t *testing.T) {
	for round := range roundsOr(t, 30) {
		r := newRig(t, false, changesAll)
		other, err := r.dev.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		var memories [2]*Memory
		for i := range memories {
			memories[i] = memoryFor(t, r, 4096)
			copy(memories[i].Bytes(), bytes.Repeat([]byte{0xa5}, 4096))
		}
		mr := register(t, r.pd, memories[0].Bytes(), LocalWrite|RemoteRead)
		allowed := func(what string, err error) {
			if err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, ErrInUse) {
				t.Errorf("%s: %v", what, err)
			}
		}
		stop := make(chan struct{})
		var changers, poster sync.WaitGroup
		for i := range 2 {
			changers.Go(func() {
				for j := range 20 {
					allowed("memory", mr.Reregister(ChangeMemory(memories[(i+j)%2].Bytes())))
					allowed("access", mr.Reregister(ChangeAccess(LocalWrite|RemoteRead)))
				}
			})
		}
		changers.Go(func() {
			for range 20 {
				allowed("to the other PD", mr.Reregister(ChangePD(other)))
				allowed("back", mr.Reregister(ChangePD(r.pd)))
			}
			switch round % 3 {
			case 0:
				allowed("close", mr.Close())
				allowed("close PD", other.Close())
			case 1:
				allowed("close device", r.dev.Close())
			}
		})
		poster.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				sq := r.a.SendQueue()
				if sq.Room() == 0 {
					var wcs [16]WC
					if _, err := r.sendQ.Poll(wcs[:]); err != nil {
						return
					}
					runtime.Gosched()
					continue
				}
				sq.Send(1, mr.Span(0, 8), Unsignaled)
				if err := sq.Flush(); err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, os.ErrClosed) && !errors.Is(err, ErrState) {
					t.Errorf("Flush: %v", err)
				}
			}
		})
		changers.Wait()
		close(stop)
		poster.Wait()
		if err := mr.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close: %v", err)
		}
		r.close(t)
		for _, m := range memories {
			if err := m.Close(); err != nil {
				t.Errorf("close memory: %v", err)
			}
		}
	}
}
