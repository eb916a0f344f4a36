//go:build amd64 || arm64

package simproc

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/mlx5/model"
)

// entry is a file of /sys, or a link.
type entry struct {
	Path, Text, Link string
}

// sysfs is what /sys says of the devices of a model, below the folder class. number is
// what it says of a device file's number.
func sysfs(m *model.Model, number func(n int) string) []entry {
	var t []entry
	line := func(text string, path ...string) {
		t = append(t, entry{Path: filepath.Join(path...), Text: text + "\n"})
	}
	const verbs, infiniband = "infiniband_verbs", "infiniband"
	line("6", verbs, "abi_version") // IB_USER_VERBS_ABI_VERSION
	for i, d := range m.Devices() {
		node := uverbsName(i)
		line("1", verbs, node, "abi_version") // MLX5_IB_UVERBS_ABI_VERSION of rdma/mlx5-abi.h
		line(number(i), verbs, node, "dev")
		line(d.Name(), verbs, node, "ibdev")
		dir := filepath.Join(infiniband, d.Name())
		guid := groups(binary.BigEndian.AppendUint64(nil, d.GUID()))
		line("1: CA", dir, "node_type")
		line(guid, dir, "node_guid")
		line(guid, dir, "sys_image_guid")
		line(d.Name(), dir, "node_desc")
		line(d.Firmware(), dir, "fw_ver")
		line("MT4125", dir, "hca_type") // ConnectX-6 Dx
		line("0", dir, "hw_rev")
		line("SIM0000000001", dir, "board_id")
		// libibverbs chooses its driver by the alias.
		line("pci:v000015B3d0000101Dsv000015B3sd00000000bc02sc07i00", dir, "device", "modalias")
		line("0x15b3", dir, "device", "vendor")
		line("0x101d", dir, "device", "device")
		line("-1", dir, "device", "numa_node")
		line(number(i), dir, "device", verbs, node, "dev")
		t = append(t, entry{Path: filepath.Join(dir, "device", "driver"), Link: "../../../../bus/pci/drivers/mlx5_core"})
		for n := 1; n <= d.Ports(); n++ {
			if p, err := d.Port(n); err == nil {
				portFiles(line, filepath.Join(dir, "ports", fmt.Sprint(n)), p)
			}
		}
	}
	return t
}

func portFiles(line func(text string, path ...string), dir string, p model.PortInfo) {
	choose := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	line(choose(p.Up, "4: ACTIVE", "1: DOWN"), dir, "state")
	line(choose(p.Up, "5: LinkUp", "3: Disabled"), dir, "phys_state")
	line(choose(p.InfiniBand, "InfiniBand", "Ethernet"), dir, "link_layer")
	line("100 Gb/sec (4X EDR)", dir, "rate")
	line(fmt.Sprintf("%#x", p.LID), dir, "lid")
	line("0x0", dir, "sm_lid")
	line("0", dir, "lid_mask_count")
	for i, k := range p.PKeys {
		line(fmt.Sprintf("%#04x", k), dir, "pkeys", fmt.Sprint(i))
	}
	for i, g := range p.GIDs {
		line(groups(g.Addr[:]), dir, "gids", fmt.Sprint(i))
		line(choose(g.Type == model.GIDRoCE2, "RoCE v2", "IB/RoCE v1"), dir, "gid_attrs", "types", fmt.Sprint(i))
	}
}

// groups prints bytes in groups of two, as /sys does.
func groups(b []byte) string {
	var s []string
	for ; len(b) >= 2; b = b[2:] {
		s = append(s, fmt.Sprintf("%x", b[:2]))
	}
	return strings.Join(s, ":")
}

// uverbsName is the name of the file of the n-th device.
func uverbsName(n int) string { return fmt.Sprintf("uverbs%d", n) }

// write puts the tree below a folder.
func write(tree []entry, dir string) error {
	for _, e := range tree {
		path := filepath.Join(dir, e.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		var err error
		if e.Link != "" {
			err = os.Symlink(e.Link, path)
		} else {
			err = os.WriteFile(path, []byte(e.Text), 0o444)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
