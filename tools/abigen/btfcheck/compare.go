package btfcheck

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// A Report is the outcome of a comparison.
type Report struct {
	Structs, Fields, Constants int      // how many both sides have and were compared
	Failures                   []string // differences that the rules do not allow
	Notes                      []string // what the kernel, or the table, lacks
}

func (r *Report) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Report) add(o *Report) {
	r.Structs += o.Structs
	r.Fields += o.Fields
	r.Constants += o.Constants
	r.Failures = append(r.Failures, o.Failures...)
	r.Notes = append(r.Notes, o.Notes...)
}

// Compare looks for every type and constant of the table in the modules, in their order, and then in vmlinux, which may
// be nil. A module's spec does not show what it shares with vmlinux.
func Compare(t *layout.Table, vmlinux *btf.Spec, modules ...*btf.Spec) (*Report, error) {
	r := &Report{}
	specs := modules
	if vmlinux != nil {
		specs = append(slices.Clone(modules), vmlinux)
	}
	var constants map[string]constant
	if slices.ContainsFunc(t.Headers, func(h *layout.Header) bool { return len(h.Enums) > 0 }) {
		var err error
		if constants, err = enumerators(modules); err != nil {
			return nil, err
		}
	}
	for _, h := range t.Headers {
		for _, ty := range h.Types {
			kernel, err := aggregates(specs, ty)
			if err != nil {
				return nil, err
			}
			r.add(best(t, ty, kernel))
		}
		for _, e := range h.Enums {
			named, err := enumByName(specs, e.Name)
			if err != nil {
				return nil, err
			}
			r.enum(e, named, constants)
		}
	}
	return r, nil
}

// best compares with each type of that name and keeps the one that fits best: a kernel may have an unrelated type of
// the same name in another module.
func best(t *layout.Table, ty *layout.Type, kernel []aggregate) *Report {
	if len(kernel) == 0 {
		r := &Report{}
		r.note("the kernel has no %s %s", ty.Kind, ty.Name)
		return r
	}
	var least *Report
	for _, k := range kernel {
		r := &Report{Structs: 1}
		r.members(t, ty.Name, ty, k)
		if least == nil || len(r.Failures) < len(least.Failures) {
			least = r
		}
	}
	return least
}

// members compares the fields of one struct or union.
func (r *Report) members(t *layout.Table, path string, ty *layout.Type, k aggregate) {
	if ty.Size != k.size {
		r.note("%s has %d bytes in the kernel, %d in the table", path, k.size, ty.Size)
	}
	ours := tableMembers(ty)
	union := ty.Kind == layout.Union
	for _, f := range ours {
		if f.reserved() {
			continue
		}
		kf, ok := k.find(f.name)
		switch {
		case ok:
			r.field(t, path, f, kf, union || kf.end() == k.size)
		case union, f.offset >= k.size, unused(k.members, f):
			r.note("the kernel's %s lacks %s", path, f.name)
		default:
			r.fail("%s.%s is not in the kernel, which has something else at %d", path, f.name, f.offset)
		}
	}
	for _, kf := range k.members {
		if kf.reserved() || kf.size == 0 {
			continue
		}
		if _, ok := (aggregate{members: ours}).find(kf.name); ok {
			continue
		}
		if union || kf.offset >= ty.Size || unused(ours, kf) {
			r.note("the table's %s lacks %s at %d", path, kf.name, kf.offset)
		} else {
			r.fail("%s: the kernel has %s at %d, and the table something else", path, kf.name, kf.offset)
		}
	}
}

// field compares a field that both have. One that may grow is the last of its struct, or a member of a union.
func (r *Report) field(t *layout.Table, path string, f, k member, mayGrow bool) {
	path += "." + f.name
	r.Fields++
	if f.offset != k.offset {
		r.fail("%s stands at %d in the kernel, at %d in the table", path, k.offset, f.offset)
		return
	}
	in, ok := btf.UnderlyingType(k.typ).(btf.Type)
	if f.inline != nil && ok {
		if sub, ok := aggregateOf(in); ok {
			if sub.size != f.size && !mayGrow {
				r.fail("%s has %d bytes in the kernel, %d in the table", path, sub.size, f.size)
				return
			}
			r.members(t, path, f.inline, sub)
			return
		}
	}
	if f.size != k.size && !(f.aggregate && mayGrow) {
		r.fail("%s has %d bytes in the kernel, %d in the table", path, k.size, f.size)
	}
}

// enum compares the constants that both have. They are looked for in the kernel's enum of that name first.
func (r *Report) enum(e *layout.Enum, named []*btf.Enum, all map[string]constant) {
	var lacks []string
	for _, v := range e.Values {
		k, ok := find(named, v.Name)
		if !ok {
			k, ok = all[v.Name]
		}
		switch {
		case !ok:
			lacks = append(lacks, v.Name)
		case v.Value > math.MaxUint32 && k.size < 8:
			r.note("the kernel's BTF has no room for %s, a 64-bit constant", v.Name)
		case k.value != v.Value && counts().MatchString(v.Name):
			r.note("%s is %d in the kernel, %d in the table: it counts the others", v.Name, k.value, v.Value)
		case k.value != v.Value:
			r.fail("%s is %d in the kernel, %d in the table", v.Name, k.value, v.Value)
		default:
			r.Constants++
		}
	}
	name := e.Name
	if name == "" && len(e.Values) > 0 {
		name = "of " + e.Values[0].Name
	}
	switch {
	case len(lacks) == len(e.Values):
		r.note("the kernel has no enum %s", name)
	case len(lacks) > 0:
		r.note("the kernel's enum %s lacks %s", name, strings.Join(lacks, ", "))
	}
}

// counts matches the constants that stand at the end of an enum to count the others. They grow with it.
var counts = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`_(NUM_[A-Z]+|[A-Z_]*MAX)$`) })

// constant is an enumerator of the kernel.
type constant struct {
	value int64
	size  uint32 // bytes of its enum
}

func constantOf(e *btf.Enum, v btf.EnumValue) constant {
	value := int64(v.Value)
	if e.Signed && e.Size == 4 {
		value = int64(int32(v.Value))
	}
	return constant{value, e.Size}
}

func find(es []*btf.Enum, name string) (constant, bool) {
	for _, e := range es {
		for _, v := range e.Values {
			if v.Name == name {
				return constantOf(e, v), true
			}
		}
	}
	return constant{}, false
}

// enumerators collects the constants of the modules. Enums without a name, and those that only few files use, are found
// by their constants. Vmlinux is left out: it is large, and enumByName looks there.
func enumerators(specs []*btf.Spec) (map[string]constant, error) {
	all := map[string]constant{}
	for _, s := range specs {
		for typ, err := range s.All() {
			if err != nil {
				return nil, err
			}
			e, ok := typ.(*btf.Enum)
			if !ok {
				continue
			}
			for _, v := range e.Values {
				if _, ok := all[v.Name]; !ok {
					all[v.Name] = constantOf(e, v)
				}
			}
		}
	}
	return all, nil
}

func enumByName(specs []*btf.Spec, name string) ([]*btf.Enum, error) {
	if name == "" {
		return nil, nil
	}
	var es []*btf.Enum
	err := byName(specs, name, func(t btf.Type) {
		if e, ok := t.(*btf.Enum); ok {
			es = append(es, e)
		}
	})
	return es, err
}

func byName(specs []*btf.Spec, name string, f func(btf.Type)) error {
	for _, s := range specs {
		types, err := s.AnyTypesByName(name)
		if errors.Is(err, btf.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		for _, t := range types {
			f(t)
		}
	}
	return nil
}
