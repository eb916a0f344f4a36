package nldev

import "golang.org/x/sys/unix"

// kernelSocket is a blocking socket: the kernel has answered a request, or has
// the first part of a list ready, when sending it returns.
type kernelSocket int

func openSocket() (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	if err != nil {
		return nil, err
	}
	// A socket that is connected to the kernel hears nobody else
	// (netlink_getsockbyportid in net/netlink/af_netlink.c).
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return kernelSocket(fd), nil
}

func (s kernelSocket) Send(message []byte) error {
	for {
		// The kernel takes a message as a whole.
		if _, err := unix.Write(int(s), message); err != unix.EINTR {
			return err
		}
	}
}

func (s kernelSocket) Receive(b []byte) (int, error) {
	for {
		if n, errno := receive(int(s), b); errno == 0 {
			return n, nil
		} else if errno != unix.EINTR {
			return 0, errno
		}
	}
}

func (s kernelSocket) Close() error { return unix.Close(int(s)) }
