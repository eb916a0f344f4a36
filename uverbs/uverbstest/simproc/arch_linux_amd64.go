package simproc

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	fstatat   = unix.SYS_NEWFSTATAT
)

// pathCalls are the system calls that name a file.
var pathCalls = map[int]pathCall{
	unix.SYS_OPEN:       {opens, none, 0, 1, none, none},
	unix.SYS_OPENAT:     {opens, 0, 1, 2, none, none},
	unix.SYS_STAT:       {stats, none, 0, none, 1, none},
	unix.SYS_LSTAT:      {lstats, none, 0, none, 1, none},
	unix.SYS_NEWFSTATAT: {stats, 0, 1, 3, 2, none},
	unix.SYS_FSTAT:      {stats, 0, none, none, 1, none},
	unix.SYS_READLINK:   {readsLink, none, 0, none, 1, 2},
	unix.SYS_READLINKAT: {readsLink, 0, 1, none, 2, 3},
}
