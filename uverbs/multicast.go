package uverbs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// AttachMulticast lets a UD queue pair receive what is sent to a group: see
// GroupGID. Close, and DetachMulticast, end that; attaching again does nothing.
//
// The device is told, and no more: on Ethernet the network, and on soft-RoCE the
// kernel's own IP stack, delivers to this host only if some UDP socket of it has
// joined the group on the port's network device, as net.ListenMulticastUDP does.
//
// A datagram to the group goes to an AH made for Endpoint{GID: group} and to
// MulticastQPN.
func (qp *QP) AttachMulticast(group GID) error {
	in := &abi.UverbsAttachMcast{GID: group, QPHandle: qp.handle}
	return qp.multicast("attach to multicast group", group, abi.IB_USER_VERBS_CMD_ATTACH_MCAST, in.Bytes())
}

// DetachMulticast undoes AttachMulticast, however often that was called.
func (qp *QP) DetachMulticast(group GID) error {
	in := &abi.UverbsDetachMcast{GID: group, QPHandle: qp.handle}
	return qp.multicast("detach from multicast group", group, abi.IB_USER_VERBS_CMD_DETACH_MCAST, in.Bytes())
}

func (qp *QP) multicast(op string, group GID, command uint32, in []byte) error {
	d := qp.dev
	switch {
	case qp.typ != UD:
		return invalid("%s: %s %v: only UD queue pairs can, and QP %d is %v", d.info.Name, op, group, qp.qpn, qp.typ)
	case !isMulticast(group):
		return invalid("%s: %s %v: it is not a multicast address: see GroupGID", d.info.Name, op, group)
	}
	qp.modify.Lock()
	defer qp.modify.Unlock()
	if qp.closing.Load() {
		return fmt.Errorf("goverbs: %s: %s %v: %w", d.info.Name, op, group, os.ErrClosed)
	}
	err := d.call(op, newCommand(d.driver, command, in, nil))
	if err == nil {
		qp.groups = slices.DeleteFunc(qp.groups, func(g GID) bool { return g == group })
		if command == abi.IB_USER_VERBS_CMD_ATTACH_MCAST {
			qp.groups = append(qp.groups, group)
		}
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		switch {
		case isErrno(err, syscall.ENOMEM):
			e.Hint = fmt.Sprintf("the device takes %d groups with %d queue pairs each, %d in all", d.attr.MaxMulticastGroups, d.attr.MaxMulticastQPs, d.attr.MaxTotalMulticastQPs)
		case isErrno(err, syscall.EINVAL) && command == abi.IB_USER_VERBS_CMD_DETACH_MCAST:
			e.Hint = fmt.Sprintf("QP %d is not attached to %v", qp.qpn, group)
		}
	}
	return err
}

// leaveGroups detaches a queue pair that is being closed: the kernel destroys
// none that is in a group. modify is held.
func (qp *QP) leaveGroups() {
	for _, group := range qp.groups {
		in := &abi.UverbsDetachMcast{GID: group, QPHandle: qp.handle}
		qp.dev.call("leave multicast group", newCommand(qp.dev.driver, abi.IB_USER_VERBS_CMD_DETACH_MCAST, in.Bytes(), nil))
	}
	qp.groups = nil
}
