package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/tools/internal/printable"
)

// checkFiles looks at the devices' files, and tries to open them.
var checkFiles = Check{
	Name:  "files",
	About: "the verbs files of the devices: whether they exist, are the right ones, and open",
	After: []string{"system", "modules", "devices", "namespace"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		var found []Finding
		var errs []error
		for _, d := range n.devices() {
			f, ok, err := n.checkFile(&d)
			if ok {
				f.Object = d.Name
				found = append(found, f)
			}
			errs = append(errs, unseen(d.Name, err))
		}
		return found, errors.Join(errs...)
	},
}

// file is the path of a device's file. The library opens it by the kernel's name, or by the
// number below /dev/char when udev has renamed it.
func (n *Node) file(d *Device) string {
	path := d.Path()
	if d.Rdev != 0 {
		if char := "/dev/char/" + devText(d.Rdev); n.missing(path) && !n.missing(char) {
			return char
		}
	}
	return path
}

// checkFile looks at the file of one device.
func (n *Node) checkFile(d *Device) (f Finding, found bool, _ error) {
	if d.Uverbs == "" {
		f = Finding{Severity: Fault, What: "it has no verbs file, so that no program can use it", Mend: "modprobe ib_uverbs"}
		f.Seen = "/sys/class/infiniband_verbs has no file of it"
		if d.UverbsErr != nil {
			f.Seen = "RDMA netlink, GET_CHARDEV: " + printable.Error(d.UverbsErr) + "; " + f.Seen
		}
		return f, true, nil
	}
	path := n.file(d)
	s, err := n.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return n.missingFile(d), true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return f, false, err
	}
	if err == nil {
		n.saw("%s: %s is %v, owner %d:%d, device %s", d.Name, path, s.Mode, s.UID, s.GID, devText(s.Rdev))
		if s.Mode&fs.ModeCharDevice == 0 || d.Rdev != 0 && s.Rdev != d.Rdev {
			return n.wrongFile(d, path, s), true, nil
		}
	}
	if n.PID > 0 && err == nil {
		if f, ok, err := n.forProcess(d, path, s); ok || err != nil {
			return f, ok, err
		}
	}
	if err = n.Open(path); err == nil {
		n.saw("%s: %s opens for reading and writing", d.Name, path)
		return f, false, nil
	}
	f.Severity = Fault
	f.Seen = fmt.Sprintf("open(%s, O_RDWR): %s", path, reason(err))
	switch {
	case errors.Is(err, syscall.EPERM):
		// The file's own permissions give EACCES.
		f.What, f.Mend = n.deniedDevice(d, path)
	case errors.Is(err, fs.ErrPermission):
		f.What, f.Seen, f.Mend = n.denied(path, s, f.Seen)
	case errors.Is(err, syscall.ENXIO):
		f.What = "there is no device behind its file, which is left from an earlier one"
		f.Mend = n.makeFile(d)
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EIO):
		f.What = "it is being removed, or has failed"
		f.Mend = "dmesg | tail -50 # says which"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		f.What = "this process, or the machine, may open no more files"
		f.Mend = "ulimit -n 65536"
	default:
		f.What = "its file does not open"
		f.Mend = "strace -e openat verbs devinfo -d " + d.Name
	}
	return f, true, nil
}

// reason is the last of a chain of errors.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return printable.Error(err)
}

func (n *Node) missing(path string) bool {
	_, err := n.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// missingFile is said of a device without file in /dev.
func (n *Node) missingFile(d *Device) Finding {
	f := Finding{
		Severity: Fault,
		Seen:     fmt.Sprintf("stat(%s): no such file or directory, and the kernel has it as device %s", d.Path(), devText(d.Rdev)),
	}
	c := n.container()
	if c.kind == "" {
		f.What = "its file does not exist: nobody has made it, as udev does"
		f.Mend = n.makeFile(d)
		return f
	}
	f.What = "its file was not passed into this container, which sees the device all the same"
	f.Seen += "; " + c.seen
	f.Mend = passDevice(c.kind, d)
	return f
}

// wrongFile is said of a file that is none, or another's.
func (n *Node) wrongFile(d *Device, path string, s Stat) Finding {
	f := Finding{
		Severity: Fault,
		What:     "its file is none of a device",
		Seen:     fmt.Sprintf("stat(%s): %v", path, s.Mode),
		Mend:     "rm " + path + "\n" + n.makeFile(d),
	}
	if s.Mode.IsDir() { // which container engines make of what they are to mount and do not find
		f.Mend = "rmdir " + path + "\n" + n.makeFile(d)
	}
	if s.Mode&fs.ModeCharDevice != 0 {
		f.What = "its file is that of another device"
		f.Seen = fmt.Sprintf("stat(%s): device %s, and the kernel has %s as %s", path, devText(s.Rdev), d.Uverbs, devText(d.Rdev))
		f.Mend = "rm " + path + "\n" + n.makeFile(d)
	}
	if c := n.container(); c.kind != "" {
		f.Mend = "restart the container: the device was made anew after the container had begun\n" + passDevice(c.kind, d)
	}
	return f
}

// makeFile is the command that makes a device's file.
func (n *Node) makeFile(d *Device) string {
	if n.exists("run/udev/control") {
		return "udevadm trigger --action=add --subsystem-match=infiniband_verbs"
	}
	major, minor, _ := strings.Cut(devText(d.Rdev), ":")
	return fmt.Sprintf("mkdir -p /dev/infiniband && mknod -m 0666 %s c %s %s", d.Path(), major, minor)
}

// passDevice is how to let a container have a device.
func passDevice(kind string, d *Device) string {
	major, _, _ := strings.Cut(devText(d.Rdev), ":")
	switch kind {
	case "kubernetes":
		return "install an RDMA device plug-in (k8s-rdma-shared-dev-plugin, sriov-network-device-plugin), and add its resource to the container: resources: {limits: {rdma/hca: 1}}"
	case "lxc":
		return fmt.Sprintf("lxc config device add CONTAINER %s unix-char path=%s", d.Uverbs, d.Path())
	case "podman":
		return fmt.Sprintf("podman run --device %s ...", d.Path())
	}
	return fmt.Sprintf("docker run --device %s ... # or --device-cgroup-rule 'c %s:* rmw' where the file is mounted by other means", d.Path(), major)
}

// deniedDevice is said when the rules for devices of the control group deny one.
func (n *Node) deniedDevice(d *Device, path string) (what, mend string) {
	what = "the control group of this process may not use the device, whatever the file's permissions are"
	if c := n.container(); c.kind != "" {
		return what, passDevice(c.kind, d)
	}
	// The first version has files for it, the second a program in the kernel.
	if h, err := n.hierarchy("devices"); err == nil && !h.unified && len(h.levels) > 0 {
		allow := func(number string) string {
			return fmt.Sprintf("echo 'c %s rwm' > /%s/devices.allow", number, h.levels[0])
		}
		if list, _ := n.line(h.levels[0] + "/devices.list"); strings.HasPrefix(list, "a ") {
			// All is allowed but what was denied, which is not listed, and has
			// to be taken back as it was written.
			major, _, _ := strings.Cut(devText(d.Rdev), ":")
			return what, allow(devText(d.Rdev)) + "\n" + allow(major+":*")
		}
		return what, allow(devText(d.Rdev))
	}
	return what, fmt.Sprintf("systemctl set-property UNIT 'DeviceAllow=%s rw' # and start UNIT again", path)
}

// denied is said when this user may not open the file.
func (n *Node) denied(path string, s Stat, seen string) (what, alsoSeen, mend string) {
	c, err := n.credentials()
	if err != nil || s.Mode == 0 {
		return "this user may not open its file", seen, "chmod 0666 " + path
	}
	seen += fmt.Sprintf("; mode %04o, owner %d:%d; this process is user %d, group %d", s.Mode.Perm(), s.UID, s.GID, c.uid, c.gid)
	if s.allows(&c) {
		if m, ok := n.mountOf(path); ok && slices.Contains(m.options, "nodev") {
			return "its file lies where device files do not count", fmt.Sprintf("%s; %s is mounted nodev", seen, m.point), "mount -o remount,dev " + m.point
		}
		return "a security module (SELinux, AppArmor) forbids this process to open its file, whose permissions allow it", seen,
			"ausearch -m avc -ts recent # or: dmesg | grep -i apparmor; it names the rule"
	}
	if group, ok := n.account("etc/group", uint64(s.GID)); ok && s.Mode.Perm()&0o060 == 0o060 && s.GID != 0 {
		user, _ := n.account("etc/passwd", c.uid)
		return "this user is not in the group that may open its file", seen, fmt.Sprintf("usermod -aG %s %s # and log in again", group, user)
	}
	return "this user may not open its file", seen, "chmod 0666 " + path + " # udev's rules of rdma-core give that mode for good"
}

// forProcess is what -pid asks: may that process open the file?
func (n *Node) forProcess(d *Device, path string, s Stat) (f Finding, found bool, _ error) {
	c, err := n.credentials()
	if err != nil || s.allows(&c) {
		return f, false, err
	}
	f = Finding{
		Severity: Fault,
		What:     fmt.Sprintf("process %d may not open its file", n.PID),
		Seen:     fmt.Sprintf("stat(%s): mode %04o, owner %d:%d; /%s/status: user %d, group %d", path, s.Mode.Perm(), s.UID, s.GID, n.process(), c.uid, c.gid),
		Mend:     "chmod 0666 " + path + " # udev's rules of rdma-core give that mode for good",
	}
	return f, true, nil
}

// allows tells whether the permissions let a process read and write.
func (s *Stat) allows(c *credentials) bool {
	perm := s.Mode.Perm()
	switch {
	case c.may(capDACOverride): // the files are the machine's: in a user namespace it does not count
		return true
	case uint64(s.UID) == c.uid:
		return perm&0o600 == 0o600
	case uint64(s.GID) == c.gid || slices.Contains(c.groups, uint64(s.GID)):
		return perm&0o060 == 0o060
	}
	return perm&0o006 == 0o006
}

// account finds the name of a number in /etc/passwd or /etc/group, which have it third; where
// there is none it is the number.
func (n *Node) account(file string, id uint64) (name string, ok bool) {
	number := strconv.FormatUint(id, 10)
	s, _ := n.read(file)
	for line := range strings.Lines(s) {
		if f := strings.Split(line, ":"); len(f) > 2 && f[2] == number && f[0] != "" {
			return f[0], true
		}
	}
	return number, false
}
