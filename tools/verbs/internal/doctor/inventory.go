package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// A Device is an RDMA device, as netlink and /sys have it.
type Device struct {
	Name string
	// Index is netlink's number of it, -1 where netlink does not list it.
	Index int
	// Driver is the name of the kernel driver, such as "mlx5" or "rxe", and ""
	// where nobody tells.
	Driver   string
	Protocol string // "ib", "roce", "iw", "opa"; "" if not known
	Firmware string
	Ports    []Port

	// Dir is its folder in /sys, such as "sys/class/infiniband/mlx5_0"; ""
	// where /sys does not list it.
	Dir string

	// Uverbs is the name of its verbs file, such as "uverbs0", and Rdev the
	// device number; "" and 0 if it has none that is known. ABI is the
	// revision of the driver's private part of the interface.
	Uverbs string
	Rdev   uint64
	ABI    uint64
	// UverbsErr is why netlink does not tell the verbs file.
	UverbsErr error
}

// A Port is a port of a device.
type Port struct {
	Index     int // from 1
	State     nldev.PortState
	PhysState nldev.PortPhysState
	// LinkLayer is "InfiniBand" or "Ethernet"; "" if not known.
	LinkLayer string
	// Netdev is the network device of the port; "" where there is none in
	// this network namespace.
	Netdev string
	LID    uint32
	SMLID  uint32
}

// Object is how findings name the port.
func (d *Device) Object(p *Port) string { return d.Name + "/" + strconv.Itoa(p.Index) }

// Path is the device's file as the kernel names it.
func (d *Device) Path() string { return "/dev/infiniband/" + d.Uverbs }

// PortDir is the port's folder in /sys, or "".
func (d *Device) PortDir(p *Port) string {
	if d.Dir == "" {
		return ""
	}
	return d.Dir + "/ports/" + strconv.Itoa(p.Index)
}

const (
	classDevices = "sys/class/infiniband"
	classFiles   = "sys/class/infiniband_verbs"
)

// inventory lists the devices that netlink or /sys has, in the order of the names.
func (n *Node) inventory() ([]Device, error) {
	byName := make(map[string]*Device)
	at := func(name string) *Device {
		d, ok := byName[name]
		if !ok {
			d = &Device{Name: name, Index: -1}
			byName[name] = d
		}
		return d
	}
	errNetlink := n.netlinkDevices(at)
	errSysfs := n.sysfsDevices(at)
	var all []Device
	for _, d := range byName {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	if errors.Is(errNetlink, nldev.ErrNoRDMA) {
		errNetlink = nil // no devices, which is no error
	}
	if errors.Is(errSysfs, fs.ErrNotExist) {
		errSysfs = nil
	}
	return all, errors.Join(errNetlink, errSysfs)
}

var errNoVerbs = errors.New("not asked, as ib_uverbs is not loaded")

// netlinkDevices adds what netlink knows.
func (n *Node) netlinkDevices(at func(name string) *Device) error {
	c, err := n.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		d := at(l.Name)
		d.Index, d.Protocol, d.Firmware = int(min(l.Index, 1<<31-1)), l.Protocol, l.Firmware
		if n.absent("ib_uverbs", classFiles) {
			// To ask would have the kernel load ib_uverbs.
			d.UverbsErr = errNoVerbs
		} else if f, err := c.Chardev(l.Index, "uverbs"); err != nil {
			d.UverbsErr = err
		} else {
			d.Uverbs, d.Rdev, d.ABI, d.Driver = f.Name, f.Dev, f.ABI, uverbs.Driver(f.DriverID).String()
			if f.DriverID == uint32(uverbs.DriverUnknown) {
				d.Driver = ""
			}
		}
		ports, err := c.Ports(l.Index)
		errs = append(errs, unseen(l.Name, err))
		for _, p := range ports {
			d.Ports = append(d.Ports, Port{
				Index: int(min(p.Index, 1<<31-1)), State: p.State, PhysState: p.PhysState, Netdev: p.Netdev, LID: p.LID, SMLID: p.SMLID,
			})
		}
	}
	return errors.Join(errs...)
}

// maxPorts is more than any device has.
const maxPorts = 256

// sysfsDevices adds what /sys knows, and what netlink did not tell.
func (n *Node) sysfsDevices(at func(name string) *Device) error {
	names, err := n.names(classDevices)
	if err != nil {
		return err
	}
	files := n.sysfsFiles()
	for _, name := range names {
		d := at(name)
		d.Dir = path.Join(classDevices, name)
		if f, ok := files[name]; ok && d.Uverbs == "" {
			d.Uverbs, d.Rdev, d.ABI = f.name, f.rdev, f.abi
		}
		if d.Driver == "" {
			d.Driver = n.sysfsDriver(d)
		}
		listed, _ := n.names(d.Dir + "/ports")
		for _, p := range listed {
			i, err := strconv.ParseUint(p, 10, 16)
			if err != nil || i == 0 || i > maxPorts || d.Index >= 0 && len(d.Ports) > 0 {
				continue
			}
			d.Ports = append(d.Ports, n.sysfsPort(d, int(i)))
		}
		slices.SortFunc(d.Ports, func(a, b Port) int { return a.Index - b.Index })
		for i := range d.Ports {
			d.Ports[i].LinkLayer, _ = n.line(d.PortDir(&d.Ports[i]) + "/link_layer")
		}
	}
	return nil
}

// sysfsPort is a port that netlink does not tell of.
func (n *Node) sysfsPort(d *Device, index int) Port {
	p := Port{Index: index}
	dir := d.PortDir(&p)
	number := func(file string) uint64 {
		// Such as "4: ACTIVE", or 0x1a.
		s, _ := n.line(dir + "/" + file)
		s, _, _ = strings.Cut(s, ":")
		v, _ := strconv.ParseUint(s, 0, 32)
		return v
	}
	p.State, p.PhysState = nldev.PortState(min(number("state"), 255)), nldev.PortPhysState(min(number("phys_state"), 255))
	p.LID, p.SMLID = uint32(number("lid")), uint32(number("sm_lid"))
	p.Netdev, _ = n.line(dir + "/gid_attrs/ndevs/0")
	return p
}

// sysfsDriver finds the name of the driver of a device of hardware, or of a soft one by its
// name.
func (n *Node) sysfsDriver(d *Device) string {
	if target, err := n.link(d.Dir + "/device/driver"); err == nil {
		return strings.TrimSuffix(strings.TrimSuffix(path.Base(target), "_core"), "_ib")
	}
	for _, soft := range []string{"rxe", "siw"} {
		if strings.HasPrefix(d.Name, soft) {
			return soft
		}
	}
	return ""
}

// verbsFile is a device file as /sys has it.
type verbsFile struct {
	name string
	rdev uint64
	abi  uint64
}

// sysfsFiles lists the verbs files by device.
func (n *Node) sysfsFiles() map[string]verbsFile {
	files := make(map[string]verbsFile)
	names, _ := n.names(classFiles)
	for _, name := range names {
		dir := classFiles + "/" + name
		device, err := n.line(dir + "/ibdev")
		if err != nil {
			continue // abi_version, which is a file
		}
		dev, _ := n.line(dir + "/dev")
		rdev, err := parseDev(dev)
		if err != nil {
			continue
		}
		abi, _ := n.line(dir + "/abi_version")
		v, _ := strconv.ParseUint(abi, 10, 31)
		files[device] = verbsFile{name, rdev, v}
	}
	return files
}

// parseDev reads a device number such as 231:192 as stat encodes it.
func parseDev(s string) (uint64, error) {
	major, minor, _ := strings.Cut(s, ":")
	x, errMajor := strconv.ParseUint(major, 10, 12)
	y, errMinor := strconv.ParseUint(minor, 10, 20)
	if errMajor != nil || errMinor != nil {
		return 0, fmt.Errorf("%.40q is no device number", s)
	}
	return x<<8 | y&0xff | y&^0xff<<12, nil
}

// devText is a device number as ls -l shows it.
func devText(dev uint64) string {
	return fmt.Sprintf("%d:%d", dev>>8&0xfff, dev&0xff|dev>>12&0xfff00)
}
