package main

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// enum prints the constants of an enum. Enums that number objects, methods and attributes, and enums without a name,
// become untyped constants; the rest become a named type with a String method.
func (g *generator) enum(h *layout.Header, e *layout.Enum) (string, error) {
	var b strings.Builder
	typ := ""
	title := "// Constants of an enum without a name in " + h.Name + ".\n"
	switch {
	case e.Name == "":
	case idEnum.MatchString(e.Name):
		title = fmt.Sprintf("// Numbers of enum %s in %s.\n", e.Name, h.Name)
	default:
		typ = typeName(e.Name)
		title = fmt.Sprintf("// Values of enum %s in %s.\n", e.Name, h.Name)
		if err := g.claim(typ, "enum "+e.Name); err != nil {
			return "", err
		}
		what := "is one value"
		if flagEnum.MatchString(e.Name) {
			what = "is a set of bits"
		}
		fmt.Fprintf(&b, "// %s %s of enum %s in %s.\ntype %s %s\n\n", typ, what, e.Name, h.Name, typ, enumBase(e))
	}
	b.WriteString(title + "const (\n")
	for _, v := range e.Values {
		if err := g.claim(v.Name, "enumerator "+v.Name); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s %s = %s\n", v.Name, typ, literal(v.Value))
	}
	b.WriteString(")\n\n")
	switch {
	case typ == "":
	case flagEnum.MatchString(e.Name):
		flagString(&b, typ, e)
	default:
		valueString(&b, typ, e)
	}
	return b.String(), nil
}

// enumBase is the Go type with room for all values.
func enumBase(e *layout.Enum) string {
	base := "uint32"
	for _, v := range e.Values {
		switch {
		case v.Value < 0:
			return "int64"
		case v.Value > 1<<32-1:
			base = "uint64"
		}
	}
	return base
}

func valueString(b *strings.Builder, typ string, e *layout.Enum) {
	names := map[int64]string{}
	var order []int64
	for _, v := range e.Values {
		if _, ok := names[v.Value]; !ok {
			order = append(order, v.Value)
			names[v.Value] = v.Name
		}
		if preferName[e.Name] == v.Name {
			names[v.Value] = v.Name
		}
	}
	fmt.Fprintf(b, "// String returns the kernel's name, or %s(N) for a value that this package does not know.\n", strings.ToUpper(e.Name))
	fmt.Fprintf(b, "func (v %s) String() string {\nswitch v {\n", typ)
	for _, v := range order {
		fmt.Fprintf(b, "case %s:\nreturn %q\n", names[v], names[v])
	}
	fmt.Fprintf(b, "}\nreturn unknownValue(%q, uint64(v))\n}\n\n", strings.ToUpper(e.Name))
}

// flagString names single bits only: masks of several bits and zeros say nothing about which bits are set.
func flagString(b *strings.Builder, typ string, e *layout.Enum) {
	fmt.Fprintf(b, "// String returns the kernel's names of the bits that are set, joined by |, and a hexadecimal number for the rest.\n")
	fmt.Fprintf(b, "func (v %s) String() string {\nreturn flagNames(uint64(v), []flagName{\n", typ)
	for _, v := range e.Values {
		if bits.OnesCount64(uint64(v.Value)) == 1 {
			fmt.Fprintf(b, "{%s, %q},\n", fmt.Sprintf("uint64(%s)", v.Name), v.Name)
		}
	}
	b.WriteString("})\n}\n\n")
}
