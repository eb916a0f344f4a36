package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/uverbs"
)

var update = flag.Bool("update", false, "write testdata again")

// fakeInventory is two devices, the second of which does not open.
type fakeInventory struct {
	list []uverbs.DeviceInfo
	err  error
}

func (f fakeInventory) devices() ([]uverbs.DeviceInfo, error) { return f.list, f.err }

func (f fakeInventory) query(info uverbs.DeviceInfo) (*answers, error) {
	if info.Err != nil {
		return nil, info.Err
	}
	return &answers{
		attr: uverbs.DeviceAttr{
			Firmware: "22.36.1010", NodeGUID: info.NodeGUID, SysImageGUID: info.SysImageGUID, VendorID: 0x02c9, VendorPartID: 4125,
			Ports: 1, MaxMRSize: 1<<64 - 1, MaxQP: 131072, MaxCQE: 4194303, Caps: uverbs.CapXRC | 1<<63, Atomic: uverbs.AtomicHCA,
			TimestampMask: 1<<63 - 1, CoreClock: 1000000,
		},
		vectors: 16,
		ports: []uverbs.PortAttr{{
			Port: 1, State: uverbs.PortActive, PhysState: uverbs.PhysLinkUp, LinkLayer: uverbs.LinkEthernet, MaxMTU: 4096,
			ActiveMTU: 1024, MaxMessage: 1 << 30, GIDs: 256, PKeys: 3, Width: 4, LaneGbps: 25,
		}},
		gids: []uverbs.GIDEntry{
			{GID: uverbs.GIDFromAddr(netip.MustParseAddr("fe80::1")), Port: 1, Index: 0, Type: uverbs.GIDTypeRoCEv1, Ifindex: 2},
			{GID: uverbs.GIDFromAddr(netip.MustParseAddr("192.0.2.7")), Port: 1, Index: 3, Type: uverbs.GIDTypeRoCEv2, Ifindex: 9},
		},
		pkeys:   map[int][]uint16{1: {0xffff, 0, 0x8001}},
		netdevs: map[int]string{2: "ens1f0"},
	}, nil
}

func twoDevices() fakeInventory {
	return fakeInventory{list: []uverbs.DeviceInfo{
		{
			Name: "mlx5_0", Driver: uverbs.DriverMlx5, UverbsName: "uverbs0", Path: "/dev/infiniband/uverbs0", ABIVersion: 1,
			NodeType: 1, NodeGUID: 0x0c42a10300123456, SysImageGUID: 0x0c42a10300123456, Protocol: "roce", Ports: 1, Netdev: "ens1f0",
		},
		{
			Name: "rxe0", Index: 1, Driver: uverbs.DriverRXE, UverbsName: "uverbs1", Path: "/dev/infiniband/uverbs1", ABIVersion: 2,
			NodeType: 1, NodeGUID: 0x020000fffe000001, Protocol: "roce", Ports: 1,
			Err: errors.New("goverbs: rxe0: open /dev/infiniband/uverbs1: permission denied"),
		},
	}}
}

// runDevinfo runs the command on an inventory.
func runDevinfo(from inventory, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = devinfo(context.Background(), from, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestDevinfoGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"devinfo.txt": nil, "devinfo-v.txt": {"-v"}, "devinfo.json": {"-json"}, "devinfo-l.txt": {"-l"},
		"devinfo-l.json": {"-l", "-json"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := runDevinfo(twoDevices(), args...)
			wantCode, wantErr := 1, "verbs devinfo: goverbs: rxe0: open /dev/infiniband/uverbs1: permission denied\n"
			if strings.HasPrefix(name, "devinfo-l") {
				wantCode, wantErr = 0, ""
			}
			if code != wantCode || errs != wantErr {
				t.Errorf("status %d, stderr %q", code, errs)
			}
			path := "testdata/" + name
			if *update {
				if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), out); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// What -v shows of a port by ibv_devinfo's name has that name in JSON, too.
func TestDevinfoJSONLacksNothing(t *testing.T) {
	_, text, _ := runDevinfo(twoDevices(), "-v")
	_, all, _ := runDevinfo(twoDevices(), "-json")
	renamed := map[string]string{"rate": "rate_gbps"}
	seen := 0
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "\t\t\t"), ":")
		if !ok || !strings.HasPrefix(line, "\t\t\t") || strings.ContainsAny(name, "\t[") {
			continue
		}
		if n, ok := renamed[name]; ok {
			name = n
		}
		if seen++; !strings.Contains(all, `"`+name+`": `) {
			t.Errorf("-json lacks %s", name)
		}
	}
	if seen < 20 {
		t.Errorf("only %d names were compared", seen)
	}
}

func TestDevinfoOfOneDevice(t *testing.T) {
	code, out, errs := runDevinfo(twoDevices(), "-d", "mlx5_0", "-json")
	var got struct {
		Devices []struct{ Name, Error string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if code != 0 || errs != "" || len(got.Devices) != 1 || got.Devices[0].Name != "mlx5_0" || got.Devices[0].Error != "" {
		t.Errorf("status %d, %q, %+v", code, errs, got)
	}
}

func TestDevinfoRefusals(t *testing.T) {
	none := fakeInventory{err: fmt.Errorf("goverbs: %w: nothing there", uverbs.ErrNoDevices)}
	for _, c := range []struct {
		from inventory
		args []string
		code int
		want string
	}{
		{twoDevices(), []string{"-d", "mlx4_0"}, 2, `no such device: "mlx4_0": there are mlx5_0, rxe0`},
		{twoDevices(), []string{"-x"}, 2, "there is no flag -x\nverbs devinfo -h lists the flags."},
		{twoDevices(), []string{"mlx5_0"}, 2, `unexpected argument "mlx5_0"`},
		{twoDevices(), []string{"-v=maybe"}, 2, `invalid boolean value "maybe"`},
		{none, nil, 1, "goverbs: no RDMA devices: nothing there; without any device: verbs demo\n"},
		{none, []string{"-json"}, 1, "no RDMA devices"},
		{none, []string{"-d", "x"}, 2, `no device "x": goverbs: no RDMA devices: nothing there; sim0 and sim1 are a ConnectX in software`},
	} {
		code, out, errs := runDevinfo(c.from, c.args...)
		if code != c.code || !strings.Contains(errs, c.want) || !strings.HasPrefix(errs, "verbs devinfo: ") || out != "" {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
	}
}

// The devices of the model are shown when they are named, and not else.
func TestDevinfoSimulated(t *testing.T) {
	none := fakeInventory{err: fmt.Errorf("goverbs: %w: nothing there", uverbs.ErrNoDevices)}
	for _, from := range []inventory{none, twoDevices()} {
		for name, gid := range map[string]string{"sim0": "::ffff:10.0.0.1", "sim1": "::ffff:10.0.1.1"} {
			code, out, errs := runDevinfo(from, "-v", "-d", name)
			for _, want := range []string{"hca_id:\t" + name + "\n", "\tdriver:\t\t\t\tmlx5 (1)\n", "\tfile:\t\t\t\tnone\n", "PORT_ACTIVE", "GID[  2]:\t\t\t" + gid + ", RoCE v2\n"} {
				if code != 0 || errs != "" || !strings.Contains(out, want) {
					t.Errorf("status %d, stderr %q, want %q in\n%s", code, errs, want, out)
				}
			}
		}
		code, out, errs := runDevinfo(from, "-l", "-d", "sim1")
		if code != 0 || errs != "" || out != "1 device found:\n\tsim1\n" {
			t.Errorf("status %d, stderr %q: %q", code, errs, out)
		}
	}
	if _, out, _ := runDevinfo(twoDevices(), "-l"); strings.Contains(out, "sim") {
		t.Errorf("listed: %s", out)
	}
}

func TestDevinfoHelp(t *testing.T) {
	code, out, errs := runDevinfo(twoDevices(), "-h")
	if code != 0 || errs != "" || !strings.HasPrefix(out, "usage: verbs devinfo") || !strings.Contains(out, "-json") {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
}

// full is a writer like /dev/full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestDevinfoWriteErrors(t *testing.T) {
	for _, args := range [][]string{nil, {"-v"}, {"-json"}, {"-l"}} {
		var errs bytes.Buffer
		if code := devinfo(t.Context(), twoDevices(), args, full{}, &errs); code != 1 || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%q: status %d, %q", args, code, errs.String())
		}
	}
}

func TestCommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		out  string
		errs string
	}{
		{nil, 2, "", "verbs: no command\nusage: verbs COMMAND"},
		{[]string{"nosuch"}, 2, "", "verbs: unknown command \"nosuch\"\nusage: verbs COMMAND"},
		{[]string{"help"}, 0, "usage: verbs COMMAND", ""},
		{[]string{"--help"}, 0, "usage: verbs COMMAND", ""},
		{[]string{"devinfo", "-h"}, 0, "usage: verbs devinfo", ""},
		{[]string{"help", "devinfo"}, 0, "usage: verbs devinfo", ""},
		{[]string{"help", "help"}, 0, "usage: verbs COMMAND", ""},
		{[]string{"help", "nosuch"}, 2, "", "verbs: unknown command \"nosuch\""},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), c.args, &out, &errs)
		if code != c.code || !strings.HasPrefix(out.String(), c.out) || !strings.HasPrefix(errs.String(), c.errs) {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.args, code, out.String(), errs.String())
		}
	}
	for _, c := range commands {
		if !strings.Contains(usageText(), c.name+" "+c.args) {
			t.Errorf("%s is not in the usage", c.name)
		}
	}
}

func TestGuestDevinfo(t *testing.T) {
	list, err := uverbs.Devices()
	if errors.Is(err, uverbs.ErrNoDevices) {
		t.Skip("declared skip: no RDMA device here; run in the guest: rxevm exec")
	}
	if err != nil {
		t.Fatal(err)
	}
	code, out, errs := runDevinfo(thisSystem{}, "-v")
	if code != 0 || errs != "" || !strings.Contains(out, "hca_id:\t"+list[0].Name) || !strings.Contains(out, "GID[  0]:") || !strings.Contains(out, "P_Key[  0]:") {
		t.Errorf("status %d, stderr %q\n%s", code, errs, out)
	}
}
