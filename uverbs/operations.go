package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// opSet is a set of send-side operations.
type opSet uint32

func (s opSet) has(op Opcode) bool { return s&(1<<op) != 0 }

// The operations that soft-RoCE carries out on each transport. InfiniBand lets
// unconnected and unreliable queue pairs invalidate too; soft-RoCE does not.
const (
	opsRC = opsUC | opsSwap | 1<<cq.OpSendInvalidate | 1<<cq.OpRead | 1<<cq.OpLocalInvalidate | 1<<cq.OpFlush | 1<<cq.OpAtomicWrite
	opsUC = opsUD | 1<<cq.OpWrite | 1<<cq.OpWriteImm | 1<<cq.OpBindMW
	opsUD = opSet(1<<cq.OpSend | 1<<cq.OpSendImm)

	opsSwap = opSet(1<<cq.OpCompareSwap | 1<<cq.OpFetchAdd)
)

// operations are those that the device can carry out on any transport.
func (a *DeviceAttr) operations() opSet {
	s := ^opSet(0)
	if a.Atomic == AtomicNone {
		s &^= opsSwap
	}
	if a.Caps&CapAtomicWrite == 0 {
		s &^= 1 << cq.OpAtomicWrite
	}
	if a.Caps&(CapFlushGlobal|CapFlushPersistent) == 0 {
		s &^= 1 << cq.OpFlush
	}
	return s
}

// whyNot says why op cannot be posted to the queue pair.
func (qp *QP) whyNot(op Opcode) error {
	p := qp.dev.provider
	if !p.operations(qp.typ).has(op) && p.operations(RC).has(op) {
		return fmt.Errorf("%v on a queue pair of type %v: %w: RC queue pairs have it", op, qp.typ, ErrInvalid)
	}
	switch op {
	case cq.OpAtomicWrite, cq.OpFlush:
		return fmt.Errorf("%v: %w by %s%s", op, ErrNotSupported, qp.dev.info.Name, qp.dev.sinceLinux62())
	}
	return fmt.Errorf("%v: %w by %s", op, ErrNotSupported, qp.dev.info.Name)
}

// checkAccess refuses rights that the device does not know. The kernel would
// too, but as older kernels do it, without saying why.
func (d *Device) checkAccess(op string, access Access) error {
	for _, f := range []struct {
		right Access
		cap   DeviceCaps
	}{{FlushGlobal, CapFlushGlobal}, {FlushPersistent, CapFlushPersistent}} {
		if access&f.right != 0 && d.attr.Caps&f.cap == 0 {
			return fmt.Errorf("goverbs: %s: %s with %v: %w by the device%s", d.info.Name, op, f.right, ErrNotSupported, d.sinceLinux62())
		}
	}
	return nil
}

// sinceLinux62 ends what is said of atomic writes and flushes: a newer kernel
// helps soft-RoCE, and no other device.
func (d *Device) sinceLinux62() string {
	if d.info.Driver == DriverRXE {
		return ": soft-RoCE has it from Linux 6.2 on"
	}
	return ""
}
