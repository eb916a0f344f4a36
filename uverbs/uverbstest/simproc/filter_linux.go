//go:build amd64 || arm64

package simproc

import "golang.org/x/sys/unix"

// verbsIoctl is RDMA_VERBS_IOCTL of rdma/rdma_user_ioctl_cmds.h.
const verbsIoctl = 0xc0181b01

// Offsets in struct seccomp_data. Both machines are little-endian, so the lower
// half of an argument is first.
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16
)

// filter lets everything pass but the ioctl of RDMA, the calls of the list and asking for
// the state of an open file, which this process is told of, and RDMA netlink, which is as on a kernel that has it not: the host's
// devices are not the program's.
func filter(calls []int) []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// equal goes on where the number is k, and otherwise skips.
	equal := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	end := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	const (
		allow  = unix.SECCOMP_RET_ALLOW
		notify = unix.SECCOMP_RET_USER_NOTIF
		refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)
	)
	prog := []unix.SockFilter{
		load(dataArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch, Jt: 1},
		end(allow),
		load(dataNr),
		equal(unix.SYS_IOCTL, 4),
		load(dataArg0 + 8),
		equal(verbsIoctl, 1),
		end(notify),
		end(allow),
		equal(unix.SYS_SOCKET, 6),
		load(dataArg0),
		equal(unix.AF_NETLINK, 3),
		load(dataArg0 + 16),
		equal(unix.NETLINK_RDMA, 1),
		end(refuse),
		end(allow),
	}
	prog = append(prog, equal(unix.SYS_FSTAT, 1), end(notify))
	for _, nr := range calls {
		prog = append(prog, equal(uint32(nr), 1), end(notify))
	}
	// fstatat of no path, by which glibc asks for an open file.
	return append(prog, equal(fstatat, 3), load(dataArg0+3*8), equal(unix.AT_EMPTY_PATH, 1), end(notify), end(allow))
}
