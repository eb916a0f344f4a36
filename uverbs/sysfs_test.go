package uverbs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

func TestParseDev(t *testing.T) {
	for text, want := range map[string]uint64{
		"231:192": 59328, "10:58": 2618, "231:256": 231<<8 | 1<<20, "4095:1048575": 0xfff<<8 | 0xff | 0xfff<<20,
		"": 0, "231": 0, "231:": 0, ":1": 0, "231:1048576": 0, "4096:1": 0, "-1:1": 0, "0x10:1": 0, "1:2:3": 0, " 1:2": 0, "0:1": 0,
	} {
		got, err := parseDev(text)
		if (err == nil) != (want != 0) || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if err == nil {
			if major, minor := splitDevice(got); deviceNumber(major, minor) != got {
				t.Errorf("%q: split into %d and %d", text, major, minor)
			}
		}
	}
}

func TestParseGUID(t *testing.T) {
	got, err := parseGUID("5054:00ff:fe12:3456")
	if err != nil || got != 0x505400fffe123456 || got.String() != "5054:00ff:fe12:3456" {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "5054:00ff:fe12", "5054:00ff:fe12:3456:", "5054:0ff:fe12:3456", "5054:+0ff:fe12:3456", "5054:00ff:fe12:345g"} {
		if got, err := parseGUID(text); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]uint64{"0xffff": 0xffff, "65535": 65535, "0": 0, "0x8001": 0x8001} {
		if got, err := parseNumber(text, 16); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0x", "0x10000", "65536", "-1", "+1", "1 ", "1_0", "0b1", "x"} {
		if got, err := parseNumber(text, 16); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestSysfsDriver(t *testing.T) {
	link := func(driver string) fs.FS {
		return fstest.MapFS{
			"class/infiniband/ibp1/node_type":     {Data: []byte("1: CA")},
			"class/infiniband/ibp1/device/driver": {Data: []byte("../../../bus/pci/drivers/" + driver), Mode: fs.ModeSymlink},
		}
	}
	for driver, want := range map[string]Driver{"mlx5_core": DriverMlx5, "bnxt_en": DriverBnxtRE, "hfi1": DriverHFI1, "other": DriverUnknown} {
		if got := sysfsDriver(link(driver), "ibp1"); got != want {
			t.Errorf("%s: %v, want %v", driver, got, want)
		}
	}
	for name, want := range map[string]Driver{"rxe_eth0": DriverRXE, "siw0": DriverSIW, "roce0": DriverUnknown} {
		if got := sysfsDriver(fstest.MapFS{}, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// sameFS is a /sys with one device, all of whose attributes say the same. (An
// fstest.MapFS walks its map in a new order each time, which the fuzzer takes
// for something new.)
type sameFS struct {
	text []byte
	name string
}

func (f sameFS) Open(name string) (fs.File, error) {
	return sameFile{bytes.NewReader(f.text)}, nil
}

func (f sameFS) ReadDir(name string) ([]fs.DirEntry, error) {
	switch path.Base(name) {
	case "infiniband":
		return []fs.DirEntry{sameEntry(f.name)}, nil
	case "infiniband_verbs":
		return []fs.DirEntry{sameEntry("abi_version"), sameEntry("uverbs" + f.name)}, nil
	}
	return []fs.DirEntry{sameEntry("1"), sameEntry(f.name)}, nil
}

type sameFile struct{ *bytes.Reader }

func (sameFile) Close() error               { return nil }
func (sameFile) Stat() (fs.FileInfo, error) { return nil, fs.ErrInvalid }

type sameEntry string

func (e sameEntry) Name() string             { return string(e) }
func (sameEntry) IsDir() bool                { return true }
func (sameEntry) Type() fs.FileMode          { return fs.ModeDir }
func (sameEntry) Info() (fs.FileInfo, error) { return nil, fs.ErrInvalid }

// FuzzSysfs lets every attribute of a device say the same odd thing, and every
// parser read it. What is accepted must be fit for its use.
func FuzzSysfs(f *testing.F) {
	for _, s := range []string{"231:192", "4095:1048575", "5054:00ff:fe12:3456", "1: CA", "rxe0", "0xffff", "2", "", "..", "uverbs0\n"} {
		f.Add([]byte(s), "rxe0")
	}
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		if len(b) > 100 || len(name) > 70 {
			return // the fuzzer would spend its time shortening them
		}
		if s, err := parseName(string(b)); err == nil && (s == "." || s == ".." || strings.ContainsAny(s, "/ \x00\n") || !fs.ValidPath(s)) {
			t.Errorf("%q was taken for a name", s)
		}
		if n, err := parseNumber(string(b), 16); err == nil && n > 0xffff {
			t.Errorf("%q was taken for the 16-bit number %d", b, n)
		}
		if dev, err := parseDev(string(b)); err == nil {
			major, minor := splitDevice(dev)
			var x, y uint64
			if n, err := fmt.Sscanf(string(b), "%d:%d", &x, &y); n != 2 || err != nil || x != major || y != minor || x == 0 {
				t.Errorf("%q was taken for %d:%d", b, major, minor)
			}
		}
		if g, err := parseGUID(string(b)); err == nil && !strings.EqualFold(g.String(), string(b)) {
			t.Errorf("%q was taken for the GUID %v", b, g)
		}
		list, err := sysfsDevices(sameFS{b, name})
		if err != nil {
			return
		}
		for _, d := range list {
			if !isName(d.Name) || d.UverbsName != "" && !isName(d.UverbsName) || d.Netdev != "" && !isName(d.Netdev) || d.Ports < 1 || d.Ports > 2 {
				t.Errorf("%+v", d)
			}
		}
	})
}

func TestPKeyOfFake(t *testing.T) {
	d, err := on(fakekernel.New(fakekernel.Device{})).open("rxe0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if key, err := d.PKey(1, 0); err != nil || key != 0xffff {
		t.Errorf("%#x, %v", key, err)
	}
	if _, err := d.PKey(1, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("index 1: %v", err)
	}
	for _, c := range [][2]int{{0, 0}, {2, 0}, {1, -1}, {1, 1 << 16}} {
		if _, err := d.PKey(c[0], c[1]); !errors.Is(err, ErrInvalid) {
			t.Errorf("port %d index %d: %v", c[0], c[1], err)
		}
	}
}
