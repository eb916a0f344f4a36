package uverbs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
)

// maxSysfsFile is the size of a page: no attribute of sysfs is larger.
const maxSysfsFile = 4096

// readSysfs reads one attribute and cuts the end of the line. Empty slots of
// some tables fail with EINVAL when read.
func readSysfs(sys fs.FS, name string) (string, error) {
	f, err := sys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, maxSysfsFile+1)
	n, err := io.ReadFull(f, b)
	switch err {
	case io.EOF, io.ErrUnexpectedEOF:
		return strings.TrimSuffix(string(b[:n]), "\n"), nil
	case nil:
		err = fmt.Errorf("/sys/%s: %w: more than %d bytes", name, ErrMalformed, maxSysfsFile)
	}
	return "", err
}

// sysfsNames lists a folder in the order of the names. (fs.ReadDir and slices.Sort
// would do it with more code in every program than all else in this file.)
func sysfsNames(sys fs.FS, dir string) ([]string, error) {
	f, err := sys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: syscall.ENOTDIR}
	}
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		at := len(names)
		names = append(names, e.Name())
		for ; at > 0 && names[at] < names[at-1]; at-- {
			names[at], names[at-1] = names[at-1], names[at]
		}
	}
	return names, nil
}

// sysfsValue reads an attribute through its parser and says where what does not
// parse stands.
func sysfsValue[T any](sys fs.FS, name string, parse func(string) (T, error)) (v T, err error) {
	b, err := readSysfs(sys, name)
	if err != nil {
		return v, err
	}
	if v, err = parse(b); err != nil {
		return v, fmt.Errorf("/sys/%s: %w", name, err)
	}
	return v, nil
}

// optional is sysfsValue for an attribute that not every device has.
func optional[T any](sys fs.FS, name string, parse func(string) (T, error)) (v T, err error) {
	v, err = sysfsValue(sys, name, parse)
	if err != nil && !errors.Is(err, ErrMalformed) {
		return v, nil
	}
	return v, err
}

func malformedText(s string, what string) error {
	return fmt.Errorf("%w: %.40q is not %s", ErrMalformed, s, what)
}

// parseName reads what names something in sysfs or /dev, and so has to be fit
// to be one element of a path.
func parseName(s string) (string, error) {
	if !isName(s) {
		return "", malformedText(s, "a name")
	}
	return s, nil
}

// isName tells whether s can stand alone in a path and be printed.
func isName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 63 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
}

// parseText reads a line of printable ASCII characters. It may be empty:
// soft-RoCE has no firmware version.
func parseText(s string) (string, error) {
	if len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", malformedText(s, "printable text")
	}
	return s, nil
}

// parseNumber reads a decimal or 0x-prefixed number of at most size bits.
func parseNumber(s string, size int) (uint64, error) {
	digits, base := s, 10
	if rest, ok := strings.CutPrefix(s, "0x"); ok {
		digits, base = rest, 16
	}
	n, err := strconv.ParseUint(digits, base, size)
	if err != nil || strings.HasPrefix(digits, "+") {
		return 0, malformedText(s, fmt.Sprintf("a number of %d bits", size))
	}
	return n, nil
}

// parseABIVersion reads the revision of a driver's private ABI.
func parseABIVersion(s string) (int, error) {
	n, err := parseNumber(s, 31)
	return int(n), err
}

// parseDev reads a device number, such as 231:192, into the encoding of
// st_rdev.
func parseDev(s string) (uint64, error) {
	major, minor, ok := strings.Cut(s, ":")
	if !ok {
		return 0, malformedText(s, "a device number")
	}
	// The kernel has 12 bits for the major number and 20 for the minor.
	x, errMajor := parseDecimal(major, 12)
	y, errMinor := parseDecimal(minor, 20)
	if errMajor != nil || errMinor != nil || x == 0 {
		return 0, malformedText(s, "a device number")
	}
	return deviceNumber(x, y), nil
}

func parseDecimal(s string, size int) (uint64, error) {
	if strings.HasPrefix(s, "0x") {
		return 0, malformedText(s, "a decimal number")
	}
	return parseNumber(s, size)
}

// deviceNumber packs a device number as the kernel does for stat and netlink
// (new_encode_dev).
func deviceNumber(major, minor uint64) uint64 {
	return major<<8 | minor&0xff | minor&^0xff<<12
}

// splitDevice is the inverse of deviceNumber.
func splitDevice(dev uint64) (major, minor uint64) {
	return dev >> 8 & 0xfff, dev&0xff | dev>>12&0xfff00
}

// parseGUID reads four groups of four hexadecimal digits.
func parseGUID(s string) (GUID, error) {
	var g GUID
	for rest, i := s, 0; ; i++ {
		group, after, more := strings.Cut(rest, ":")
		n, err := strconv.ParseUint(group, 16, 16)
		if err != nil || len(group) != 4 || more != (i < 3) {
			return 0, malformedText(s, "a GUID")
		}
		if g = g<<16 | GUID(n); !more {
			return g, nil
		}
		rest = after
	}
}

// parseNodeType reads a node type, such as "1: CA".
func parseNodeType(s string) (NodeType, error) {
	number, _, ok := strings.Cut(s, ":")
	n, err := parseDecimal(number, 8)
	if !ok || err != nil {
		return 0, malformedText(s, "a node type")
	}
	return NodeType(n), nil
}

// sysfsDevices lists the devices in /sys.
func sysfsDevices(sys fs.FS) ([]DeviceInfo, error) {
	nodes, err := sysfsNames(sys, "class/infiniband")
	if err != nil {
		return nil, err
	}
	files, errVerbs := sysfsUverbs(sys)
	if errVerbs != nil && !errors.Is(errVerbs, fs.ErrNotExist) {
		return nil, errVerbs
	}
	var list []DeviceInfo
	for _, n := range nodes {
		name, err := parseName(n)
		if err != nil {
			return nil, fmt.Errorf("/sys/class/infiniband: %w", err)
		}
		info, err := sysfsDevice(sys, name)
		if err != nil {
			return nil, err
		}
		if f, ok := files[name]; ok {
			info.UverbsName, info.Rdev, info.ABIVersion = f.name, f.rdev, f.abiVersion
		}
		list = append(list, info)
	}
	return list, nil
}

// uverbsFile is what /sys says of one uverbs file.
type uverbsFile struct {
	name       string
	rdev       uint64
	abiVersion int
}

// sysfsUverbs finds the uverbs files by the names of their devices.
func sysfsUverbs(sys fs.FS) (map[string]uverbsFile, error) {
	const class = "class/infiniband_verbs"
	names, err := sysfsNames(sys, class)
	if err != nil {
		return nil, err
	}
	files := make(map[string]uverbsFile)
	for _, name := range names {
		if !strings.HasPrefix(name, "uverbs") {
			continue // abi_version
		}
		f := uverbsFile{name: name}
		if !isName(f.name) {
			return nil, fmt.Errorf("/sys/%s: %w", class, malformedText(f.name, "a name"))
		}
		device, err := sysfsValue(sys, class+"/"+f.name+"/ibdev", parseName)
		if err == nil {
			f.rdev, err = sysfsValue(sys, class+"/"+f.name+"/dev", parseDev)
		}
		if err == nil {
			f.abiVersion, err = sysfsValue(sys, class+"/"+f.name+"/abi_version", parseABIVersion)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // the device went away while we looked
		}
		if err != nil {
			return nil, err
		}
		files[device] = f
	}
	return files, nil
}

// sysfsDevice reads what /sys says of one device.
func sysfsDevice(sys fs.FS, name string) (DeviceInfo, error) {
	dir := "class/infiniband/" + name
	info := DeviceInfo{Name: name, Index: -1, Driver: sysfsDriver(sys, name)}
	var errs [5]error
	info.NodeType, errs[0] = optional(sys, dir+"/node_type", parseNodeType)
	info.NodeGUID, errs[1] = optional(sys, dir+"/node_guid", parseGUID)
	info.SysImageGUID, errs[2] = optional(sys, dir+"/sys_image_guid", parseGUID)
	info.Firmware, errs[3] = optional(sys, dir+"/fw_ver", parseText)
	info.Netdev, errs[4] = sysfsNetdev(sys, dir)
	if err := errors.Join(errs[:]...); err != nil {
		return DeviceInfo{}, err
	}
	ports, err := sysfsNames(sys, dir+"/ports")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return DeviceInfo{}, err
	}
	for _, p := range ports {
		if n, err := parseDecimal(p, 16); err == nil && n >= 1 {
			info.Ports++
		}
	}
	return info, nil
}

// sysfsNetdev finds the network device: of the first GID, or the one that a
// soft device was made on.
func sysfsNetdev(sys fs.FS, dir string) (string, error) {
	name, err := optional(sys, dir+"/ports/1/gid_attrs/ndevs/0", parseName)
	if err != nil || name != "" {
		return name, err
	}
	return optional(sys, dir+"/parent", parseName)
}

// sysfsDriver finds the driver of a device: by the name of the driver of the
// PCI or platform device below it, or for soft devices, which have none, by
// the name that they usually get.
func sysfsDriver(sys fs.FS, name string) Driver {
	target, err := fs.ReadLink(sys, "class/infiniband/"+name+"/device/driver")
	if err == nil {
		module := target[strings.LastIndexByte(target, '/')+1:]
		for _, m := range modules {
			if m.name == module {
				return m.driver
			}
		}
		return DriverUnknown
	}
	for _, d := range []Driver{DriverRXE, DriverSIW} {
		if strings.HasPrefix(name, d.String()) {
			return d
		}
	}
	return DriverUnknown
}

// modules name the drivers of PCI and platform devices. Several RDMA drivers sit on top
// of a driver for Ethernet.
var modules = [...]struct {
	name   string
	driver Driver
}{
	{"mlx5_core", DriverMlx5}, {"mlx4_core", DriverMlx4}, {"cxgb4", DriverCxgb4}, {"ib_mthca", DriverMthca},
	{"bnxt_en", DriverBnxtRE}, {"i40e", DriverIrdma}, {"ice", DriverIrdma}, {"idpf", DriverIrdma},
	{"vmw_pvrdma", DriverPvrdma}, {"qede", DriverQedr}, {"hns3", DriverHNS}, {"hns_roce", DriverHNS},
	{"usnic_verbs", DriverUsnic}, {"hfi1", DriverHFI1}, {"qib", DriverQIB}, {"efa", DriverEFA},
	{"erdma", DriverERDMA}, {"mana", DriverMANA}, {"ionic", DriverIonic},
}
