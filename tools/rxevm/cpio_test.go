package main

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A cpioRecord is one record as an independent reader sees it.
type cpioRecord struct {
	Name string
	Mode uint32
	Data string
}

// readCpio reads a newc archive by the format's definition.
func readCpio(t *testing.T, b []byte) []cpioRecord {
	t.Helper()
	var all []cpioRecord
	for off := 0; ; {
		if off%4 != 0 || len(b) < off+110 || string(b[off:off+6]) != "070701" {
			t.Fatalf("no aligned record at offset %d", off)
		}
		field := func(i int) int {
			n, err := strconv.ParseUint(string(b[off+6+8*i:off+14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		size, nameSize := field(6), field(11)
		name := string(b[off+110 : off+110+nameSize-1])
		if b[off+110+nameSize-1] != 0 {
			t.Fatalf("name %q does not end in a zero", name)
		}
		data := (off + 110 + nameSize + 3) &^ 3
		if name == "TRAILER!!!" {
			return all
		}
		all = append(all, cpioRecord{name, uint32(field(1)), string(b[data : data+size])})
		off = (data + size + 3) &^ 3
	}
}

func TestImageBecomesArchive(t *testing.T) {
	im := image{}
	im.file("/lib/modules/6/x.ko", 0o644, []byte("module"))
	im.link("/lib", "usr/lib")
	im.dir("/tmp", 0o1777)
	im.file("/init", 0o755, []byte{0, 1, 2})
	im.file("/a/b", 0o600, nil)
	im.file("/a/b", 0o640, []byte("last one wins"))
	var buf bytes.Buffer
	if err := im.writeTo(&buf); err != nil {
		t.Fatal(err)
	}
	want := []cpioRecord{
		{"a", 0o040755, ""},
		{"a/b", 0o100640, "last one wins"},
		{"init", 0o100755, "\x00\x01\x02"},
		{"lib", 0o120777, "usr/lib"},
		{"tmp", 0o041777, ""},
		{"usr", 0o040755, ""},
		{"usr/lib", 0o040755, ""},
		{"usr/lib/modules", 0o040755, ""},
		{"usr/lib/modules/6", 0o040755, ""},
		{"usr/lib/modules/6/x.ko", 0o100644, "module"},
	}
	if d := cmp.Diff(want, readCpio(t, buf.Bytes())); d != "" {
		t.Errorf("archive (-want +got):\n%s", d)
	}
}

func TestImageNamesCannotLeave(t *testing.T) {
	im := image{}
	im.file("../../etc/x", 0o644, nil)
	if _, ok := im["/etc/x"]; !ok {
		t.Errorf("../../etc/x became %v, want /etc/x", im)
	}
}
