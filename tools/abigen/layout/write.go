package layout

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

const magic = "goverbs-layout 1"

// Write prints the table in the form that Read takes. The same table always
// gives the same bytes.
func (t *Table) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, magic)
	fmt.Fprintln(b, "# Written by \"abigen scan\". Fields: offset, size, name (- when anonymous), type.")
	fmt.Fprintf(b, "package %s %s\n", t.Package, t.Version)
	fmt.Fprintf(b, "machine %s\n", t.Machine)
	for _, h := range t.Headers {
		fmt.Fprintf(b, "\nheader %s\n", h.Name)
		for _, m := range h.Macros {
			fmt.Fprintf(b, "macro %s %d\n", m.Name, m.Value)
		}
		for _, e := range h.Enums {
			fmt.Fprintf(b, "enum %s {\n", orDash(e.Name))
			for _, v := range e.Values {
				fmt.Fprintf(b, "\t%s %d\n", v.Name, v.Value)
			}
			fmt.Fprintln(b, "}")
		}
		for _, ty := range h.Types {
			fmt.Fprintf(b, "%s %s %d {\n", ty.Kind, ty.Name, ty.Size)
			writeFields(b, ty, 1)
			fmt.Fprintln(b, "}")
		}
	}
	return b.Flush()
}

func writeFields(w io.Writer, ty *Type, depth int) {
	indent := strings.Repeat("\t", depth)
	for _, f := range ty.Fields {
		fmt.Fprintf(w, "%s%d %d %s %s", indent, f.Offset, f.Size, orDash(f.Name), f.Type)
		if in := f.Type.Inline; in != nil {
			fmt.Fprintf(w, " %d {\n", in.Size)
			writeFields(w, in, depth+1)
			fmt.Fprintf(w, "%s}", indent)
		}
		fmt.Fprintln(w)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
