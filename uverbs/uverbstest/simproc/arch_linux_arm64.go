package simproc

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	fstatat   = unix.SYS_FSTATAT
)

// pathCalls are the system calls that name a file.
var pathCalls = map[int]pathCall{
	unix.SYS_OPENAT:     {opens, 0, 1, 2, none, none},
	unix.SYS_FSTATAT:    {stats, 0, 1, 3, 2, none},
	unix.SYS_FSTAT:      {stats, 0, none, none, 1, none},
	unix.SYS_READLINKAT: {readsLink, 0, 1, none, 2, 3},
}
