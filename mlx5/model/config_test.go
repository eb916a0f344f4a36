package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

// roce is an address that belongs into a RoCE port's table.
func roce(first byte) model.GID { return model.GID{Addr: [16]byte{first, 15: 1}, Type: model.GIDRoCE2} }

// Devices that there cannot be are refused, with what there can be.
func TestConfigImpossible(t *testing.T) {
	port := func(p model.PortConfig) model.DeviceConfig { return model.DeviceConfig{Ports: []model.PortConfig{p}} }
	for _, c := range []struct {
		want string
		d    model.DeviceConfig
	}{
		{"from 1 to 65535", model.DeviceConfig{Vectors: 65536}},
		{"from 1 to 65535", model.DeviceConfig{Vectors: -1}},
		{"from 16 to 4000000", model.DeviceConfig{ClockKHz: 15}},
		{"from 16 to 4000000", model.DeviceConfig{ClockKHz: 1 << 60}},
		{"time stamps of kind 3", model.DeviceConfig{Timestamps: 3}},
		{"MaxCQE 5: a power of two less one", model.DeviceConfig{MaxCQE: 5}},
		{"MaxCQE 8388607", model.DeviceConfig{MaxCQE: 1<<23 - 1}},
		{"MaxCQE 4294967295", model.DeviceConfig{MaxCQE: 1<<32 - 1}},
		{"MaxQPWR 32769: from 1 to 32768", model.DeviceConfig{MaxQPWR: 32769}},
		{"MaxQP 268435456: from 1 to", model.DeviceConfig{MaxQP: 1 << 28}},
		{"MaxCQ ", model.DeviceConfig{MaxCQ: 1 << 24}},
		{"MaxMR ", model.DeviceConfig{MaxMR: 1<<24 + 1}},
		{"MaxPD ", model.DeviceConfig{MaxPD: 1 << 31}},
		{"MaxSRQ ", model.DeviceConfig{MaxSRQ: 1 << 24}},
		{"0 P_Keys", port(model.PortConfig{PKeys: []uint16{}})},
		{"is valid", port(model.PortConfig{PKeys: []uint16{0, 0x8000}})},
		{"65536 P_Keys: from 1 to 65535", port(model.PortConfig{PKeys: slices.Repeat([]uint16{0xffff}, 65536)})},
		{"type 3", port(model.PortConfig{GIDs: []model.GID{{Addr: [16]byte{0x20}, Type: 3}}})},
		{"on RoCE", port(model.PortConfig{GIDs: []model.GID{{Addr: [16]byte{0x20}}}})},
		{"on InfiniBand", port(model.PortConfig{InfiniBand: true, GIDs: []model.GID{roce(0x20)}})},
		{"GID ff00::1 roce2 is a multicast address", port(model.PortConfig{GIDs: []model.GID{roce(0xff)}})},
		{"at index 0 and at 2", port(model.PortConfig{GIDs: []model.GID{roce(0x20), {}, roce(0x20)}})},
		{"LID 0xc000: from 1 to 0xbfff", port(model.PortConfig{InfiniBand: true, LID: 0xc000})},
		{"on a RoCE port", port(model.PortConfig{LID: 7})},
	} {
		c.d.Name = "sim0"
		if _, err := model.New(c.d); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "model: device sim0") {
			t.Errorf("%q: %v", c.want, err)
		}
	}
	if _, err := model.New(model.DeviceConfig{Name: "a b"}); err == nil {
		t.Error("a name that no script can write")
	}
	explicit := []model.PortConfig{{GIDs: []model.GID{}}}
	if _, err := model.New(model.DeviceConfig{Name: "a", GUID: 5, Ports: explicit}, model.DeviceConfig{Name: "b", GUID: 5, Ports: explicit}); err == nil || !strings.Contains(err.Error(), "is that of a") {
		t.Errorf("one GUID twice: %v", err)
	}
	many := make([]model.DeviceConfig, 1025)
	for i := range many {
		many[i].Name = fmt.Sprint("sim", i)
	}
	if _, err := model.New(many[:1024]...); err != nil {
		t.Error(err)
	}
	if _, err := model.New(many...); err == nil || !strings.Contains(err.Error(), "at most 1024") {
		t.Errorf("1025 devices: %v", err)
	}
	// At the limits there is one.
	if _, err := model.New(
		model.DeviceConfig{Name: "most", Vectors: 65535, ClockKHz: 4_000_000, MaxCQE: 1<<22 - 1, MaxQPWR: 32768, MaxQP: 1 << 23, MaxMR: 1 << 24, Ports: []model.PortConfig{{
			PKeys: slices.Repeat([]uint16{1}, 65535), GIDs: []model.GID{{}, roce(0x20), {Addr: roce(0x20).Addr, Type: model.GIDRoCE1}, {}},
		}}},
		model.DeviceConfig{Name: "least", Vectors: 1, ClockKHz: 16, MaxCQE: 1, MaxQPWR: 1, MaxQP: 1, Ports: []model.PortConfig{{InfiniBand: true, LID: 0xbfff, PKeys: []uint16{0, 0x7fff}}}},
	); err != nil {
		t.Error(err)
	}
}

// New keeps no slice of its caller's.
func TestConfigKeepsNothing(t *testing.T) {
	p := []model.PortConfig{{PKeys: []uint16{0xffff}, GIDs: []model.GID{roce(0x20)}}}
	m := newModel(t, model.DeviceConfig{Name: "sim0", Ports: p})
	p[0].PKeys[0], p[0].GIDs[0] = 0, model.GID{}
	if i, err := m.Device("sim0").Port(1); err != nil || i.PKeys[0] != 0xffff || i.GIDs[0] != roce(0x20) {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestSetGIDImpossible(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "ib0", Ports: []model.PortConfig{{InfiniBand: true}}})
	d := m.Device("sim0")
	if err := d.SetGID(1, 9, roce(0x20)); err != nil {
		t.Fatal(err)
	}
	if err := d.SetGID(1, 9, roce(0x20)); err != nil {
		t.Errorf("the same again: %v", err)
	}
	old := roce(0x20)
	old.Type = model.GIDRoCE1
	if err := d.SetGID(1, 10, old); err != nil {
		t.Errorf("as v1, too: %v", err)
	}
	for want, err := range map[string]error{
		"model: GID 2000::1 roce2 of device sim0 port 1 is at index 9 already": d.SetGID(1, 8, roce(0x20)),
		"ff00::1 roce2 is a multicast address":                                 d.SetGID(1, 8, roce(0xff)),
		"GID 2000::2 type 9":                                                   d.SetGID(1, 8, model.GID{Addr: [16]byte{0x20, 15: 2}, Type: 9}),
		"device sim0 port 1: GID 2000::2 ib does not fit":                      d.SetGID(1, 8, model.GID{Addr: [16]byte{0x20, 15: 2}}),
		"device ib0 port 1: GID 2000::1 roce2 does not fit":                    m.Device("ib0").SetGID(1, 0, roce(0x20)),
		"device sim0 has no port -1":                                           d.SetGID(-1, 8, roce(0x21)),
		"device sim0 has no port 2":                                            d.SetPort(2, true),
		"index 256":                                                            d.SetGID(1, 256, roce(0x21)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "model:") != 1 {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestOpenWithoutMemory(t *testing.T) {
	d := newModel(t, model.DeviceConfig{Name: "sim0"}).Device("sim0")
	if f, err := d.Open(nil, nil); err == nil || f != nil || !strings.Contains(err.Error(), "without memory") {
		t.Errorf("%v, %v", f, err)
	}
}
