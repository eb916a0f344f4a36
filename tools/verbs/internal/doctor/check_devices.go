package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// checkSystem says where there can be no RDMA.
var checkSystem = Check{
	Name:  "system",
	About: "the operating system, and what of it this process sees",
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		n.saw("%s %s %s", n.System, n.Release, n.Machine)
		if n.System != "linux" {
			return []Finding{{
				Severity: Fault,
				What:     "RDMA verbs need Linux",
				Seen:     "this is " + n.System,
				Mend:     "run it on Linux; package uverbs/sim and verbs demo work everywhere",
			}}, nil
		}
		var found []Finding
		unmounted := func(dir, kind, what string) {
			found = append(found, Finding{
				Severity: Note,
				What:     fmt.Sprintf("%s is not mounted: %s were not looked at", dir, what),
				Seen:     dir + " is empty, or does not exist",
				Mend:     fmt.Sprintf("mount -t %s %[1]s %s # or run verbs doctor outside of this container or chroot", kind, dir),
			})
		}
		if !n.procfs() {
			unmounted("/proc", "proc", "the limits of the process, its control groups and the kernel's modules")
		}
		if !n.sysfs() {
			unmounted("/sys", "sysfs", "adapters without a driver, and how devices are attached and set up,")
		}
		return found, nil
	},
}

// checkDevices finds that there is no device to work with.
var checkDevices = Check{
	Name:  "devices",
	About: "the RDMA devices that netlink and /sys list",
	After: []string{"system", "modules"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		all, err := n.known.devices()
		var names []string
		for _, d := range all {
			names = append(names, d.Name)
			n.saw("%s: driver %s, index %d, file %s", d.Name, orUnknown(d.Driver), d.Index, orUnknown(d.Uverbs))
			if n.Device == "" && !slices.ContainsFunc(n.devices(), func(g Device) bool { return g.Name == d.Name }) {
				n.saw("%s: not looked at, as this container was not given its file %s, but that of another device", d.Name, d.Path())
			}
		}
		switch {
		case len(all) == 0 && err == nil:
			return []Finding{n.noDevice()}, nil
		case n.Device != "" && len(n.devices()) == 0 && len(all) > 0:
			return []Finding{{
				Severity: Fault,
				Object:   n.Device,
				What:     "there is no device of that name",
				Seen:     "netlink and /sys/class/infiniband list " + strings.Join(names, ", "),
				Mend:     fmt.Sprintf("verbs doctor -d %s", names[0]),
			}}, err
		}
		return nil, err
	},
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
