package uverbs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// ErrNoDevices: there is no RDMA device on this system, or none that this
// process may see. The error that wraps it says where was looked and what a
// machine without hardware can do.
var ErrNoDevices = errors.New("no RDMA devices")

// ErrUnknownDevice: no device has the name that was asked for. The error that
// wraps it lists those that exist.
var ErrUnknownDevice = errors.New("no such device")

// NodeType is what a device is in a fabric.
type NodeType = nldev.NodeType

// DeviceInfo is what the system says of a device without opening it.
type DeviceInfo struct {
	// Name is the kernel's name, such as "mlx5_0" or "rxe0".
	Name string
	// Index is the kernel's number of the device, for RDMA netlink; -1 when
	// netlink was not there to ask.
	Index int
	// Driver is the kernel driver; DriverUnknown when neither netlink nor
	// /sys tells.
	Driver Driver
	// UverbsName is the device's verbs file, such as "uverbs0", and Path
	// its name in /dev; "" when it has none. Rdev is its device number as
	// in st_rdev.
	UverbsName, Path string
	Rdev             uint64
	// ABIVersion is the revision of the driver's private part of the ABI.
	ABIVersion int

	NodeType               NodeType
	NodeGUID, SysImageGUID GUID
	// Firmware is the firmware's version; "" when the kernel knows of none.
	Firmware string
	// Protocol is "ib", "roce", "iw", "opa" or "usnic"; "" when not known.
	Protocol string
	// Ports is the number of ports. They are numbered from 1.
	Ports int
	// Netdev is the network device of the first port that has one.
	Netdev string

	// Err says why the device cannot be opened; nil when it can. That there
	// is no provider for its driver is no such reason: it can be opened and
	// asked.
	Err error
}

// Devices lists the RDMA devices, also those that cannot be opened: in the
// kernel's order, or by name where there is no RDMA netlink. Without any it
// returns an error that wraps ErrNoDevices.
func Devices() ([]DeviceInfo, error) { return discover(kernel.Host(), dialNetlink) }

// netlink is what discovery asks of RDMA netlink.
type netlink interface {
	Links() ([]nldev.Link, error)
	Ports(index uint32) ([]nldev.Port, error)
	Chardev(index uint32, kind string) (nldev.Chardev, error)
	Close() error
}

func dialNetlink() (netlink, error) {
	c, err := nldev.Dial()
	if err != nil {
		return nil, err // not a nil *Conn in an interface
	}
	return c, nil
}

// discover lists the devices of a system, and tries whether they can be opened.
func discover(k kernel.Kernel, dial func() (netlink, error)) ([]DeviceInfo, error) {
	list, err := listDevices(k, dial, "")
	for i := range list {
		if list[i].Err == nil {
			list[i].tryOpen(k)
		}
	}
	return list, err
}

// listDevices lists the devices of a system. Netlink comes first: it alone knows
// the driver for sure and sees the devices of the own network namespace only.
// A kernel, or sandbox, without it leaves /sys. If there is a name, of other
// devices than that nothing but the name is sure to be there, and of that one
// netlink is not asked for Netdev.
func listDevices(k kernel.Kernel, dial func() (netlink, error), name string) ([]DeviceInfo, error) {
	list, err := netlinkDevices(dial, name)
	if err != nil {
		var errSys error
		list, errSys = sysfsDevices(k.Sysfs())
		switch {
		case errors.Is(errSys, fs.ErrNotExist):
			return nil, noDevices(fmt.Sprintf("netlink: %v; /sys/class/infiniband does not exist", err))
		case errSys != nil:
			return nil, fmt.Errorf("goverbs: list the devices: %w", errors.Join(err, errSys))
		}
	}
	if len(list) == 0 {
		return nil, noDevices("the kernel has RDMA support but no device in this network namespace")
	}
	for i := range list {
		switch d := &list[i]; {
		case d.UverbsName != "":
			d.Path = "/dev/infiniband/" + d.UverbsName
		case d.Err == nil:
			d.Err = fmt.Errorf("goverbs: %s has no uverbs file: is the module ib_uverbs loaded?", d.Name)
		}
	}
	return list, nil
}

func noDevices(reason string) error {
	return fmt.Errorf("goverbs: %w: %s (without RDMA hardware, as root: rdma link add rxe0 type rxe netdev eth0; for tests: package uverbs/sim)", ErrNoDevices, reason)
}

// netlinkDevices is listDevices through RDMA netlink.
func netlinkDevices(dial func() (netlink, error), name string) ([]DeviceInfo, error) {
	c, err := dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		return nil, err
	}
	list := make([]DeviceInfo, len(links))
	for i := range links {
		l, info := &links[i], &list[i]
		info.Name, info.Index, info.NodeType = l.Name, int(min(l.Index, 1<<31-1)), l.NodeType
		info.NodeGUID, info.SysImageGUID = GUID(l.NodeGUID), GUID(l.SysImageGUID)
		info.Firmware, info.Protocol, info.Ports = l.Firmware, l.Protocol, int(min(l.Ports, 1<<31-1))
		if name != "" && name != l.Name {
			continue
		}
		if name == "" {
			info.Netdev = netdevOf(c, l.Index)
		}
		d, err := c.Chardev(l.Index, "uverbs")
		switch {
		case errors.Is(err, nldev.ErrMalformed), isErrno(err, syscall.EINVAL, syscall.EPERM):
			// A kernel before 5.1 has no such question.
			return nil, err
		case err != nil:
			info.Err = fmt.Errorf("goverbs: %s has no uverbs file: is the module ib_uverbs loaded? (%w)", l.Name, err)
		default:
			info.UverbsName, info.Rdev, info.Driver = d.Name, d.Dev, Driver(d.DriverID)
			info.ABIVersion = int(min(d.ABI, 1<<31-1))
		}
	}
	return list, nil
}

// netdevOf is the network device of the first port that has one. A device
// without ports to list is still a device.
func netdevOf(c netlink, index uint32) string {
	ports, err := c.Ports(index)
	if err != nil {
		return ""
	}
	for _, p := range ports {
		if p.Netdev != "" {
			return p.Netdev
		}
	}
	return ""
}

// tryOpen opens the device's file for a moment. Opening makes no verbs context
// and changes nothing on the device.
func (i *DeviceInfo) tryOpen(k kernel.Kernel) {
	f, err := i.open(k)
	if err != nil {
		i.Err = err
		return
	}
	f.Close()
}

// open opens the device's file: by the kernel's name, or by udev's index of
// device numbers where a rule has renamed the file.
func (i *DeviceInfo) open(k kernel.Kernel) (kernel.File, error) {
	f, err := k.Open(i.Path, i.Rdev)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, fs.ErrNotExist) || isErrno(err, syscall.ENXIO) {
		major, minor := splitDevice(i.Rdev)
		path := fmt.Sprintf("/dev/char/%d:%d", major, minor)
		if f, err := k.Open(path, i.Rdev); err == nil {
			i.Path = path
			return f, nil
		}
	}
	return nil, i.explainOpen(err)
}

// explainOpen says why the device's file does not open and what to do.
func (i *DeviceInfo) explainOpen(err error) error {
	text := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		text = "this user may not open it read-write: change the file's mode or group (udev gives it mode 0666), and in a container allow the device"
	case errors.Is(err, fs.ErrNotExist):
		text = "there is no such file: is udev running? A container needs the device passed in (docker run --device " + i.Path + ")"
	case isErrno(err, syscall.ENXIO):
		major, minor := splitDevice(i.Rdev)
		text = fmt.Sprintf("it is not the device %d:%d", major, minor)
	case isErrno(err, syscall.ENODEV, syscall.EIO):
		text, err = "the device is being removed", kernelError(err)
	}
	return &Error{Op: "open " + i.Path, Device: i.Name, Hint: text, Err: err}
}

// find picks a device by name. The error names those that exist.
func find(list []DeviceInfo, name string) (*DeviceInfo, error) {
	var names []string
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
		names = append(names, list[i].Name)
	}
	return nil, fmt.Errorf("goverbs: %w: %q: there are %s", ErrUnknownDevice, name, strings.Join(names, ", "))
}
