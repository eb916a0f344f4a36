package uverbs

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"github.com/goverbs/goverbs/abi"
)

// MRChange is one change of a memory region for Reregister.
type MRChange struct {
	bit   uint32
	apply func(*region) error
}

// Bits of enum ib_mr_rereg_flags (include/rdma/ib_verbs.h), which the UAPI
// headers do not have.
const (
	reregMemory = 1 << 0
	reregPD     = 1 << 1
	reregAccess = 1 << 2
)

// reregNames say in errors what each bit changes, by its number.
var reregNames = [...]string{"memory", "PD", "access"}

const opReregister = "re-register memory"

// ChangeAccess gives the region other rights.
func ChangeAccess(access Access) MRChange {
	return MRChange{reregAccess, func(r *region) (err error) {
		allowed := knownAccess
		if r.dmabuf {
			allowed = dmabufAccess
		}
		r.access, err = r.pd.dev.regionAccess(opReregister, access, allowed)
		return err
	}}
}

// ChangePD moves the region to another protection domain of the same device.
func ChangePD(pd *PD) MRChange {
	return MRChange{reregPD, func(r *region) error {
		switch {
		case pd == nil:
			return invalid("%s: the new PD is nil", opReregister)
		case pd.dev != r.pd.dev:
			return invalid("%s: the region is one of %s, the new PD of %s", opReregister, r.pd.dev.info.Name, pd.dev.info.Name)
		}
		r.pd = pd
		return nil
	}}
}

// ChangeMemory lets the region be of other memory, under the rules of Register.
// The memory that it was of so far is let go.
func ChangeMemory(b []byte) MRChange {
	return MRChange{reregMemory, func(r *region) error {
		switch {
		case r.dmabuf:
			return invalid("%s: the region is one of a dma-buf: its memory cannot be changed", opReregister)
		case len(b) == 0:
			return invalid("%s: 0 bytes: a memory region cannot be empty", opReregister)
		}
		r.bytes = b
		return nil
	}}
}

// Reregister changes a region without closing it, all that is asked or nothing.
// Its keys may change with it, so tell peers the new Remote; spans are of the
// changed region from then on.
//
// No request that uses the region may be outstanding, here or at a peer: it
// would find the region as it was, as it becomes, or not at all. A span that is
// used while Reregister runs makes its Flush fail with ErrBusy.
//
// It is refused with ErrInUse while a memory window is bound to the region, and
// a right to write can be had only by a region whose pages the kernel has made
// sure of when it was registered: one that was registered with such a right, or
// gets other memory in the same call.
//
// A driver that cannot do it says ErrNotSupported, and the region is as before.
// Soft-RoCE of Linux 6.12 changes access and PD, that of 6.1 nothing. After any
// other error of the kernel nobody knows what the region is: it can only be
// closed, and its spans make a Flush fail with ErrState. Old and new memory stay
// registered until then.
func (mr *MR) Reregister(changes ...MRChange) error {
	mr.changing.Lock()
	defer mr.changing.Unlock()
	old := mr.now.Load()
	if old.why != nil {
		return fmt.Errorf("goverbs: %s: %s: %w", mr.dev.info.Name, opReregister, old.why)
	}
	next, flags, err := old.with(changes)
	if err != nil {
		return err
	}
	done, err := mr.startChange(next.pd)
	if err != nil {
		return err
	}
	defer done()
	if flags&reregMemory != 0 {
		if next, err = next.pd.regionOf(next.bytes, next.access); err != nil {
			return err
		}
	}
	err = mr.change(flags, old, next)
	mr.changed(flags, old, next, err)
	return mr.dev.explainReregister(err, next)
}

// with is the region after changes, and the bits of these.
func (r *region) with(changes []MRChange) (*region, uint32, error) {
	next, flags := *r, uint32(0)
	for _, c := range changes {
		switch {
		case c.apply == nil:
			return nil, 0, invalid("%s: the zero MRChange", opReregister)
		case flags&c.bit != 0:
			return nil, 0, invalid("%s: two changes of the %s", opReregister, reregNames[bits.TrailingZeros32(c.bit)])
		}
		flags |= c.bit
		if err := c.apply(&next); err != nil {
			return nil, 0, err
		}
	}
	switch {
	case flags == 0:
		return nil, 0, invalid("%s: no change: give ChangeAccess, ChangePD or ChangeMemory", opReregister)
	case flags&reregMemory == 0 && next.access&writingAccess != 0 && !r.writable:
		return nil, 0, invalid("%s: %v: the region was registered without a right to write, and its pages may be of read-only memory: change the memory too, or register anew", opReregister, next.access)
	}
	return &next, flags, nil
}

// startChange keeps the region, the PD that it will stand on and the device from
// being closed until done is called.
func (mr *MR) startChange(pd *PD) (done func(), err error) {
	d := mr.dev
	done, err = d.making(kindMR, &pd.object)
	if err != nil {
		return nil, err
	}
	if mr.isClosed() {
		err = d.denied(opReregister, os.ErrClosed)
	} else if n := mr.windowsBound(); n > 0 {
		err = fmt.Errorf("goverbs: %s: %s: %w by %s bound to it: invalidate those first; if the peer did, poll that completion", d.info.Name, opReregister, ErrInUse, plural(n, "MW"))
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// windowsBound counts the memory windows that are bound to the region.
func (mr *MR) windowsBound() int {
	n := 0
	for _, c := range mr.dev.ofKind(kindMW) {
		if mw := c.(*MW); mw.bound.Load() && mw.mr.Load() == mr {
			n++
		}
	}
	return n
}

// errChanging is why a span cannot be used during a re-registration.
var errChanging error = &reason{before: "span of a memory region that is being re-registered: ", err: &ErrBusy}

// change has the kernel change the region, and learns its keys.
func (mr *MR) change(flags uint32, old, next *region) error {
	d := mr.dev
	// The kernel pins pages of both during the call.
	mr.limbo = next
	mr.now.Store(old.unusable(errChanging))
	in, out := new(abi.UverbsReregMR), new(abi.UverbsReregMRResp)
	*in = abi.UverbsReregMR{MRHandle: mr.handle, Flags: flags, PDHandle: next.pd.handle, AccessFlags: uint32(next.access)}
	if flags&reregMemory != 0 {
		in.Start, in.Length, in.HCAVA = next.addr, uint64(next.length), next.addr
	}
	err := d.call(opReregister, newCommand(d.driver, abi.IB_USER_VERBS_CMD_REREG_MR, in.Bytes(), out.Bytes()))
	next.lkey, next.rkey = out.LKey, out.RKey
	return err
}

// changed enters what became of a re-registration.
func (mr *MR) changed(flags uint32, old, next *region, err error) {
	mr.limbo = nil
	switch {
	case err == nil:
		mr.now.Store(next)
		if flags&reregMemory != 0 {
			old.letGo()
		}
		mr.stand(next.pd, false)
	case errors.Is(err, ErrNotSupported):
		mr.now.Store(old)
		if flags&reregMemory != 0 {
			next.letGo()
		}
	default:
		mr.now.Store(old.unusable(fmt.Errorf("memory region that a re-registration which failed has left unknown: %w: close it", ErrState)))
		if flags&reregMemory != 0 {
			mr.limbo = next
		}
		mr.stand(next.pd, true)
	}
}

// stand lets the region stand on a PD, beside what it stands on or instead.
func (mr *MR) stand(pd *PD, beside bool) {
	mr.dev.mu.Lock()
	defer mr.dev.mu.Unlock()
	var bases []*object
	for _, b := range mr.bases {
		if beside {
			bases = append(bases, b)
		} else {
			b.users[kindMR]--
		}
	}
	pd.users[kindMR]++
	mr.bases = append(bases, &pd.object)
}

// explainReregister adds the causes that people look for.
func (d *Device) explainReregister(err error, next *region) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	d.explainRegister(err, next.length, next.access)
	switch {
	case errors.Is(err, ErrNotSupported):
		e.Hint = "soft-RoCE of Linux 6.12 changes access and PD, of 6.1 nothing; the region is as before: close it and register anew"
	case e.Hint == "":
		e.Hint = "what the region is now is not known: close it"
	default:
		e.Hint += "; what the region is now is not known: close it"
	}
	return err
}
