package layout_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

const small = `goverbs-layout 1
# Written by "abigen scan". Fields: offset, size, name (- when anonymous), type.
package headers 1-1
machine any

header rdma/a.h
macro LIMIT 64
enum kinds {
	KIND_A 0
	KIND_B -1
}
struct inner 16 {
	0 8 addr u64
	8 4 key be32
	12 4 - union 4 {
		0 4 imm be32
		0 4 rkey u32
	}
}
struct outer 24 {
	0 16 in type inner
	16 6 mac u8[6]
	24 0 data type inner[]
}
`

func TestReadWrite(t *testing.T) {
	table, err := layout.Read(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.String() != small {
		t.Errorf("written:\n%s\nread:\n%s", out.String(), small)
	}
	outer, ok := table.Type("outer")
	if !ok || table.Align(outer) != 8 {
		t.Errorf("outer: %+v", outer)
	}
	if v, ok := table.Const("KIND_B"); v != -1 || !ok {
		t.Errorf("KIND_B is %d, %v", v, ok)
	}
	if v, ok := table.Const("LIMIT"); v != 64 || !ok {
		t.Errorf("LIMIT is %d, %v", v, ok)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"another version", "goverbs-layout 1", "goverbs-layout 2", "no table of this version"},
		{"no package", "package headers 1-1\n", "", "missing"},
		{"field outside", "16 6 mac u8[6]", "20 6 mac u8[6]", "after the end"},
		{"overlap", "8 4 key be32", "4 4 key be32", "overlaps"},
		{"wrong size", "16 6 mac u8[6]", "16 4 mac u8[6]", "its type has 6 bytes"},
		{"union member elsewhere", "0 4 rkey u32", "1 4 rkey u32", "stands at 1"},
		{"unknown type", "type inner[]", "type nothing[]", "not defined above"},
		{"itself", "0 16 in type inner", "0 16 in type outer", "not defined above"},
		{"no scalar", "0 8 addr u64", "0 8 addr u65", "no scalar"},
		{"huge array", "u8[6]", "u8[99999999]", "outside"},
		{"empty array", "u8[6]", "u8[0]", "written []"},
		{"open array", "u8[6]", "u8[6", "lacks its ]"},
		{"twice", "KIND_B -1", "KIND_A -1", "there twice"},
		{"no number", "KIND_B -1", "KIND_B minus", "invalid syntax"},
		{"short line", "8 4 key be32", "8 4 key", "needs offset"},
		{"cut off", "	24 0 data type inner[]\n}\n", "", "unexpected EOF"},
		{"noise", "macro LIMIT 64", "marco LIMIT 64", "cannot read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(small, c.old, c.new, 1)
			if text == small {
				t.Fatal("the case changes nothing")
			}
			if _, err := layout.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// FuzzRead reads hostile text: no panic, and what is accepted can be written and read again as the same text.
func FuzzRead(f *testing.F) {
	f.Add(small)
	f.Add(strings.Replace(small, "struct outer 24 {", "union outer 24 {", 1))
	f.Fuzz(func(t *testing.T, text string) {
		table, err := layout.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		var one, two bytes.Buffer
		if err := table.Write(&one); err != nil {
			t.Fatal(err)
		}
		again, err := layout.Read(bytes.NewReader(one.Bytes()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, one.String())
		}
		if err := again.Write(&two); err != nil {
			t.Fatal(err)
		}
		if one.String() != two.String() {
			t.Fatalf("first\n%s\nthen\n%s", one.String(), two.String())
		}
		for _, h := range table.Headers {
			for _, ty := range h.Types {
				if n := table.Align(ty); n < 1 || n > 8 {
					t.Fatalf("%s is aligned to %d", ty.Name, n)
				}
			}
		}
	})
}
