package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/goverbs/goverbs/abi"
)

// leastKernel is the first whose interface has all that the library calls.
var leastKernel = version{5, 10, 0}

// checkInterface looks at the versions of the interface between programs and kernel.
var checkInterface = Check{
	Name:  "interface",
	About: "the versions of the verbs interface and of each driver's part of it",
	After: []string{"system", "modules", "devices"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		devices := n.devices()
		if len(devices) == 0 {
			return nil, nil
		}
		var found []Finding
		if v, _, ok := parseVersion(n.Release); ok && v.compare(leastKernel) < 0 {
			found = append(found, Finding{
				Severity: Fault,
				What:     "the kernel is too old: goverbs needs Linux 5.10 or newer",
				Seen:     "uname -r is " + n.Release,
				Mend:     "boot Linux 5.10 or newer; programs of libibverbs work with this one",
			})
		}
		var errs []error
		text, err := n.line(classFiles + "/abi_version")
		switch {
		case err == nil:
			n.saw("/%s/abi_version is %s", classFiles, text)
			if text != fmt.Sprint(abi.IB_USER_VERBS_ABI_VERSION) {
				found = append(found, Finding{
					Severity: Fault,
					What:     fmt.Sprintf("the kernel's verbs interface has version %.20s, and goverbs speaks %d", text, abi.IB_USER_VERBS_ABI_VERSION),
					Seen:     fmt.Sprintf("/%s/abi_version is %.20s", classFiles, text),
					Mend:     "use a kernel whose ib_uverbs is that of kernel.org, or a newer goverbs",
				})
			}
		case !errors.Is(err, fs.ErrNotExist): // that there is none is told elsewhere
			errs = append(errs, err)
		}
		return append(found, n.providers(devices)...), errors.Join(errs...)
	},
}

// A provider is a driver that the library has a data path for.
var providers = map[string]struct {
	abi  uint64 // the version of its private part of the interface
	from string
}{
	"mlx5": {abi.MLX5_IB_UVERBS_ABI_VERSION, "MLX5_IB_UVERBS_ABI_VERSION"},
	"rxe":  {2, "RXE_UVERBS_ABI_VERSION"},
}

// providers finds devices that the library cannot drive.
func (n *Node) providers(devices []Device) []Finding {
	var found []Finding
	others := false // drives any other
	for _, d := range devices {
		_, ok := providers[d.Driver]
		others = others || ok
	}
	for _, d := range devices {
		if d.Uverbs == "" || d.Driver == "" {
			continue
		}
		p, ok := providers[d.Driver]
		n.saw("%s: driver %s, version %d", d.Name, d.Driver, d.ABI)
		switch {
		case !ok:
			f := Finding{
				Severity: Warning, Object: d.Name,
				What: fmt.Sprintf("goverbs has no data path for the driver %s: it lists and asks the device, and makes no queues on it", d.Driver),
				Seen: "RDMA netlink, GET_CHARDEV: the driver is " + d.Driver,
				Mend: "use a ConnectX or soft-RoCE (rdma link add rxe0 type rxe netdev " + netdevOf(&d) + "), or libibverbs with this device",
			}
			if others && n.Device == "" {
				f.Severity = Note
			}
			found = append(found, f)
		case d.ABI != p.abi:
			found = append(found, Finding{
				Severity: Fault, Object: d.Name,
				What: fmt.Sprintf("the driver %s speaks version %d of its private interface, and goverbs %d", d.Driver, d.ABI, p.abi),
				Seen: fmt.Sprintf("RDMA netlink, GET_CHARDEV, and /%s/%s/abi_version: %d", classFiles, d.Uverbs, d.ABI),
				Mend: "use a kernel whose driver is that of kernel.org (" + p.from + " in its headers), or a newer goverbs",
			})
		}
	}
	return found
}

// netdevOf is the network device of the first of a device's ports that has one, for a command.
func netdevOf(d *Device) string {
	for _, p := range d.Ports {
		if p.Netdev != "" {
			return p.Netdev
		}
	}
	return "NETDEV"
}
