//go:build linux

package fakekernel

import "golang.org/x/sys/unix"

// signal is a descriptor that polls readable while an event file has something
// to say, so that pollers of the real system can wait for made-up events.
type signal struct{ fd int }

func newSignal(*Kernel) (signal, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return signal{fd}, err
}

// raise makes the descriptor readable. It is an edge for those who wait for
// edges, also when it was readable.
func (s signal) raise() { unix.Write(s.fd, []byte{1, 1, 1, 1, 0, 0, 0, 0}) }

// clear makes it unreadable.
func (s signal) clear() {
	var b [8]byte
	unix.Read(s.fd, b[:])
}

func (s signal) close() { unix.Close(s.fd) }
