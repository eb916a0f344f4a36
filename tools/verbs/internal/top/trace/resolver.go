//go:build linux

package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// A resolver finds where the members of kernel structs are, from type
// information. It parses vmlinux and each module once.
type resolver struct {
	kernel func() (*btf.Spec, error)
	module func(name string) (*btf.Spec, error)
}

// liveResolver reads the running kernel's type information through a cache that
// loading programs can share: parsing vmlinux is most of the time that a start
// takes.
func liveResolver(c *btf.Cache) *resolver {
	return &resolver{kernel: c.Kernel, module: c.Module}
}

// vmlinux is the name of the kernel itself among modules.
const vmlinux = "vmlinux"

// places are where a type of a module may be. A module's own information has
// only what vmlinux has not, and in which of them a type of the RDMA core ends
// up is an accident of the build.
func places(module string) []string {
	all := []string{module}
	for _, p := range []string{vmlinux, "ib_core", "ib_uverbs"} {
		if p != module {
			all = append(all, p)
		}
	}
	return all
}

// find looks for a type in the places of a module.
func (r *resolver) find(module, name string, typ any) error {
	for _, place := range places(module) {
		load := r.kernel
		if place != vmlinux {
			load = func() (*btf.Spec, error) { return r.module(place) }
		}
		spec, err := load()
		switch {
		case place == vmlinux && err != nil:
			return fmt.Errorf("the kernel has no type information (BTF): %w", err)
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, btf.ErrNotFound):
			continue // The module is not loaded, or was built without.
		case err != nil:
			return fmt.Errorf("type information (BTF) of %s: %w", place, err)
		}
		if err := spec.TypeByName(name, typ); err == nil {
			return nil
		} else if !errors.Is(err, btf.ErrNotFound) {
			return fmt.Errorf("type information (BTF) of %s: %s: %w", place, name, err)
		}
	}
	return fmt.Errorf("type information (BTF) of %s has no %s: %w", strings.Join(places(module), ", "), name, btf.ErrNotFound)
}

// size is the size of a struct in bytes.
func (r *resolver) size(module, name string) (uint32, error) {
	var s *btf.Struct
	if err := r.find(module, name, &s); err != nil {
		return 0, err
	}
	return s.Size, nil
}

// offset finds a member by a path such as ib_device.ops.driver_id: a struct,
// and members that lie in one another. The member must have as many bytes as the
// programs read there; 0 asks for no size.
func (r *resolver) offset(module, path string, bytes int) (int32, error) {
	names := strings.Split(path, ".")
	var s *btf.Struct
	if err := r.find(module, names[0], &s); err != nil {
		return 0, err
	}
	var at btf.Type = s
	offset := uint32(0)
	for i, name := range names[1:] {
		m, o, ok := member(at, name, 0)
		if !ok {
			return 0, fmt.Errorf("%s has no member %s in this kernel", strings.Join(names[:i+1], "."), name)
		}
		if m.BitfieldSize != 0 {
			return 0, fmt.Errorf("%s is a bit field in this kernel", strings.Join(names[:i+2], "."))
		}
		offset += o
		at = m.Type
	}
	if bytes != 0 {
		if n, err := btf.Sizeof(at); err != nil || n != bytes {
			return 0, fmt.Errorf("%s has %d bytes in this kernel, not %d", path, n, bytes)
		}
	}
	// Loads take offsets of 32 bits with a sign. No struct is that large.
	if offset > maxOffset {
		return 0, fmt.Errorf("%s is at %d in this kernel, farther than any struct reaches", path, offset)
	}
	return int32(offset), nil
}

const (
	maxOffset  = 1 << 20
	maxNesting = 16 // of anonymous members; the kernel has three
)

// member finds a member of a struct or union, also inside anonymous ones.
func member(t btf.Type, name string, depth int) (btf.Member, uint32, bool) {
	var all []btf.Member
	switch u := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		all = u.Members
	case *btf.Union:
		all = u.Members
	}
	for _, m := range all {
		if m.Name == name {
			return m, m.Offset.Bytes(), true
		}
		if m.Name == "" && depth < maxNesting {
			if in, o, ok := member(m.Type, name, depth+1); ok {
				return in, m.Offset.Bytes() + o, true
			}
		}
	}
	return btf.Member{}, 0, false
}

// takes checks that a function has the arguments that the programs expect: the
// names of the structs that they point to, "" for any argument. A function
// without type information passes; then its name is all there is to go by.
func (r *resolver) takes(module, function string, want []string) error {
	var f *btf.Func
	if err := r.find(module, function, &f); err != nil {
		if errors.Is(err, btf.ErrNotFound) {
			return nil
		}
		return err
	}
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok {
		return fmt.Errorf("%s is no function in this kernel", function)
	}
	got := make([]string, len(proto.Params))
	for i, p := range proto.Params {
		got[i] = pointee(p.Type)
	}
	fits := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		fits = fits && (want[i] == "" || want[i] == got[i])
	}
	if !fits {
		return fmt.Errorf("%s has other arguments in this kernel: %s", function, strings.Join(slices.Concat([]string{fmt.Sprint(len(got))}, got), " "))
	}
	return nil
}

// pointee is the name of the struct that a pointer points to.
func pointee(t btf.Type) string {
	p, ok := btf.UnderlyingType(t).(*btf.Pointer)
	if !ok {
		return ""
	}
	return btf.UnderlyingType(p.Target).TypeName()
}
