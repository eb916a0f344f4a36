//go:build linux

package kernel

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Keep leaves a copy of what a device has written, and the file of the device is free. So
// it is after another Keep, and after Detach.
func TestKeepLeavesACopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring")
	want := bytes.Repeat([]byte("completion"), os.Getpagesize()/5)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := (&file{fd: int(f.Fd())}).Map(0, len(want))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	if n := mappedFiles(t, path); n != 1 {
		t.Fatalf("%d mappings", n)
	}
	for i, f := range []func() error{m.Keep, m.Keep, m.Detach} {
		if err := f(); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
		if !bytes.Equal(m.Bytes(), want) {
			t.Errorf("call %d changed what is there", i)
		}
		if n := mappedFiles(t, path); n != 0 {
			t.Errorf("call %d: %d mappings are left", i, n)
		}
	}
	m.Bytes()[0] = 'C'
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a store afterwards reaches the device; %v", err)
	}
}
