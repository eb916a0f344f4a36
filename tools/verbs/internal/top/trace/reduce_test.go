//go:build linux

package trace

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// reduceFrom makes testdata/btf anew. The folder has one folder for each kernel,
// which is named like those there and has copies of /sys/kernel/btf/vmlinux,
// ib_core, ib_uverbs and rdma_rxe:
//
//	go test -run TestStoredTypes -args -reduce DIR
var reduceFrom = flag.String("reduce", "", "`folder` with type information of kernels to store, reduced, in testdata")

var storedModules = []string{vmlinux, "ib_core", "ib_uverbs", "rdma_rxe"}

// storedTypes are the structs that testdata keeps the members of.
var storedTypes = []string{
	"ib_cq", "rdma_restrack_entry", "ib_device", "ib_device_ops", "ib_uobject", "ib_uevent_object", "ib_ucq_object", "ib_event",
	"file", "ib_uverbs_completion_event_file", "rxe_cq", "rxe_queue",
}

// storedFunctions are all functions that the programs are attached to.
func storedFunctions() (all []string) {
	for _, g := range everyGroup() {
		for f := range g.functions {
			all = append(all, f)
		}
	}
	slices.Sort(all)
	return all
}

// everyGroup is each group with offsets as good as any.
func everyGroup() []group {
	o, ring := new(cqOffsets), new(ringOffsets)
	return []group{pullGroup(o, 1, ring), errorsGroup(o), eventsGroup(o), syscallsGroup(), everyCQEGroup(o, ring)}
}

// A reducer copies types without all that they lead to: the kernel's types hang
// together, and an ib_cq brings megabytes.
type reducer map[btf.Type]btf.Type

func (r reducer) reduce(t btf.Type, inside bool) btf.Type {
	if got, ok := r[t]; ok {
		return got
	}
	switch u := t.(type) {
	case *btf.Struct:
		s := &btf.Struct{Name: u.Name, Size: u.Size}
		r[t] = s
		if !inside || u.Name == "" || slices.Contains(storedTypes, u.Name) {
			s.Members = r.members(u.Members)
		}
		return s
	case *btf.Union:
		s := &btf.Union{Name: u.Name, Size: u.Size}
		r[t] = s
		if u.Name == "" {
			s.Members = r.members(u.Members)
		}
		return s
	case *btf.Pointer:
		var to btf.Type = (*btf.Void)(nil)
		if s, ok := btf.UnderlyingType(u.Target).(*btf.Struct); ok && s.Name != "" {
			to = &btf.Fwd{Name: s.Name, Kind: btf.FwdStruct}
		}
		return &btf.Pointer{Target: to}
	case *btf.Array:
		return &btf.Array{Index: r.reduce(u.Index, true), Type: r.reduce(u.Type, true), Nelems: u.Nelems}
	case *btf.Enum:
		return &btf.Enum{Name: u.Name, Size: u.Size}
	case *btf.Typedef, *btf.Const, *btf.Volatile, *btf.Restrict:
		return r.reduce(btf.UnderlyingType(u), inside)
	case *btf.Func:
		proto := &btf.FuncProto{Return: (*btf.Void)(nil)}
		for _, p := range u.Type.(*btf.FuncProto).Params {
			proto.Params = append(proto.Params, btf.FuncParam{Name: p.Name, Type: r.reduce(p.Type, true)})
		}
		return &btf.Func{Name: u.Name, Type: proto, Linkage: u.Linkage}
	}
	return t
}

func (r reducer) members(all []btf.Member) (out []btf.Member) {
	for _, m := range all {
		m.Tags = nil
		m.Type = r.reduce(m.Type, true)
		out = append(out, m)
	}
	return out
}

// reduceKernel stores what the tests need of a kernel.
func reduceKernel(t *testing.T, from, to string) {
	base, err := btf.LoadSpec(filepath.Join(from, vmlinux))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range storedModules {
		spec := base
		if name != vmlinux {
			if spec, err = btf.LoadSplitSpec(filepath.Join(from, name), base); err != nil {
				t.Fatal(err)
			}
		}
		r := reducer{}
		var keep []btf.Type
		for _, n := range storedTypes {
			var s *btf.Struct
			if err := spec.TypeByName(n, &s); err == nil {
				keep = append(keep, r.reduce(s, false))
			}
		}
		for _, n := range storedFunctions() {
			var f *btf.Func
			if err := spec.TypeByName(n, &f); err == nil {
				keep = append(keep, r.reduce(f, false))
			}
		}
		b, err := btf.NewBuilder(keep, nil)
		if err != nil {
			t.Fatal(err)
		}
		blob, err := b.Marshal(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name+".btf"), blob, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// storedKernel resolves against a kernel of testdata, in which modules may be
// missing.
func storedKernel(t testing.TB, kernel string, missing ...string) *resolver {
	load := func(name string) (*btf.Spec, error) {
		if slices.Contains(missing, name) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		blob, err := os.ReadFile(filepath.Join("testdata", "btf", kernel, name+".btf"))
		if err != nil {
			t.Fatal(err)
		}
		return btf.LoadSpecFromReader(bytes.NewReader(blob))
	}
	return &resolver{kernel: func() (*btf.Spec, error) { return load(vmlinux) }, module: load}
}

// The stored types are of the kernels that the guests boot, and no more than is
// needed.
func TestStoredTypes(t *testing.T) {
	if *reduceFrom != "" {
		kernels, err := os.ReadDir(*reduceFrom)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range kernels {
			reduceKernel(t, filepath.Join(*reduceFrom, k.Name()), filepath.Join("testdata", "btf", k.Name()))
		}
	}
	for _, kernel := range []string{"6.1", "6.12"} {
		r := storedKernel(t, kernel)
		for _, f := range storedFunctions() {
			var got *btf.Func
			if err := r.find("rdma_rxe", f, &got); err != nil && !errors.Is(err, btf.ErrNotFound) {
				t.Errorf("%s: %v", kernel, err)
			}
		}
		for _, name := range storedModules {
			info, err := os.Stat(filepath.Join("testdata", "btf", kernel, name+".btf"))
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > 40<<10 {
				t.Errorf("%s %s: %d bytes", kernel, name, info.Size())
			}
		}
	}
}
