package sim

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/mlx5/model"
)

func TestTreeIsAFileSystem(t *testing.T) {
	f := newFabric(t)
	port := "class/infiniband/sim0/ports/1/"
	if err := fstest.TestFS(f.system.Sysfs(), port+"state", port+"gids/2", port+"pkeys/0", "class/infiniband/sim1/node_guid", "class/infiniband_verbs/uverbs1/ibdev"); err != nil {
		t.Error(err)
	}
}

// Files say what is so when they are read.
func TestTreeFollowsTheModel(t *testing.T) {
	f, err := New(&Options{Devices: []model.DeviceConfig{{}, {Ports: []model.PortConfig{{InfiniBand: true, LID: 0x2a}}}}})
	if err != nil {
		t.Fatal(err)
	}
	d, sys := f.Model().Device("sim0"), f.system.Sysfs()
	read := func(name string) string {
		b, err := fs.ReadFile(sys, "class/infiniband/"+name)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSuffix(string(b), "\n")
	}
	for name, want := range map[string]string{
		"sim0/node_type":                    "1: CA",
		"sim0/node_guid":                    "0200:00ff:fe00:0001",
		"sim0/fw_ver":                       d.Firmware(),
		"sim0/ports/1/state":                "4: ACTIVE",
		"sim0/ports/1/phys_state":           "5: LinkUp",
		"sim0/ports/1/link_layer":           "Ethernet",
		"sim0/ports/1/lid":                  "0x0",
		"sim0/ports/1/gids/2":               "0000:0000:0000:0000:0000:ffff:0a00:0001",
		"sim0/ports/1/gid_attrs/types/0":    "IB/RoCE v1",
		"sim0/ports/1/gid_attrs/types/1":    "RoCE v2",
		"sim0/ports/1/pkeys/0":              "0xffff",
		"sim1/ports/1/link_layer":           "InfiniBand",
		"sim1/ports/1/lid":                  "0x2a",
		"sim1/ports/1/gid_attrs/types/0":    "IB/RoCE v1",
		"../infiniband_verbs/uverbs1/dev":   "open class/infiniband/../infiniband_verbs/uverbs1/dev: invalid argument",
		"sim0/ports/2/state":                "open class/infiniband/sim0/ports/2/state: file does not exist",
		"sim0/node_type/x":                  "open class/infiniband/sim0/node_type/x: file does not exist",
		"sim0/device/driver/module/version": "open class/infiniband/sim0/device/driver/module/version: file does not exist",
	} {
		if got := read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if err := d.SetPort(1, false); err != nil {
		t.Fatal(err)
	}
	if err := d.SetGID(1, 4, model.GID{Addr: [16]byte{0x20, 1, 15: 9}, Type: model.GIDRoCE2}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"state": "1: DOWN", "phys_state": "3: Disabled",
		"gids/4": "2001:0000:0000:0000:0000:0000:0000:0009", "gids/3": "0000:0000:0000:0000:0000:0000:0000:0000", "gid_attrs/types/4": "RoCE v2",
	} {
		if got := read("sim0/ports/1/" + name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if target, err := fs.ReadLink(sys, "class/infiniband/sim0/device/driver"); err != nil || !strings.HasSuffix(target, "/mlx5_core") {
		t.Errorf("driver: %q, %v", target, err)
	}
	if _, err := fs.ReadLink(sys, "class/infiniband/sim0/node_type"); err == nil {
		t.Error("a file is a link")
	}
}
