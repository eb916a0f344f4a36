package kernel

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how long a removal may go unseen where no event tells of it: in a
// user namespace the kernel sends none, and a sandbox may have no such sockets.
const lookEvery = time.Second

// NoUevents makes watches that begin from then on hear of no events, as in such a
// sandbox. It is for tests.
var NoUevents atomic.Bool

// Watch implements [Kernel]. Without /sys it sees nothing.
//
// It keeps an attribute of the verbs file in /sys open. The kernel answers reads of
// that with ENODEV once the device begins to go, before it tells of it and before it
// waits for those who use the device (device_del in drivers/base/core.c,
// ib_uverbs_remove_one in drivers/infiniband/core/uverbs_main.c). A new device of the
// same name, or number, has another one. So what an event says is of no interest,
// beside that one came.
//
// The events are those of kobjects. RDMA netlink has some of its own since Linux 6.12,
// but its RDMA_UNREGISTER_EVENT comes after that wait (__ib_unregister_device in
// drivers/infiniband/core/device.c).
func (linux) Watch(name string, gone func()) (stop func(), err error) {
	return watchAttr("/sys/class/infiniband_verbs/"+name+"/dev", gone)
}

// watchAttr is Watch for a file of any path.
func watchAttr(path string, gone func()) (stop func(), err error) {
	attr, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.EACCES {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := uevents()
	if err != nil {
		unix.Close(attr)
		return nil, err
	}
	ended := make(chan struct{})
	go watch(attr, e, gone, ended)
	return func() {
		e.Close()
		<-ended
	}, nil
}

// uevents is a socket that the kernel tells on when devices come and go; or, where
// there is none, a descriptor that never says anything.
func uevents() (*events, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1})
	}
	if err != nil || NoUevents.Load() {
		unix.Close(fd)
		if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
			return nil, err
		}
	}
	e, err := newEvents(fd)
	if err != nil {
		unix.Close(fd)
	}
	return e, err
}

// watch looks at attr after every removal of anything, and from time to time.
func watch(attr int, e *events, gone func(), ended chan struct{}) {
	b := make([]byte, 16)
	for err := error(nil); err != os.ErrClosed; {
		if _, look := unix.Read(attr, b); look == syscall.ENODEV {
			gone()
		}
		e.SetReadDeadline(time.Now().Add(lookEvery))
		// An event begins with "remove@" and a path; of that which does not fit the
		// kernel drops the rest. Other events do not move the deadline. An error
		// may be that some were lost.
		for b[0], err = 0, nil; err == nil && b[0] != 'r'; {
			_, err = e.ReadWait(b)
		}
	}
	unix.Close(attr)
	close(ended)
}
