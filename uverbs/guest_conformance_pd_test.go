package uverbs_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// Protection domains come and go, one at a time and many together, and leave nothing.
func TestGuestConformancePD_Lives(t *testing.T) {
	s := guestSystem(t)
	d := s.device(t)
	count := func() (n uint64) {
		for kind, k := range s.objects(t) {
			if strings.EqualFold(kind, "PD") { // "pd" by netlink
				n += k
			}
		}
		return n
	}
	before := count()
	for range 100 {
		pd, err := d.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		if err := pd.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var all []*uverbs.PD
	for range 50 {
		pd, err := d.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pd)
	}
	if n := count(); n != before+50 {
		t.Errorf("%d protection domains where %d were before: %v", n, before, s.objects(t))
	}
	for _, pd := range all {
		if err := pd.Close(); err != nil {
			t.Error(err)
		}
		if err := pd.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("closed again: %v", err)
		}
	}
	if n := count(); n != before {
		t.Errorf("%d protection domains are left, %d were before", n, before)
	}
	if _, err := all[0].Register(make([]byte, 4096), uverbs.LocalWrite); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a region of a closed protection domain: %v", err)
	}
}

// newAH makes an address handle, where the kernel has them for programs.
func newAH(t *testing.T, pd *uverbs.PD, to uverbs.Endpoint) *uverbs.AH {
	t.Helper()
	ah, err := pd.NewAH(to, nil)
	if errors.Is(err, uverbs.ErrNotSupported) {
		t.Skip("needs kernel >= 5.15: soft-RoCE numbers its address handles")
	}
	if err != nil {
		t.Fatal(err)
	}
	return ah
}

// An address handle leads to every address that the port has, from one of its kind.
func TestGuestConformanceAddr_Create(t *testing.T) {
	d := guestDevice(t)
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.GIDTable()
	if err != nil || len(table) == 0 {
		t.Fatal(table, err)
	}
	for _, g := range table {
		if g.Type != uverbs.GIDTypeRoCEv2 {
			continue // Packets to it would come from a v2 address.
		}
		ah := newAH(t, pd, uverbs.Endpoint{GID: g.GID})
		if ah.GID() != g.GID || ah.Source().GID != g.GID {
			t.Errorf("to %v: it leads from %v to %v", g.GID, ah.Source().GID, ah.GID())
		}
		if err := pd.Close(); !errors.Is(err, uverbs.ErrInUse) {
			t.Errorf("close of the protection domain under it: %v", err)
		}
		if err := ah.Close(); err != nil {
			t.Error(err)
		}
		if err := ah.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("closed again: %v", err)
		}
	}
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
}

// On RoCE there is no way to a port by a LID alone, nor to nowhere.
func TestGuestConformanceAddr_WithoutGID(t *testing.T) {
	d := guestDevice(t)
	port, err := d.PortAttr(1)
	if err != nil {
		t.Fatal(err)
	}
	if port.LinkLayer != uverbs.LinkEthernet {
		t.Skipf("declared skip: the port is %v, not Ethernet", port.LinkLayer)
	}
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	newAH(t, pd, uverbs.Endpoint{GID: defaultGID(t, d)}).Close()
	if ah, err := pd.NewAH(uverbs.Endpoint{}, nil); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("to nowhere: %v, %v", ah, err)
	}
	if ah, err := pd.NewAH(uverbs.Endpoint{LID: 1}, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("to LID 1: %v, %v", ah, err)
	}
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
}

// defaultGID is an address of the device by which RoCE v2 packets find it.
func defaultGID(t *testing.T, d *uverbs.Device) uverbs.GID {
	t.Helper()
	table, err := d.GIDTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range table {
		if g.Type == uverbs.GIDTypeRoCEv2 {
			return g.GID
		}
	}
	t.Fatalf("no address for RoCE v2: %v", table)
	return uverbs.GID{}
}
