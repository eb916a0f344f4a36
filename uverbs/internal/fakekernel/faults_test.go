package fakekernel

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

func TestFailAt(t *testing.T) {
	k, p := one(t, Device{})
	before := k.Calls()
	k.FailAt(Ioctl, 2, syscall.ENOMEM)
	p.allocPD()
	wantErr(t, "the second", p.write(abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 8), make([]byte, 4)), syscall.ENOMEM)
	p.allocPD()
	if n := k.Calls() - before; n != 3 {
		t.Errorf("%d calls", n)
	}
	if n := k.Objects()["PD"]; n != 2 {
		t.Errorf("%d PDs after two that worked", n)
	}
	k.FailAt(AnyOp, 1, syscall.EMFILE)
	if _, err := k.Open("/dev/infiniband/uverbs0", 0); err != syscall.EMFILE {
		t.Errorf("open: %v", err)
	}
	if _, err := k.Alloc(1, kernel.AllocOptions{}); err != nil {
		t.Errorf("one failure was asked for: %v", err)
	}
}

func TestFailSeesTheCall(t *testing.T) {
	k, p := one(t, Device{})
	var calls []string
	k.Fail(func(c Call) error {
		calls = append(calls, c.String())
		return nil
	})
	pd := p.allocPD()
	p.must(p.destroy(abi.UVERBS_OBJECT_PD, pd))
	p.f.Ioctl(nil)
	p.f.Write(nil)
	k.Open("/dev/null", 0)
	k.Fail(nil)
	want := []string{
		"ioctl IB_USER_VERBS_CMD_ALLOC_PD", "ioctl UVERBS_METHOD_PD_DESTROY", "ioctl", "write", "open /dev/null",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("%q, want %q", calls, want)
	}
}

func TestInterruptedCallsAreMadeAgain(t *testing.T) {
	k, p := one(t, Device{})
	before := k.Calls()
	k.Interrupt(5)
	p.allocPD()
	if n := k.Calls() - before; n != 6 {
		t.Errorf("%d calls", n)
	}
}

func TestTamper(t *testing.T) {
	k, p := one(t, Device{})
	k.Tamper(func(c Call, attr uint16, b []byte) []byte {
		if c.Command == abi.IB_USER_VERBS_CMD_ALLOC_PD {
			return b[:0]
		}
		return b
	})
	resp := []byte{7, 7, 7, 7}
	p.must(p.write(abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 8), resp))
	if resp[0] != 7 {
		t.Error("a short answer was long")
	}
}

// A call that fails after it has made something takes it back.
func TestFailedCallsLeaveNothing(t *testing.T) {
	k, p := one(t, Device{})
	nowhere := attr{id: abi.UVERBS_ATTR_CORE_OUT, n: 4, data: 8}
	for _, command := range []uint32{abi.IB_USER_VERBS_CMD_ALLOC_PD, abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL} {
		wantErr(t, "an answer to nowhere", p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE,
			in64(abi.UVERBS_ATTR_WRITE_CMD, uint64(command)), in(abi.UVERBS_ATTR_CORE_IN, make([]byte, 8)), nowhere), syscall.EFAULT)
	}
	p.must(p.f.Close())
	if leaks := k.Leaks(); len(leaks) > 0 {
		t.Errorf("left over: %q", leaks)
	}
}

func TestLeaks(t *testing.T) {
	k, p := one(t, Device{})
	p.reg(p.allocPD(), pages(2*pageSize), 0)
	p.asyncEvents()
	p.channel()
	p.cq(1)
	m, err := k.Alloc(100, kernel.AllocOptions{})
	p.must(err)
	leaks := strings.Join(k.Leaks(), "\n")
	for _, want := range []string{
		"file uverbs0 is open", "an asynchronous event file, is open", "a completion channel, is open",
		"the ring of a CQ of 4096 bytes is mapped", "100 bytes are allocated", "PD with handle 0 exists",
		"MR with handle 1 exists", "CQ with handle 2 exists", "2 pages are pinned",
	} {
		if !strings.Contains(leaks, want) {
			t.Errorf("%q is missing in\n%s", want, leaks)
		}
	}
	p.must(m.Unmap())
	if strings.Contains(strings.Join(k.Leaks(), "\n"), "allocated") {
		t.Error("memory that was unmapped is still counted")
	}
}

func TestSysfs(t *testing.T) {
	k := New(Device{}, Device{NoUverbs: true})
	want := []string{
		"class/infiniband/rxe0/node_guid", "class/infiniband/rxe0/ports/1/gids/1", "class/infiniband/rxe1/ports/1/pkeys/0",
		"class/infiniband_verbs/uverbs0/dev", "class/infiniband_verbs/abi_version",
	}
	if err := fstest.TestFS(k.Sysfs(), want...); err != nil {
		t.Error(err)
	}
}

func TestNetlink(t *testing.T) {
	k := New(Device{}, Device{NoUverbs: true})
	n, err := k.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Chardev(1, "uverbs"); err != syscall.ENOENT {
		t.Errorf("a device without uverbs: %v", err)
	}
	if _, err := n.Ports(7); err != syscall.ENODEV {
		t.Errorf("no such device: %v", err)
	}
	k.SetNetlink(syscall.EPROTONOSUPPORT)
	if _, err := k.Netlink(); err != syscall.EPROTONOSUPPORT {
		t.Errorf("no netlink: %v", err)
	}
}
