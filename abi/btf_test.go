//go:build linux

package abi_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	tables "github.com/goverbs/goverbs/testdata/abi"
	"github.com/goverbs/goverbs/tools/abigen/btfcheck"
	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// TestRunningKernel holds the table that this package is generated from against the kernel that runs the test. The compiler holds the
// package against the table (zasserts.go). It prints what the kernel lacks.
func TestRunningKernel(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/ib_uverbs"); err != nil {
		t.Skipf("needs kernel >= 5.11: ib_uverbs must be loaded and the kernel must describe its modules' types: %v", err)
	}
	table, err := layout.Read(strings.NewReader(tables.Layout))
	if err != nil {
		t.Fatal(err)
	}
	cache := btf.NewCache()
	vmlinux, err := cache.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	var modules []*btf.Spec
	for _, name := range []string{"ib_uverbs", "rdma_rxe", "mlx5_ib", "ib_core"} {
		spec, err := cache.Module(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.Logf("module %s is not loaded: its types are not compared", name)
		case err != nil:
			t.Fatalf("types of module %s: %v", name, err)
		default:
			modules = append(modules, spec)
		}
	}
	r, err := btfcheck.Compare(table, vmlinux, modules...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("compared %d structs, %d fields and %d constants of %s %s", r.Structs, r.Fields, r.Constants, table.Package, table.Version)
	for _, n := range r.Notes {
		t.Log(n)
	}
	for _, f := range r.Failures {
		t.Error(f)
	}
	// Every kernel from 5.11 on has most of them; fewer means that the comparison did not find the types.
	if r.Structs < 60 || r.Fields < 400 {
		t.Errorf("only %d structs and %d fields were found in the kernel's BTF", r.Structs, r.Fields)
	}
}
