package uverbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// MR is a memory region: memory that the device may read and write. Its methods
// may be called from any goroutine.
type MR struct {
	object
	now atomic.Pointer[region]

	changing sync.Mutex // held by Reregister
	// limbo is memory that the kernel has, or may have, besides now's:
	// during a re-registration, and after one that failed.
	limbo *region
}

// region is what a memory region is at one time. It does not change: a poster
// may be looking at it.
type region struct {
	pd         *PD
	bytes      []byte // kept for the kernel; nil for a dma-buf
	dmabuf     bool
	memory     *Memory // where the bytes come from, if from Alloc
	addr       uint64  // of the first byte, as requests name it
	length     int
	access     Access
	writable   bool // the kernel pinned the pages for writing
	lkey, rkey uint32

	// usable is the length, or -1 when no request may use the region; why
	// says why not.
	usable int
	why    error
}

// unusable is the region as requests see it when they must not use it.
func (r *region) unusable(why error) *region {
	c := *r
	c.usable, c.why = -1, why
	return &c
}

// registered keeps the bytes of every memory region reachable until the kernel
// has let go of them, even when a program forgets the MR and its device:
// otherwise the garbage collector would hand out pages that the device still
// writes to.
var registered struct {
	sync.Mutex
	regions map[*MR]struct{}
}

// Register makes b a memory region of the protection domain. Memory from Alloc
// suits best. Memory of the Go heap works too, and is kept alive until Close;
// its pages may be shared with other objects, so give remote peers access to
// Alloc memory only. A child that gets a copy of the program's memory (see
// Alloc) has to get Go's heap: from Linux 5.12 on that does no harm.
//
// A right that the kernel calls optional, as RelaxedOrdering, is left out where
// it knows none such; Access tells.
//
// Register fails with ENOMEM when the process may not lock so much memory; the
// error says the limit and what is asked.
func (pd *PD) Register(b []byte, access Access) (*MR, error) {
	const op = "register memory"
	d := pd.dev
	if len(b) == 0 {
		return nil, invalid("%s: 0 bytes: a memory region cannot be empty", op)
	}
	access, err := d.regionAccess(op, access, knownAccess)
	if err != nil {
		return nil, err
	}
	done, err := d.making(kindMR, &pd.object)
	if err != nil {
		return nil, err
	}
	defer done()
	r, err := pd.regionOf(b, access)
	if err != nil {
		return nil, err
	}
	in, out := new(abi.UverbsRegMR), new(abi.UverbsRegMRResp)
	*in = abi.UverbsRegMR{Start: r.addr, Length: uint64(r.length), HCAVA: r.addr, PDHandle: pd.handle, AccessFlags: uint32(access)}
	mr := newMR(r)
	// The kernel pins the pages during the call: b is reachable from mr.
	err = d.call(op, newCommand(d.driver, abi.IB_USER_VERBS_CMD_REG_MR, in.Bytes(), out.Bytes()))
	if err != nil {
		mr.forget()
		return nil, d.explainRegister(err, len(b), access)
	}
	mr.handle, r.lkey, r.rkey = out.MRHandle, out.LKey, out.RKey
	return mr.enter()
}

// regionOf describes memory to register. It counts as registered from then on.
func (pd *PD) regionOf(b []byte, access Access) (*region, error) {
	memory, err := memoryOf(b)
	if err != nil {
		return nil, err
	}
	return &region{
		pd: pd, bytes: b, memory: memory, addr: address(b), length: len(b), usable: len(b),
		access: access, writable: access&writingAccess != 0,
	}, nil
}

// newMR makes an MR that the kernel does not know yet.
func newMR(r *region) *MR {
	d := r.pd.dev
	mr := &MR{object: object{dev: d, kind: kindMR, id: d.nextID()}}
	mr.now.Store(r)
	return mr
}

// enter makes an MR that the kernel has made one of the device's.
func (mr *MR) enter() (*MR, error) {
	registered.Lock()
	if registered.regions == nil {
		registered.regions = make(map[*MR]struct{})
	}
	registered.regions[mr] = struct{}{}
	registered.Unlock()
	if err := mr.dev.hold(mr, &mr.now.Load().pd.object); err != nil {
		mr.free()
		return nil, err
	}
	return mr, nil
}

// explainRegister adds the causes that people look for.
func (d *Device) explainRegister(err error, n int, access Access) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case isErrno(err, syscall.ENOMEM):
		limit, exempt := d.kernel.Memlock()
		switch {
		case exempt:
			e.Hint = fmt.Sprintf("%d bytes asked; the process may lock any amount, so the system or the device is out of memory", n)
		case limit == ^uint64(0):
			e.Hint = fmt.Sprintf("%d bytes asked; RLIMIT_MEMLOCK is unlimited, so the system or the device is out of memory", n)
		default:
			e.Hint = fmt.Sprintf("%d bytes asked, RLIMIT_MEMLOCK is %d bytes for all that the process has registered: raise it (ulimit -l, LimitMEMLOCK=) or grant CAP_IPC_LOCK", n, limit)
		}
	case isErrno(err, syscall.EINVAL) && access&FlushPersistent != 0:
		e.Hint = "FlushPersistent is for mapped persistent memory (DAX) only"
	case isErrno(err, syscall.EFAULT):
		e.Hint = fmt.Sprintf("the %d bytes are not all mapped, or not writable though LocalWrite is asked", n)
	}
	return err
}

// Close deregisters the memory. Requests that still use it fail; wait for their
// completions first. It returns ErrInUse while a memory window is bound to the
// region. When the kernel refuses, for this or another reason, the memory stays
// registered and Close can be called again.
func (mr *MR) Close() error {
	if err := mr.retire(); err != nil {
		return err
	}
	r := mr.now.Load()
	closed := r.unusable(fmt.Errorf("span of a memory region that was closed: %w", os.ErrClosed))
	mr.now.Store(closed)
	if err := mr.free(); err != nil {
		// It is still registered.
		mr.now.Store(r)
		mr.revive()
		var e *Error
		if errors.As(err, &e) && isErrno(err, syscall.EINVAL, syscall.EBUSY) && r.access&MWBind != 0 {
			e.Err = fmt.Errorf("%w by a memory window that is bound to it: %w", ErrInUse, e.Err)
			e.Hint = "invalidate or close the window first"
		}
		return err
	}
	// Who keeps the MR does not keep the memory.
	empty := *closed
	empty.bytes, empty.memory = nil, nil
	mr.now.Store(&empty)
	mr.release()
	return nil
}

func (mr *MR) free() error {
	err := mr.dev.destroy("deregister memory", abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY, mr.handle, nil)
	if err == nil {
		mr.forget()
	}
	return err
}

// forget lets go of the bytes: the kernel has.
func (mr *MR) forget() {
	registered.Lock()
	delete(registered.regions, mr)
	registered.Unlock()
	mr.now.Load().letGo()
	if mr.limbo != nil {
		mr.limbo.letGo()
	}
}

// letGo takes back that the memory counts as registered.
func (r *region) letGo() {
	if r.memory != nil {
		r.memory.unregistered()
	}
}

// forgetRegions lets go of the regions that could not be deregistered: with the
// device's file the kernel has closed them all.
func (d *Device) forgetRegions() {
	var left []*MR
	registered.Lock()
	for mr := range registered.regions {
		if mr.dev == d {
			left = append(left, mr)
		}
	}
	registered.Unlock()
	for _, mr := range left {
		mr.forget()
	}
}

// Len is the size in bytes.
func (mr *MR) Len() int { return mr.now.Load().length }

// LKey is the key by which local requests name the region.
func (mr *MR) LKey() uint32 { return mr.now.Load().lkey }

// RKey is the key by which peers name the region.
func (mr *MR) RKey() uint32 { return mr.now.Load().rkey }

// Access is what may be done to the region.
func (mr *MR) Access() Access { return mr.now.Load().access }

// PD is the protection domain that the region belongs to.
func (mr *MR) PD() *PD { return mr.now.Load().pd }
