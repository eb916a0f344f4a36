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
//
// What is opened here is what sees; to look at it can begin any time later.
func (linux) Watch(name string, gone func()) (run, stop func(), err error) {
	w, err := watchAttr("/sys/class/infiniband_verbs/"+name+"/dev", gone)
	if w == nil {
		return nil, func() {}, err
	}
	return w.run, w.stop, err
}

// watchAttr is Watch for a file of any path. Where it may not be seen there is no watch.
func watchAttr(path string, gone func()) (*watch, error) {
	attr, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.EACCES {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := uevents()
	if err != nil {
		unix.Close(attr)
		return nil, err
	}
	return &watch{attr: attr, e: e, gone: gone, ended: make(chan struct{})}, nil
}

// uevents is a socket that the kernel tells on when devices come and go; or, where
// there is none, a descriptor that never says anything.
func uevents() (*events, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1})
	}
	if err != nil || NoUevents.Load() {
		unix.Close(fd)
		if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return nil, err
		}
	}
	return takeEvents(fd), nil
}

// watch is a watch that was begun.
type watch struct {
	attr  int
	e     *events
	gone  func()
	taken atomic.Bool // by run, or by a stop before it: who takes it closes attr, and ended
	ended chan struct{}
}

// run looks at attr after every removal of anything, and from time to time.
func (w *watch) run() {
	if w.taken.Swap(true) {
		return
	}
	b := make([]byte, 16)
	for err := error(nil); err != os.ErrClosed; {
		if _, look := unix.Read(w.attr, b); look == syscall.ENODEV {
			w.gone()
		}
		w.e.SetReadDeadline(time.Now().Add(lookEvery))
		// An event begins with "remove@" and a path; of that which does not fit the
		// kernel drops the rest. Other events do not move the deadline. An error
		// may be that some were lost.
		for b[0], err = 0, nil; err == nil && b[0] != 'r'; {
			_, err = w.e.ReadWait(b)
		}
	}
	w.close()
}

// stop ends the watch, whether it is run or not.
func (w *watch) stop() {
	w.e.Close()
	if !w.taken.Swap(true) {
		w.close()
	}
	<-w.ended
}

// close is for who took the watch.
func (w *watch) close() {
	unix.Close(w.attr)
	close(w.ended)
}
