package mlx5

import (
	"bytes"
	"strings"
	"testing"
)

// TestAddressVector holds address vectors against bytes composed by hand.
func TestAddressVector(t *testing.T) {
	gid := [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 0x42}
	for name, c := range map[string]struct {
		a    AddressVector
		want string
	}{
		"RoCE v2": {testAddresses[0], "00000000 00000000 00000000 06 00 c123 00000000 021122334455 68 40 003abcde 20010db8000000000000000000000042"},
		"RoCE v1, most of all": {AddressVector{Ethernet: true, SL: 7, StaticRate: 10, Global: true, DestGID: gid, SourceIndex: 255, FlowLabel: 0xfffff, TrafficClass: 255, HopLimit: 255, DestMAC: [6]byte{1, 2, 3, 4, 5, 6}},
			"00000000 00000000 00000000 fe 00 0000 00000000 010203040506 ff ff 0fffffff 20010db8000000000000000000000042"},
		"InfiniBand": {testAddresses[1], "00000000 00000000 00000000 0c 05 1234" + strings.Repeat("00", 32)},
		"InfiniBand with a route": {AddressVector{SL: 15, StaticRate: 2, Global: true, DestGID: gid, SourceIndex: 1, FlowLabel: 2, TrafficClass: 3, HopLimit: 4, DestLID: 0xffff, SourcePath: 127, DestMAC: [6]byte{9}, UDPPort: 9},
			"00000000 00000000 00000000 7f 7f ffff 00000000 000000000000 03 04 40100002 20010db8000000000000000000000042"},
		"InfiniBand without one, though its fields are set": {AddressVector{DestGID: gid, SourceIndex: 1, FlowLabel: 2, TrafficClass: 3, HopLimit: 4, DestLID: 1},
			"00000000 00000000 00000000 00 00 0001" + strings.Repeat("00", 32)},
		"a rate that nobody knows": {AddressVector{StaticRate: 200, DestLID: 1}, "00000000 00000000 00000000 00 00 0001" + strings.Repeat("00", 32)},
	} {
		got, err := c.a.Encode()
		if err != nil || !bytes.Equal(got[:], parseBytes(t, c.want)) {
			t.Errorf("%s: %s, %v, want %s", name, dump(got[:]), err, c.want)
		}
	}
	for name, a := range map[string]AddressVector{
		"service level 8 on Ethernet": {Ethernet: true, Global: true, SL: 8},
		"service level 16":            {SL: 16},
		"21 bits of flow label":       {FlowLabel: 1 << 20},
		"no GID on Ethernet":          {Ethernet: true},
		"a low UDP port":              {Ethernet: true, Global: true, UDPPort: 4791},
		"8 bits of source path":       {SourcePath: 128},
	} {
		if b, err := a.Encode(); err == nil {
			t.Errorf("%s: % x", name, b)
		}
	}
	for _, c := range []struct {
		label, any uint32
		want       uint16
	}{
		// Low 14 bits, the six above xored in.
		{0x12345, 0, 0xe341}, {1, 9, 0xc001}, {0xfffff, 0, 0xffc0}, {0, 0x12345, 0xe345}, {0x100000, 3, 0xc003}, {0, 0, 0xc000},
	} {
		if got := UDPSourcePort(c.label, c.any); got != c.want {
			t.Errorf("port of label %#x, %#x: %#x, want %#x", c.label, c.any, got, c.want)
		}
	}
}

func TestAddressVectors(t *testing.T) {
	var v AddressVectors
	zero := vector{}
	if *v.get(0) != zero || *v.get(1) != zero || *v.get(1<<32 - 1) != zero {
		t.Error("an empty table has vectors")
	}
	if _, err := v.Add(&AddressVector{SL: 99}); err == nil {
		t.Error("a bad vector was taken")
	}
	const n = 100
	for i := range uint32(n) {
		if got, err := v.Add(&AddressVector{DestLID: uint16(i + 1)}); err != nil || got != i+1 {
			t.Fatalf("vector %d is %d, %v", i, got, err)
		}
	}
	for i := range uint32(n) {
		if b := v.get(i + 1); uint16(b[0]) != uint16(i+1) {
			t.Errorf("vector %d is %x", i+1, *b)
		}
	}
	held := v.get(42)
	v.Remove(42)
	if *v.get(42) != zero || held[0] != 42 {
		t.Errorf("a removed vector is %x, and in use %x", *v.get(42), *held)
	}
	if got, err := v.Add(&AddressVector{DestLID: 7}); err != nil || got != 42 || v.get(42)[0] != 7 {
		t.Errorf("the next is %d, %v", got, err)
	}
	v.Remove(1)
	for _, n := range []uint32{0, 1, 101, 1 << 31} {
		if !panics(func() { v.Remove(n) }) {
			t.Errorf("vector %d was removed", n)
		}
	}
	if !panics(func() { new(AddressVectors).Remove(1) }) {
		t.Error("an empty table had a vector")
	}
}
