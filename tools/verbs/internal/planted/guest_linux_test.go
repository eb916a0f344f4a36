package planted

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// What rxevm has made: rxe0 on dummy0, which has 10.0.0.1/24.
const (
	device = "rxe0"
	netdev = "dummy0"
	file   = "/dev/infiniband/uverbs0"
	groups = "/sys/fs/cgroup"
)

var (
	address     = netip.MustParseAddr("10.0.0.1")
	unspecified = netip.IPv4Unspecified()
	gid         = netip.MustParseAddr("::ffff:10.0.0.1")
)

// asNobody runs a program without privileges.
func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
}

// elsewhere runs a program in a network namespace of its own.
func elsewhere(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET }

// onRDMA calls f with RDMA netlink.
func onRDMA(t *testing.T, f func(c *nldev.Conn) error) {
	t.Helper()
	c, err := nldev.Dial()
	must(t, err)
	defer c.Close()
	must(t, f(c))
}

// removeDevice removes rxe0.
func removeDevice(t *testing.T) {
	t.Helper()
	onRDMA(t, func(c *nldev.Conn) error {
		links, err := c.Links()
		if err != nil || len(links) != 1 {
			return fmt.Errorf("devices %v, %w", links, err)
		}
		return c.DelLink(links[0].Index)
	})
}

// addDevice makes rxe0 again.
func addDevice(t *testing.T) {
	t.Helper()
	onRDMA(t, func(c *nldev.Conn) error { return c.NewLink(device, "rxe", netdev) })
	awaitActive(t)
}

// awaitActive waits until rxe0 is as rxevm has left it.
func awaitActive(t *testing.T) {
	t.Helper()
	await(t, "rxe0 is to be active", func() error {
		if s := portState(); s != "4: ACTIVE" {
			return fmt.Errorf("its state is %q", s)
		}
		if !hasGID() {
			return errors.New("it has no GID of 10.0.0.1")
		}
		if _, err := os.Stat(file); err != nil {
			return err
		}
		return nil
	})
}

// portState is what sysfs says of the port.
func portState() string {
	b, _ := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/state")
	return strings.TrimSpace(string(b))
}

// hasGID tells whether the table has the GID of the address.
func hasGID() bool {
	for i := range 8 {
		b, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids/%d", device, i))
		if err != nil {
			continue
		}
		if a, err := netip.ParseAddr(strings.TrimSpace(string(b))); err == nil && a == gid {
			return true
		}
	}
	return false
}

// onNetdev makes a call of the old sort about dummy0.
func onNetdev(t *testing.T, request uint, fill func(r *unix.Ifreq) error) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	r, err := unix.NewIfreq(netdev)
	must(t, err)
	must(t, fill(r))
	must(t, unix.IoctlIfreq(fd, request, r))
}

// setAddress gives dummy0 an address, or takes it by 0.0.0.0.
func setAddress(t *testing.T, a netip.Addr) {
	t.Helper()
	b := a.As4()
	onNetdev(t, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(b[:]) })
	if !a.IsUnspecified() {
		onNetdev(t, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) })
	}
}

// setUp switches dummy0 on or off.
func setUp(t *testing.T, up bool) {
	t.Helper()
	onNetdev(t, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		if up {
			r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		}
		return nil
	})
}

// setMTU sets dummy0's MTU.
func setMTU(t *testing.T, mtu int) {
	t.Helper()
	onNetdev(t, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(uint32(mtu)); return nil })
}

// setShared sets whether network namespaces share the devices. The kernel refuses while there
// is another namespace, and takes its time to end those that nobody uses any more.
func setShared(t *testing.T, shared bool) {
	t.Helper()
	mode := uint8(0)
	if shared {
		mode = 1
	}
	e := netlink.NewAttributeEncoder()
	e.Uint8(abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, mode)
	b, err := e.Encode()
	must(t, err)
	const family, nldevClient = 20, 5
	c, err := netlink.Dial(family, nil)
	must(t, err)
	defer c.Close()
	await(t, "set the netns mode", func() error {
		_, err := c.Execute(netlink.Message{
			Header: netlink.Header{Type: nldevClient<<10 | abi.RDMA_NLDEV_CMD_SYS_SET, Flags: netlink.Request | netlink.Acknowledge},
			Data:   b,
		})
		return err
	})
}

// loadModule loads a module of the kernel from where rxevm has put it.
func loadModule(t *testing.T, name string) {
	t.Helper()
	var u unix.Utsname
	must(t, unix.Uname(&u))
	f, err := os.Open(filepath.Join("/usr/lib/modules", unix.ByteSliceToString(u.Release[:]), name+".ko"))
	must(t, err)
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
		t.Fatalf("load %s: %v", name, err)
	}
}

// unloadModule unloads one that has just been left, perhaps.
func unloadModule(t *testing.T, name string) {
	t.Helper()
	await(t, "unload "+name, func() error { return unix.DeleteModule(name, unix.O_NONBLOCK) })
}

// A group is a control group for a program.
type group struct {
	dir string
	f   *os.File
}

// newGroup makes one with controllers and settings, given as pairs of a file and its content.
func newGroup(t *testing.T, controller string, settings ...string) *group {
	t.Helper()
	if controller != "" {
		must(t, os.WriteFile(groups+"/cgroup.subtree_control", []byte("+"+controller), 0))
	}
	g := &group{dir: groups + "/planted"}
	must(t, os.Mkdir(g.dir, 0o755))
	g.set(t, settings...)
	var err error
	g.f, err = os.Open(g.dir)
	must(t, err)
	return g
}

// set writes settings.
func (g *group) set(t *testing.T, settings ...string) {
	t.Helper()
	for i := 0; i < len(settings); i += 2 {
		must(t, os.WriteFile(filepath.Join(g.dir, settings[i]), []byte(settings[i+1]), 0))
	}
}

// in runs a program in the group.
func (g *group) in(cmd *exec.Cmd) {
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.f.Fd())
}

// remove takes the group away; its last process may still be counted.
func (g *group) remove(t *testing.T) {
	t.Helper()
	must(t, g.f.Close())
	await(t, "remove a control group", func() error { return os.Remove(g.dir) })
}
