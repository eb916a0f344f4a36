package layout

import "fmt"

// A Table is the layout of every type, enum and macro that a set of UAPI
// headers declares, on a 64-bit little-endian machine. Because uverbs aligns
// 64-bit members to eight bytes by hand, the offsets hold on every machine.
type Table struct {
	Package string // name of the package that the headers came from
	Version string // its version, as the distribution spells it
	Machine string // machine that the compiler laid the structs out for
	Headers []*Header
}

// A Header holds what one header file declares, in the order in which it does.
type Header struct {
	Name   string // path as in an #include line, such as rdma/ib_user_verbs.h
	Types  []*Type
	Enums  []*Enum
	Macros []Const
}

// Kind tells a struct from a union.
type Kind uint8

const (
	Struct Kind = iota
	Union
)

// String returns the C keyword.
func (k Kind) String() string {
	if k == Union {
		return "union"
	}
	return "struct"
}

// A Type is a struct or a union.
type Type struct {
	Kind   Kind
	Name   string // C tag without the keyword; empty when it has none
	Size   int    // bytes
	Fields []Field
}

// A Field is one member. Offset counts bytes from the start of the type that
// holds it; Size is zero for a flexible array.
type Field struct {
	Name   string // empty for an anonymous struct or union
	Offset int
	Size   int
	Type   Ref
}

// Flexible is the Count of an array whose length is not part of the type.
const Flexible = -1

// A Ref says what type a field has: a scalar (u8, u16, u32, u64, s8 to s64,
// be16, be32, be64), a named struct or union, or one that is written inline.
type Ref struct {
	Base   string // scalar name, or the tag when Named is set; empty when Inline is set
	Named  bool   // Base is the tag of a struct or union
	Inline *Type  // a type without a tag
	Count  int    // elements of an array; Flexible; or 0 when this is no array
}

// String returns the reference as the table spells it, without the body of an
// inline type.
func (r Ref) String() string {
	s := r.Base
	switch {
	case r.Inline != nil:
		s = r.Inline.Kind.String()
	case r.Named:
		s = "type " + r.Base
	}
	switch {
	case r.Count == Flexible:
		s += "[]"
	case r.Count > 0:
		s += fmt.Sprintf("[%d]", r.Count)
	}
	return s
}

// An Enum is a set of constants. Name is empty when C gives it none.
type Enum struct {
	Name   string
	Values []Const
}

// A Const is an enumerator or the value of a macro. Values above the range of
// int64 do not occur in the headers that goverbs reads.
type Const struct {
	Name  string
	Value int64
}

// Type finds a struct or union by its C tag.
func (t *Table) Type(name string) (*Type, bool) {
	for _, h := range t.Headers {
		for _, ty := range h.Types {
			if ty.Name == name {
				return ty, true
			}
		}
	}
	return nil, false
}

// Const finds an enumerator or macro by name.
func (t *Table) Const(name string) (int64, bool) {
	for _, h := range t.Headers {
		for _, m := range h.Macros {
			if m.Name == name {
				return m.Value, true
			}
		}
		for _, e := range h.Enums {
			for _, v := range e.Values {
				if v.Name == name {
					return v.Value, true
				}
			}
		}
	}
	return 0, false
}

// ScalarSize returns the bytes of a scalar type, or false when name is none.
func ScalarSize(name string) (int, bool) {
	switch name {
	case "u8", "s8":
		return 1, true
	case "u16", "s16", "be16":
		return 2, true
	case "u32", "s32", "be32":
		return 4, true
	case "u64", "s64", "be64":
		return 8, true
	}
	return 0, false
}

// Align returns the alignment that the kernel gives to a type: that of its
// widest member, with 64-bit members aligned to eight bytes on every machine.
func (t *Table) Align(ty *Type) int {
	a := 1
	for _, f := range ty.Fields {
		a = max(a, t.AlignRef(f.Type))
	}
	return a
}

// AlignRef is Align for the type of a field.
func (t *Table) AlignRef(r Ref) int {
	switch {
	case r.Inline != nil:
		return t.Align(r.Inline)
	case r.Named:
		if ty, ok := t.Type(r.Base); ok {
			return t.Align(ty)
		}
		return 1
	}
	n, _ := ScalarSize(r.Base)
	return max(n, 1)
}
