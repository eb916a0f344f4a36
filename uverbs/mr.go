package uverbs

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// Access says what may be done to a memory region, or through a queue pair. It
// has the bits of enum ib_uverbs_access_flags (rdma/ib_user_ioctl_verbs.h).
type Access uint32

// The access rights. Local reads are always allowed.
const (
	LocalWrite      = Access(abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	RemoteWrite     = Access(abi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	RemoteRead      = Access(abi.IB_UVERBS_ACCESS_REMOTE_READ)
	RemoteAtomic    = Access(abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)
	MWBind          = Access(abi.IB_UVERBS_ACCESS_MW_BIND) // memory windows may be bound to it
	FlushGlobal     = Access(abi.IB_UVERBS_ACCESS_FLUSH_GLOBAL)
	FlushPersistent = Access(abi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT) // of persistent memory only
	RelaxedOrdering = Access(abi.IB_UVERBS_ACCESS_RELAXED_ORDERING)

	remoteAccess   = RemoteWrite | RemoteRead | RemoteAtomic
	optionalAccess = Access(abi.IB_UVERBS_ACCESS_OPTIONAL_RANGE)
	peerAccess     = remoteAccess | FlushGlobal | FlushPersistent
	knownAccess    = LocalWrite | peerAccess | MWBind | RelaxedOrdering
)

// String lists the rights by name.
func (a Access) String() string {
	names := []struct {
		bit  Access
		name string
	}{{LocalWrite, "LocalWrite"}, {RemoteWrite, "RemoteWrite"}, {RemoteRead, "RemoteRead"}, {RemoteAtomic, "RemoteAtomic"},
		{MWBind, "MWBind"}, {FlushGlobal, "FlushGlobal"}, {FlushPersistent, "FlushPersistent"}, {RelaxedOrdering, "RelaxedOrdering"}}
	var parts []string
	for _, n := range names {
		if a&n.bit != 0 {
			parts = append(parts, n.name)
			a &^= n.bit
		}
	}
	if a != 0 || len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("Access(%#x)", uint32(a)))
	}
	return strings.Join(parts, "|")
}

// MR is a memory region: memory that the device may read and write. Its methods
// may be called from any goroutine.
type MR struct {
	object
	pd     *PD
	bytes  []byte
	addr   uint64
	access Access
	lkey   uint32
	rkey   uint32
	memory *Memory // where the bytes come from, if from Alloc
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
// Alloc memory only.
//
// It fails with ENOMEM when the process may not lock so much memory; the error
// says the limit and what is asked.
func (pd *PD) Register(b []byte, access Access) (*MR, error) {
	const op = "register memory"
	d := pd.dev
	switch {
	case len(b) == 0:
		return nil, invalid("%s: 0 bytes: a memory region cannot be empty", op)
	case access&^(knownAccess|optionalAccess) != 0:
		return nil, invalid("%s: %v: allowed are %v", op, access, knownAccess)
	case access&(RemoteWrite|RemoteAtomic) != 0 && access&LocalWrite == 0:
		return nil, invalid("%s: %v: remote writes and atomics need LocalWrite too", op, access)
	}
	if err := d.checkAccess(op, access); err != nil {
		return nil, err
	}
	if d.coreSupport&uint64(abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS) == 0 {
		access &^= optionalAccess
	}
	done, err := d.making(kindMR, &pd.object)
	if err != nil {
		return nil, err
	}
	defer done()
	memory, err := memoryOf(b)
	if err != nil {
		return nil, err
	}
	in, out := new(abi.UverbsRegMR), new(abi.UverbsRegMRResp)
	*in = abi.UverbsRegMR{Start: address(b), Length: uint64(len(b)), HCAVA: address(b), PDHandle: pd.handle, AccessFlags: uint32(access)}
	mr := &MR{
		object: object{dev: d, kind: kindMR, id: d.nextID()}, pd: pd,
		bytes: b, addr: address(b), access: access, memory: memory,
	}
	// The kernel pins the pages during the call: b is reachable from mr.
	err = d.call(op, newCommand(d.driver, abi.IB_USER_VERBS_CMD_REG_MR, in.Bytes(), out.Bytes()))
	if err != nil {
		mr.forget()
		return nil, d.explainRegister(err, len(b), access)
	}
	mr.handle, mr.lkey, mr.rkey = out.MRHandle, out.LKey, out.RKey
	registered.Lock()
	if registered.regions == nil {
		registered.regions = make(map[*MR]struct{})
	}
	registered.regions[mr] = struct{}{}
	registered.Unlock()
	if err := d.hold(mr, &pd.object); err != nil {
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
	if err := mr.free(); err != nil {
		// It is still registered.
		mr.revive()
		var e *Error
		if errors.As(err, &e) && isErrno(err, syscall.EINVAL, syscall.EBUSY) && mr.access&MWBind != 0 {
			e.Err = fmt.Errorf("%w by a memory window that is bound to it: %w", ErrInUse, e.Err)
			e.Hint = "invalidate or close the window first"
		}
		return err
	}
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
	if mr.memory != nil {
		mr.memory.unregistered()
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
func (mr *MR) Len() int { return len(mr.bytes) }

// LKey is the key by which local requests name the region.
func (mr *MR) LKey() uint32 { return mr.lkey }

// RKey is the key by which peers name the region.
func (mr *MR) RKey() uint32 { return mr.rkey }

// Access is what may be done to the region.
func (mr *MR) Access() Access { return mr.access }

// Span is n bytes of the region from offset off on, to send from or receive
// into. A span that does not lie inside the region makes the Flush of the
// request that uses it fail.
func (mr *MR) Span(off, n int) Span { return Span{mr, off, n} }

// All is the whole region.
func (mr *MR) All() Span { return Span{mr, 0, len(mr.bytes)} }

// Span is a piece of a memory region.
type Span struct {
	mr  *MR
	off int
	n   int
}

// sge checks the span and turns it into what a ring takes. ok is false when it
// lies outside its region.
func (s Span) sge() (e cq.SGE, ok bool) {
	if s.mr == nil || s.off < 0 || s.n < 0 || s.off > len(s.mr.bytes)-s.n || uint64(s.n) > maxMessage {
		return cq.SGE{}, false
	}
	return cq.SGE{Addr: s.mr.addr + uint64(s.off), Length: uint32(s.n), LKey: s.mr.lkey}, true
}

// err says what is wrong with a span that sge refused.
func (s Span) err() error {
	switch {
	case s.mr == nil:
		return fmt.Errorf("span without a memory region: %w", ErrBounds)
	case uint64(max(s.n, 0)) > maxMessage:
		return fmt.Errorf("span of %d bytes: at most %d: %w", s.n, maxMessage, ErrBounds)
	}
	return fmt.Errorf("span of %d bytes at offset %d does not lie in the memory region of %d bytes: %w", s.n, s.off, len(s.mr.bytes), ErrBounds)
}

// maxMessage is the longest message of any transport: 2^31 bytes.
const maxMessage uint64 = 1 << 31

// Remote is a memory region of the peer, as the peer described it: an address
// in the peer's process, a length in bytes and the key. Send it over a
// connection of your own, or let Handshake do that.
type Remote struct {
	Addr   uint64
	Length uint64
	RKey   uint32
}

// Remote describes the region to a peer.
func (mr *MR) Remote() Remote {
	return Remote{Addr: mr.addr, Length: uint64(len(mr.bytes)), RKey: mr.rkey}
}

// At is the place off bytes into the peer's region. A write or read that begins
// or ends outside makes its Flush fail.
func (r Remote) At(off uint64) RemoteAddr { return RemoteAddr{r, off} }

// RemoteAddr is a place in the peer's memory.
type RemoteAddr struct {
	region Remote
	off    uint64
}

// address checks that n bytes at the place lie in the region.
func (a RemoteAddr) address(n uint64) (uint64, bool) {
	if a.off > a.region.Length || n > a.region.Length-a.off || a.region.Addr > ^uint64(0)-a.off {
		return 0, false
	}
	return a.region.Addr + a.off, true
}
