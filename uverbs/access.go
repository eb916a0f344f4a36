package uverbs

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/abi"
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
	dmabufAccess   = LocalWrite | remoteAccess | RelaxedOrdering

	// writingAccess are the rights for which the kernel makes sure that the
	// pages can be written to, when it pins them.
	writingAccess = LocalWrite | RemoteWrite | RemoteAtomic | MWBind
)

var accessNames = [...]struct {
	bit  Access
	name string
}{
	{LocalWrite, "LocalWrite"}, {RemoteWrite, "RemoteWrite"}, {RemoteRead, "RemoteRead"}, {RemoteAtomic, "RemoteAtomic"},
	{MWBind, "MWBind"}, {FlushGlobal, "FlushGlobal"}, {FlushPersistent, "FlushPersistent"}, {RelaxedOrdering, "RelaxedOrdering"},
}

// String lists the rights by name.
func (a Access) String() string {
	var parts []string
	for _, n := range accessNames {
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

// regionAccess checks the rights of a memory region, of which allowed are those
// that its kind can have, and takes away those that the kernel would not
// understand and need not: it says itself whether it knows of optional rights.
func (d *Device) regionAccess(op string, access, allowed Access) (Access, error) {
	switch {
	case access&^(allowed|optionalAccess) != 0:
		return 0, invalid("%s: %v: allowed are %v", op, access, allowed)
	case access&(RemoteWrite|RemoteAtomic) != 0 && access&LocalWrite == 0:
		return 0, invalid("%s: %v: remote writes and atomics need LocalWrite too", op, access)
	}
	if err := d.checkAccess(op, access); err != nil {
		return 0, err
	}
	if d.coreSupport&uint64(abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS) == 0 {
		access &^= optionalAccess
	}
	return access, nil
}
