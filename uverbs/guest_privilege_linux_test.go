package uverbs_test

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// asChild runs the test's other half in a process of its own, whose privileges
// it may drop. It returns true in that process.
func asChild(t *testing.T) bool {
	t.Helper()
	const name = "GOVERBS_TEST_CHILD"
	if os.Getenv(name) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), name+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v:\n%s", err, out)
	}
	return false
}

// write sends one message over the pair and checks that it arrives.
func (p *pair) write(t *testing.T) {
	t.Helper()
	buf := p.mem.Bytes()
	copy(buf, "over the doorbell")
	p.a.SendQueue().Write(1, p.peer.Regions[0].At(4096), p.mr.Span(0, 17))
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	w := p.wait(t, 1)[0]
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	if got := string(buf[4096 : 4096+17]); got != "over the doorbell" {
		t.Fatalf("the peer has %q", got)
	}
	clear(buf[4096 : 4096+17])
}

// The kernel refuses the write() doorbell after a change of credentials; the
// ioctl takes over in the middle of a connection's life.
func TestGuestDoorbellAfterSetuid(t *testing.T) {
	onSoftRoCE(t, guestDevice(t), "its doorbells are no system calls")
	if !asChild(t) {
		return
	}
	p := newPair(t, false)
	p.write(t)
	if err := syscall.Setuid(1000); err != nil {
		t.Fatal(err)
	}
	p.write(t)
	p.write(t)
}

func TestGuestDoorbellByIoctlOnly(t *testing.T) {
	onSoftRoCE(t, guestDevice(t), "its doorbells are no system calls")
	t.Setenv("GOVERBS_NOWRITE", "1")
	p := newPair(t, false)
	p.write(t)
}

// An ordinary user with a small memlock limit is told the limit and the need.
func TestGuestMemlock(t *testing.T) {
	guestSystem(t).onMachine(t, "no kernel locks its memory")
	if !asChild(t) {
		return
	}
	p := newPair(t, false)
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setuid(1000); err != nil {
		t.Fatal(err)
	}
	mem, err := uverbs.Alloc(4<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	_, err = p.pd.Register(mem.Bytes(), uverbs.LocalWrite)
	if !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("register 4 MiB with a limit of 1 MiB: %v", err)
	}
	for _, part := range []string{"4194304 bytes", "1048576 bytes", "CAP_IPC_LOCK"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// A device file that the user may not open is listed with the reason, and Open
// says it too.
func TestGuestPermission(t *testing.T) {
	guestSystem(t).onMachine(t, "it has no file whose permissions could be missing")
	if !asChild(t) {
		return
	}
	all, err := uverbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(all[0].Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setresuid(1000, 1000, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setresuid(0, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(all[0].Path, 0o666); err != nil {
			t.Fatal(err)
		}
	}()
	all, err = uverbs.Devices()
	if err != nil || len(all) == 0 || !errors.Is(all[0].Err, os.ErrPermission) {
		t.Errorf("devices %+v, %v", all, err)
	}
	if _, err := uverbs.Open(all[0].Name, nil); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), all[0].Path) {
		t.Errorf("open: %v", err)
	}
}

func TestGuestOpenByAddress(t *testing.T) {
	s := guestSystem(t)
	name := s.name
	if _, err := s.open("mlx5_77"); !errors.Is(err, uverbs.ErrUnknownDevice) || !strings.Contains(err.Error(), name) {
		t.Errorf("a name that nobody has: %v", err)
	}
	d, err := s.openAddr(netip.MustParseAddr("10.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Name() != name {
		t.Errorf("opened %s, want %s", d.Name(), name)
	}
	_, err = s.openAddr(netip.MustParseAddr("192.0.2.55"))
	if !errors.Is(err, uverbs.ErrUnknownDevice) || !strings.Contains(err.Error(), "10.0.0.1 on "+name) {
		t.Errorf("an address that nobody has: %v", err)
	}
}

// A network device, or a port, that goes down and up again is two port events.
func TestGuestPortEvents(t *testing.T) {
	s := guestSystem(t)
	d := s.device(t)
	set := func(up bool) error { return setLink(d.Info().Netdev, up) }
	if s.fabric != nil {
		set = func(up bool) error { return s.fabric.Model().Device(s.name).SetPort(1, up) }
	}
	want := func(up bool, typ uverbs.EventType) {
		t.Helper()
		if err := set(up); err != nil {
			t.Fatal(err)
		}
		for deadline := time.After(patience); ; {
			select {
			case e := <-d.Events():
				if e.Type == typ && e.Port == 1 {
					return
				}
				t.Logf("also %v", e) // GID changes come along
			case <-deadline:
				t.Fatalf("no %v", typ)
			}
		}
	}
	want(false, uverbs.EventPortError)
	want(true, uverbs.EventPortActive)
}

// setLink takes a network device up or down.
func setLink(name string, up bool) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	flags := ifr.Uint16() &^ unix.IFF_UP
	if up {
		flags |= unix.IFF_UP
	}
	ifr.SetUint16(flags)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
}
