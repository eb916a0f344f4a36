package uverbs

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
)

func code(t *testing.T, a QPAttr) abi.UverbsModifyQP {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	var m abi.UverbsModifyQP
	a.apply(&m)
	return m
}

func TestAckTimeoutCodes(t *testing.T) {
	for d, want := range map[time.Duration]uint8{
		AckTimeoutForever:            0,
		time.Nanosecond:              1,
		8192 * time.Nanosecond:       1,
		8193 * time.Nanosecond:       2,
		67108864 * time.Nanosecond:   14,
		67108865 * time.Nanosecond:   15,
		4 * time.Second:              20,
		4096 * time.Nanosecond << 31: 31,
		4096*time.Nanosecond<<30 + 1: 31,
	} {
		if m := code(t, AttrAckTimeout(d)); m.Timeout != want {
			t.Errorf("%v: code %d, want %d", d, m.Timeout, want)
		}
	}
	for _, d := range []time.Duration{0, -5, 4096*time.Nanosecond<<31 + 1} {
		if AttrAckTimeout(d).err == nil {
			t.Errorf("%v was accepted", d)
		}
	}
}

func TestRNRTimerCodes(t *testing.T) {
	for d, want := range map[time.Duration]uint8{
		time.Nanosecond:           1,
		10 * time.Microsecond:     1,
		11 * time.Microsecond:     2,
		640 * time.Microsecond:    12,
		641 * time.Microsecond:    13,
		491520 * time.Microsecond: 31,
		491521 * time.Microsecond: 0,
		655360 * time.Microsecond: 0,
	} {
		if m := code(t, AttrMinRNRTimer(d)); m.MinRNRTimer != want {
			t.Errorf("%v: code %d, want %d", d, m.MinRNRTimer, want)
		}
	}
	for _, d := range []time.Duration{0, -1, 655361 * time.Microsecond} {
		if AttrMinRNRTimer(d).err == nil {
			t.Errorf("%v was accepted", d)
		}
	}
}

func TestAttributeBounds(t *testing.T) {
	for name, a := range map[string]QPAttr{
		"MTU 1500":      AttrPathMTU(1500),
		"MTU 0":         AttrPathMTU(0),
		"MTU 8192":      AttrPathMTU(8192),
		"QPN":           AttrDestQPN(1 << 24),
		"send PSN":      AttrSendPSN(1 << 24),
		"receive PSN":   AttrRecvPSN(1 << 24),
		"retries":       AttrRetries(8),
		"retries < 0":   AttrRetries(-1),
		"RNR retries":   AttrRNRRetries(8),
		"port":          AttrPort(256),
		"port < 0":      AttrPort(-1),
		"GID index":     AttrPath(GID{}, 1, 256, 0, 0),
		"GID index < 0": AttrPath(GID{}, 1, -1, 0, 0),
		"service level": AttrServiceLevel(16),
	} {
		if a.err == nil {
			t.Errorf("%s out of range was accepted", name)
		}
	}
	for bytes, want := range map[int]uint8{256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5} {
		if m := code(t, AttrPathMTU(bytes)); m.PathMTU != want {
			t.Errorf("MTU %d: code %d, want %d", bytes, m.PathMTU, want)
		}
	}
}

// A peer without a GID is on the local InfiniBand subnet: no global header.
func TestPathIsGlobal(t *testing.T) {
	for _, g := range []GID{{}, {15: 1}} {
		m := code(t, AttrPath(g, 1, 0, 64, 0))
		if want := !g.IsZero(); (m.Dest.IsGlobal == 1) != want {
			t.Errorf("%v: global %d", g, m.Dest.IsGlobal)
		}
	}
}
