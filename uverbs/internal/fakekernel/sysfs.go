package fakekernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing/fstest"
)

// sysfs makes the part of /sys that describes the devices.
func sysfs(devices []*device) fstest.MapFS {
	files := make(fstest.MapFS)
	put := func(name, format string, args ...any) {
		files[name] = &fstest.MapFile{Data: fmt.Appendf(nil, format+"\n", args...), Mode: 0o444}
	}
	for _, d := range devices {
		if d.leaving() {
			continue
		}
		if !d.NoUverbs {
			verbs := "class/infiniband_verbs/" + d.name
			put("class/infiniband_verbs/abi_version", "6")
			put(verbs+"/ibdev", "%s", d.Name)
			put(verbs+"/abi_version", "2")
			put(verbs+"/dev", "%d:%d", d.rdev>>8, d.rdev&0xff)
		}
		dir := "class/infiniband/" + d.Name
		put(dir+"/node_type", "1: CA")
		put(dir+"/node_guid", "%s", groups(binary.BigEndian.AppendUint64(nil, d.guid)))
		put(dir+"/sys_image_guid", "%s", groups(binary.BigEndian.AppendUint64(nil, d.guid)))
		put(dir+"/fw_ver", "")
		put(dir+"/parent", "%s", d.Netdev)
		if d.NUMANode != "" {
			put(dir+"/device/numa_node", "%s", d.NUMANode)
		}
		if d.NetdevNUMANode != "" {
			put("class/net/"+d.Netdev+"/device/numa_node", "%s", d.NetdevNUMANode)
		}
		port := dir + "/ports/1"
		state, phys := "4: ACTIVE", "5: LinkUp"
		if !d.up {
			state, phys = "1: DOWN", "3: Disabled"
		}
		put(port+"/state", "%s", state)
		put(port+"/phys_state", "%s", phys)
		put(port+"/link_layer", "Ethernet")
		put(port+"/pkeys/0", "0xffff")
		for i, a := range d.Addrs {
			gid := netip.AddrFrom16(a.As16()).As16()
			put(fmt.Sprintf("%s/gids/%d", port, i), "%s", groups(gid[:]))
			put(fmt.Sprintf("%s/gid_attrs/types/%d", port, i), "RoCE v2")
			put(fmt.Sprintf("%s/gid_attrs/ndevs/%d", port, i), "%s", d.Netdev)
		}
	}
	return files
}

// groups prints bytes in groups of two, as /sys does.
func groups(b []byte) string {
	s := ""
	for i := 0; i < len(b); i += 2 {
		if i > 0 {
			s += ":"
		}
		s += fmt.Sprintf("%02x%02x", b[i], b[i+1])
	}
	return s
}
