package fakekernel

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
)

// A completion channel reports one event for each arm, and destroying counts
// what was read.
func TestCompletionEvents(t *testing.T) {
	e := connect(t)
	p := e.p[1]
	channel := p.channel()
	q := p.cq(8, ref(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, uint64(channel.FD())))
	k := e.k
	k.mu.Lock()
	for _, o := range k.devices[1].contexts[0].objects {
		if u, ok := o.(*qp); ok {
			u.recv = k.devices[1].contexts[0].objects[q.handle].(*cq)
		}
	}
	k.mu.Unlock()
	send := func(flags uint32) {
		t.Helper()
		e.qp[1].recv(1)
		e.qp[0].send(opSend, flags, 2, nil, 0, 0)
		e.p[0].must(e.qp[0].ring())
		q.poll(t)
	}
	var b [8]byte
	read := func(what string, want error) {
		t.Helper()
		n, err := channel.Read(b[:])
		if err != want || err == nil && (n != 8 || ne.Uint64(b[:]) != 0xc0ffee) {
			t.Errorf("%s: %d, %v, %x", what, n, err, b)
		}
	}
	send(0)
	read("not armed", syscall.EAGAIN)
	p.arm(q, 0)
	send(0)
	send(0)
	if _, err := channel.Read(b[:4]); err != syscall.EINVAL {
		t.Errorf("too little room: %v", err)
	}
	read("armed", nil)
	read("one event for one arm", syscall.EAGAIN)
	p.arm(q, 1)
	send(0)
	read("armed for solicited ones", syscall.EAGAIN)
	send(flagSolicit)
	read("solicited", nil)
	p.arm(q, 0)
	p.arm(q, 1) // does not weaken the first
	send(0)
	p.arm(q, 0)
	send(0)
	read("armed for all", nil)

	resp := make([]byte, 8)
	k.mu.Lock()
	for _, o := range k.devices[1].contexts[0].objects {
		if u, ok := o.(*cq); ok {
			u.users = 0
		}
	}
	k.mu.Unlock()
	p.must(p.call(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY,
		ref(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, uint64(q.handle)), out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, resp)))
	if n := ne.Uint32(resp); n != 3 {
		t.Errorf("%d events reported, 3 were read", n)
	}
	read("an unread event of a destroyed CQ", syscall.EAGAIN)
	p.must(channel.Close())
}

func TestReadWait(t *testing.T) {
	k, p := one(t, Device{})
	e := p.asyncEvents()
	e.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
	var b [16]byte
	if _, err := e.ReadWait(b[:]); err != os.ErrDeadlineExceeded {
		t.Errorf("%v", err)
	}
	e.SetReadDeadline(time.Time{})
	got := make(chan error)
	wait := func() {
		_, err := e.ReadWait(b[:])
		got <- err
	}
	go wait()
	time.Sleep(2 * time.Millisecond)
	k.SetPort("rxe0", false)
	if err := <-got; err != nil || ne.Uint64(b[:]) != 1 || ne.Uint32(b[8:]) != eventPortErr {
		t.Errorf("%v, %x", err, b)
	}
	go wait()
	time.Sleep(2 * time.Millisecond)
	p.must(e.SetReadDeadline(time.Unix(1, 0)))
	if err := <-got; err != os.ErrDeadlineExceeded {
		t.Errorf("a deadline in the past: %v", err)
	}
	p.must(e.SetReadDeadline(time.Time{}))
	go wait()
	time.Sleep(2 * time.Millisecond)
	p.must(e.Close())
	if err := <-got; err != os.ErrClosed {
		t.Errorf("Close: %v", err)
	}
	_, err := e.Read(b[:])
	for what, err := range map[string]error{"read": err, "deadline": e.SetReadDeadline(time.Time{}), "close": e.Close()} {
		if err != os.ErrClosed {
			t.Errorf("%s: %v", what, err)
		}
	}
	if slices.ContainsFunc(k.Leaks(), func(s string) bool { return s[0] == 'd' }) {
		t.Errorf("leaks: %q", k.Leaks())
	}
}

func TestDescriptors(t *testing.T) {
	k, p := one(t, Device{})
	var fd uint64
	alloc := func() { // an asynchronous event file that nobody takes over
		t.Helper()
		p.must(p.call(abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, made(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, &fd)))
	}
	alloc()
	k.FailAt(Events, 1, syscall.ENOMEM)
	if _, err := p.f.Events(int(fd)); err != syscall.ENOMEM {
		t.Errorf("%v", err)
	}
	p.must(p.f.CloseFD(int(fd)))
	wantErr(t, "close twice", p.f.CloseFD(int(fd)), syscall.EBADF)
	_, err := p.f.Events(int(fd))
	wantErr(t, "take what is closed", err, syscall.EBADF)
	alloc()
	_, err = p.f.Events(int(fd))
	p.must(err)
	_, err = p.f.Events(int(fd))
	wantErr(t, "take twice", err, syscall.EBADF)
	wantErr(t, "close what is taken", p.f.CloseFD(int(fd)), syscall.EBADF)
}

func TestRemoveDevice(t *testing.T) {
	k, p := one(t, Device{})
	async, channel := p.asyncEvents(), p.channel()
	pd := p.allocPD()
	k.RemoveDevice("rxe0")
	var b [16]byte
	if n, err := async.Read(b[:]); n != 16 || err != nil || ne.Uint32(b[8:]) != eventDeviceFatal {
		t.Errorf("%d, %v, %x", n, err, b)
	}
	if _, err := channel.Read(b[:]); err != syscall.EIO {
		t.Errorf("completion channel: %v", err)
	}
	wantErr(t, "destroy", p.destroy(abi.UVERBS_OBJECT_PD, pd), syscall.EIO)
	wantErr(t, "write", p.f.Write(nil), syscall.EIO)
	if _, err := k.Open("/dev/infiniband/uverbs0", 0); err != syscall.ENOENT {
		t.Errorf("open: %v", err)
	}
	n, err := k.Netlink()
	p.must(err)
	if links, _ := n.Links(); len(links) != 0 {
		t.Errorf("netlink still has %v", links)
	}
	if files := sysfs(k.devices); len(files) != 0 {
		t.Errorf("/sys still has %v", files)
	}
	p.must(p.f.Close())
	p.must(async.Close())
	p.must(channel.Close())
	if leaks := k.Leaks(); len(leaks) > 0 {
		t.Errorf("leaks: %q", leaks)
	}
}
