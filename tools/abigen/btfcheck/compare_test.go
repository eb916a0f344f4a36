package btfcheck_test

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/goverbs/goverbs/tools/abigen/btfcheck"
	"github.com/goverbs/goverbs/tools/abigen/layout"
)

const table = `goverbs-layout 1
package headers 1-1
machine any

header rdma/a.h
enum kinds {
	KIND_A 0
	KIND_B 5
	KIND_BIG 1099511627776
	KIND_MAX 6
}
struct thing 24 {
	0 8 addr u64
	8 4 key u32
	12 4 reserved u32
	16 8 u union 8 {
		0 8 big u64
		0 4 small u32
	}
}
`

var (
	u32 = &btf.Int{Name: "u32", Size: 4}
	u64 = &btf.Int{Name: "u64", Size: 8}
)

func field(name string, off uint32, t btf.Type) btf.Member {
	return btf.Member{Name: name, Offset: btf.Bits(off * 8), Type: t}
}

// kernel returns the types of a kernel that agrees with the table.
func kernel() (*btf.Struct, *btf.Enum) {
	union := &btf.Union{Size: 8, Members: []btf.Member{field("big", 0, u64), field("small", 0, u32)}}
	return &btf.Struct{Name: "thing", Size: 24, Members: []btf.Member{
			field("addr", 0, u64), field("key", 8, u32), field("reserved", 12, u32), field("u", 16, union),
		}},
		&btf.Enum{Name: "kinds", Size: 8, Values: []btf.EnumValue{{Name: "KIND_A", Value: 0}, {Name: "KIND_B", Value: 5}, {Name: "KIND_BIG", Value: 1 << 40}, {Name: "KIND_MAX", Value: 6}}}
}

func compare(t *testing.T, types ...btf.Type) *btfcheck.Report {
	t.Helper()
	tab, err := layout.Read(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	r, err := btfcheck.Compare(tab, nil, spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompareAgrees(t *testing.T) {
	s, e := kernel()
	r := compare(t, s, e)
	if len(r.Failures) != 0 || len(r.Notes) != 0 || r.Structs != 1 || r.Fields != 5 || r.Constants != 4 {
		t.Errorf("%+v", r)
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name       string
		edit       func(s *btf.Struct, e *btf.Enum)
		fail, note string
	}{
		{"field moved", func(s *btf.Struct, e *btf.Enum) { s.Members[1].Offset = 12 * 8; s.Members[2].Offset = 8 * 8 }, "thing.key stands at 12", ""},
		{"field widened", func(s *btf.Struct, e *btf.Enum) {
			s.Members[1].Type = u64
			s.Members = append(s.Members[:2], s.Members[3:]...)
		}, "thing.key has 8 bytes", ""},
		{"field renamed", func(s *btf.Struct, e *btf.Enum) { s.Members[1].Name = "other" }, "thing.key is not in the kernel", ""},
		{"older: tail missing", func(s *btf.Struct, e *btf.Enum) { s.Members = s.Members[:3]; s.Size = 16 }, "", "lacks u"},
		{"older: still reserved", func(s *btf.Struct, e *btf.Enum) { s.Members[1].Name = "reserved1" }, "", "lacks key"},
		{"newer: tail", func(s *btf.Struct, e *btf.Enum) { s.Members = append(s.Members, field("more", 24, u64)); s.Size = 32 }, "", "table's thing lacks more at 24"},
		{"newer: no longer reserved", func(s *btf.Struct, e *btf.Enum) { s.Members[2].Name = "used" }, "", "table's thing lacks used at 12"},
		{"union member missing", func(s *btf.Struct, e *btf.Enum) {
			s.Members[3].Type.(*btf.Union).Members = s.Members[3].Type.(*btf.Union).Members[:1]
		}, "", "thing.u lacks small"},
		{"union member widened", func(s *btf.Struct, e *btf.Enum) { s.Members[3].Type.(*btf.Union).Members[1].Type = u64 }, "thing.u.small has 8 bytes", ""},
		{"struct gone", func(s *btf.Struct, e *btf.Enum) { s.Name = "thong" }, "", "no struct thing"},
		{"constant changed", func(s *btf.Struct, e *btf.Enum) { e.Values[1].Value = 6 }, "KIND_B is 6", ""},
		{"constant missing", func(s *btf.Struct, e *btf.Enum) { e.Values = e.Values[:1] }, "", "kinds lacks KIND_B, KIND_BIG, KIND_MAX"},
		{"counter grew", func(s *btf.Struct, e *btf.Enum) { e.Values[3].Value = 9 }, "", "KIND_MAX is 9"},
		{"enum without a name", func(s *btf.Struct, e *btf.Enum) { e.Name = ""; e.Values[1].Value = 7 }, "KIND_B is 7", ""},
		{"BTF of 32 bits", func(s *btf.Struct, e *btf.Enum) { e.Size = 4; e.Values[2].Value = 0 }, "", "no room for KIND_BIG"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := kernel()
			c.edit(s, e)
			r := compare(t, s, e)
			failures, notes := strings.Join(r.Failures, "\n"), strings.Join(r.Notes, "\n")
			if c.fail == "" && failures != "" || !strings.Contains(failures, c.fail) {
				t.Errorf("failures %q, want %q", failures, c.fail)
			}
			if !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}
