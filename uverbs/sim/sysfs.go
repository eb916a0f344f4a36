package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/mlx5/model"
)

// sysfs is what /sys says of the devices of a model, as of the moment when it is
// read. No network devices are there, and no counters: the model has none.
func sysfs(m *model.Model) node {
	devices := m.Devices()
	var infiniband, verbs []node
	for i, d := range devices {
		infiniband = append(infiniband, deviceFolder(d))
		verbs = append(verbs, folder(verbsName(i),
			fixed("abi_version", "1"), // MLX5_IB_UVERBS_ABI_VERSION of rdma/mlx5-abi.h
			fixed("dev", fmt.Sprintf("%d:%d", verbsMajor, verbsMinor+i)),
			fixed("ibdev", d.Name()),
		))
	}
	verbs = append(verbs, fixed("abi_version", "6")) // IB_USER_VERBS_ABI_VERSION
	for _, l := range [][]node{infiniband, verbs} {
		slices.SortFunc(l, func(a, b node) int { return strings.Compare(a.name, b.name) })
	}
	return folder(".",
		folder("bus", folder("pci", folder("drivers", folder(driver)))),
		folder("class", folder("infiniband", infiniband...), folder("infiniband_verbs", verbs...)),
	)
}

// driver is that of the PCI device, by which the driver of the RDMA device is known.
const driver = "mlx5_core"

func deviceFolder(d *model.Device) node {
	guid := groups(binary.BigEndian.AppendUint64(nil, d.GUID()))
	var ports []node
	for n := range d.Ports() {
		ports = append(ports, portFolder(d, n+1))
	}
	return folder(d.Name(),
		folder("device", node{name: "driver", target: "../../../../bus/pci/drivers/" + driver}),
		fixed("fw_ver", d.Firmware()),
		fixed("node_guid", guid),
		fixed("node_type", "1: CA"),
		folder("ports", ports...),
		fixed("sys_image_guid", guid),
	)
}

func portFolder(d *model.Device, number int) node {
	// The port is there: they are counted once and for all.
	port := func() model.PortInfo { p, _ := d.Port(number); return p }
	choose := func(name, yes, no string, is func(model.PortInfo) bool) node {
		return attribute(name, func() string {
			if is(port()) {
				return yes
			}
			return no
		})
	}
	up := func(p model.PortInfo) bool { return p.Up }
	return folder(strconv.Itoa(number),
		folder("gid_attrs", table("types", func() []string {
			var types []string
			for _, g := range port().GIDs {
				types = append(types, gidTypes[g.Type])
			}
			return types
		})),
		table("gids", func() []string {
			var gids []string
			for _, g := range port().GIDs {
				gids = append(gids, groups(g.Addr[:]))
			}
			return gids
		}),
		attribute("lid", func() string { return fmt.Sprintf("%#x", port().LID) }),
		choose("link_layer", "InfiniBand", "Ethernet", func(p model.PortInfo) bool { return p.InfiniBand }),
		choose("phys_state", "5: LinkUp", "3: Disabled", up),
		table("pkeys", func() []string {
			var keys []string
			for _, k := range port().PKeys {
				keys = append(keys, fmt.Sprintf("%#04x", k))
			}
			return keys
		}),
		choose("state", "4: ACTIVE", "1: DOWN", up),
	)
}

// gidTypes are the kernel's words for types of GIDs. It has one for two of them.
var gidTypes = map[model.GIDType]string{model.GIDInfiniBand: "IB/RoCE v1", model.GIDRoCE1: "IB/RoCE v1", model.GIDRoCE2: "RoCE v2"}

// table is a folder of files that are numbered from 0, of one line each.
func table(name string, lines func() []string) node {
	return node{name: name, list: func() []node {
		var files []node
		for i, l := range lines() {
			files = append(files, fixed(strconv.Itoa(i), l))
		}
		return files
	}}
}

// groups prints bytes in groups of two, as /sys does.
func groups(b []byte) string {
	var s []string
	for pair := range slices.Chunk(b, 2) {
		s = append(s, fmt.Sprintf("%x", pair))
	}
	return strings.Join(s, ":")
}
