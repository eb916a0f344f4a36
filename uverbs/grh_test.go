package uverbs

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func grhBytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	zeros20 = "0000000000000000000000000000000000000000"
	// From 10.0.0.1 to 10.0.0.2, traffic class 8, 64 hops, UDP; without and
	// with its checksum.
	bareIPv4  = "4508 0045 0000 4000 40 11 0000 0a000001 0a000002"
	wholeIPv4 = "4508 0045 0000 4000 40 11 269e 0a000001 0a000002"
	// From fe80::1 to fe80::2, traffic class 0x12, flow label 0x34567.
	ipv6   = "61234567 0020 11 40 fe800000000000000000000000000001 fe800000000000000000000000000002"
	infini = "60000000 0020 1b 01 fe800000000000000000000000000001 fe800000000000000000000000000002"
)

func TestParseGRH(t *testing.T) {
	v4 := GRH{
		Version: 4, Source: GIDFromAddr(netip.MustParseAddr("10.0.0.1")), Dest: GIDFromAddr(netip.MustParseAddr("10.0.0.2")),
		TrafficClass: 8, HopLimit: 64, UDP: true,
	}
	v6 := GRH{
		Version: 6, Source: GIDFromAddr(netip.MustParseAddr("fe80::1")), Dest: GIDFromAddr(netip.MustParseAddr("fe80::2")),
		TrafficClass: 0x12, FlowLabel: 0x34567, HopLimit: 64, UDP: true,
	}
	ib := v6
	ib.TrafficClass, ib.FlowLabel, ib.HopLimit, ib.UDP = 0, 0, 1, false
	for name, test := range map[string]struct {
		in   string
		want GRH
	}{
		"IPv4 after zeros, no checksum":       {zeros20 + bareIPv4, v4},
		"IPv4 with its checksum":              {zeros20 + wholeIPv4, v4},
		"IPv4 after what was an IPv6 header":  {strings.ReplaceAll(ipv6, " ", "")[:40] + wholeIPv4, v4},
		"IPv6":                                {ipv6, v6},
		"IPv6, and the message":               {ipv6 + "ffffffff", v6},
		"InfiniBand":                          {infini, ib},
		"IPv4 after rubbish, no UDP, invalid": {zeros20 + strings.Replace(bareIPv4, "40 11", "40 06", 1), GRH{}},
		"IPv4 with options":                   {zeros20 + strings.Replace(bareIPv4, "4508", "4608", 1), GRH{}},
		"zeros":                               {zeros20 + zeros20, GRH{}},
		"39 bytes":                            {ipv6[:len(ipv6)-2], GRH{}},
		"nothing":                             {"", GRH{}},
	} {
		got, err := ParseGRH(grhBytes(t, test.in))
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		if (err != nil) != (test.want == GRH{}) || err != nil && !errors.Is(err, ErrGRH) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// A sender's IPv6 address that looks like an IPv4 header does not turn
	// its packet into one unless the checksum is right, too.
	b := grhBytes(t, ipv6)
	copy(b[20:], grhBytes(t, bareIPv4)[:4])
	if h, err := ParseGRH(b); err != nil || h.Version != 6 {
		t.Errorf("an address that looks like a header: %+v, %v", h, err)
	}
}

// Whatever the bytes, ParseGRH does not panic, looks at 40 of them, and what it
// says is in them.
func FuzzParseGRH(f *testing.F) {
	for _, s := range []string{zeros20 + bareIPv4, zeros20 + wholeIPv4, ipv6, infini, strings.ReplaceAll(ipv6, " ", "")[:40] + wholeIPv4, ""} {
		f.Add(grhBytes(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		h, err := ParseGRH(b)
		if !bytes.Equal(b, before) {
			t.Fatal("the bytes changed")
		}
		if err != nil {
			if h != (GRH{}) || !errors.Is(err, ErrGRH) {
				t.Fatalf("%+v with %v", h, err)
			}
			return
		}
		switch h.Version {
		case 4:
			if !bytes.Equal(h.Source[12:], b[32:36]) || !bytes.Equal(h.Dest[12:], b[36:40]) || h.HopLimit != b[28] || !isIPv4(h.Source) || !isIPv4(h.Dest) || !h.UDP || h.FlowLabel != 0 {
				t.Fatalf("%x: %+v", b[:40], h)
			}
		case 6:
			if !bytes.Equal(h.Source[:], b[8:24]) || !bytes.Equal(h.Dest[:], b[24:40]) || h.HopLimit != b[7] || h.FlowLabel > 0xfffff {
				t.Fatalf("%x: %+v", b[:40], h)
			}
		default:
			t.Fatalf("version %d", h.Version)
		}
		if again, err := ParseGRH(b[:GRHLen]); err != nil || again != h {
			t.Fatalf("40 bytes: %+v, %v; all: %+v", again, err, h)
		}
	})
}
