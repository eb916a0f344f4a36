package layout

import "fmt"

// check finds what Read's grammar cannot: fields outside their type, fields
// that overlap, types and constants that are missing or there twice, and
// structs that hold themselves.
func (t *Table) check() error {
	if t.Package == "" || t.Version == "" || t.Machine == "" {
		return fmt.Errorf("the package, version or machine line is missing")
	}
	seen := map[string]bool{}
	once := func(kind, name string) error {
		if seen[kind+" "+name] {
			return fmt.Errorf("%s %s is there twice", kind, name)
		}
		seen[kind+" "+name] = true
		return nil
	}
	known := map[string]*Type{}
	for _, h := range t.Headers {
		for _, c := range h.Macros {
			if err := once("constant", c.Name); err != nil {
				return err
			}
		}
		for _, e := range h.Enums {
			if e.Name != "" {
				if err := once("enum", e.Name); err != nil {
					return err
				}
			}
			for _, c := range e.Values {
				if err := once("constant", c.Name); err != nil {
					return err
				}
			}
		}
		for _, ty := range h.Types {
			if err := once("type", ty.Name); err != nil {
				return err
			}
			// A type may use only types that stand above it, as in C, so
			// none can hold itself.
			if err := checkType(known, ty); err != nil {
				return fmt.Errorf("%s %s: %w", ty.Kind, ty.Name, err)
			}
			known[ty.Name] = ty
		}
	}
	return nil
}

func checkType(known map[string]*Type, ty *Type) error {
	end := 0
	for _, f := range ty.Fields {
		size := 0
		switch {
		case f.Type.Inline != nil:
			if err := checkType(known, f.Type.Inline); err != nil {
				return fmt.Errorf("%s: %w", orDash(f.Name), err)
			}
			size = f.Type.Inline.Size
		case f.Type.Named:
			in, ok := known[f.Type.Base]
			if !ok {
				return fmt.Errorf("field %s: type %s is not defined above", orDash(f.Name), f.Type.Base)
			}
			size = in.Size
		default:
			n, ok := ScalarSize(f.Type.Base)
			if !ok {
				return fmt.Errorf("field %s: %q is no scalar", orDash(f.Name), f.Type.Base)
			}
			size = n
		}
		switch {
		case f.Type.Count == Flexible:
			size = 0
		case f.Type.Count > 0:
			if size > maxSize/f.Type.Count {
				return fmt.Errorf("field %s is larger than %d bytes", orDash(f.Name), maxSize)
			}
			size *= f.Type.Count
		}
		if size != f.Size {
			return fmt.Errorf("field %s: its type has %d bytes, the field %d", orDash(f.Name), size, f.Size)
		}
		if ty.Kind == Union && f.Offset != 0 {
			return fmt.Errorf("member %s of a union stands at %d", orDash(f.Name), f.Offset)
		}
		if f.Offset+f.Size > ty.Size {
			return fmt.Errorf("field %s ends at %d, after the end of the type at %d", orDash(f.Name), f.Offset+f.Size, ty.Size)
		}
		if ty.Kind == Struct && f.Offset < end {
			return fmt.Errorf("field %s at %d overlaps the one before it, which ends at %d", orDash(f.Name), f.Offset, end)
		}
		end = f.Offset + f.Size
	}
	return nil
}
