package main

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// typePrinter prints one struct or union and the types that stand inside it.
type typePrinter struct {
	g      *generator
	header string
	b      strings.Builder
	after  []func() error // nested types, printed after the one that holds them
}

func (p *typePrinter) print(name, cName string, ty *layout.Type) error {
	var err error
	if ty.Kind == layout.Union {
		err = p.union(name, cName, ty)
	} else {
		err = p.structure(name, cName, ty)
	}
	for err == nil && len(p.after) > 0 {
		next := p.after[0]
		p.after = p.after[1:]
		err = next()
	}
	return err
}

// member is a field as it will stand in the Go struct.
type member struct {
	name, typ string
}

func (p *typePrinter) structure(name, cName string, ty *layout.Type) error {
	if err := p.size(name, cName, ty.Size); err != nil {
		return err
	}
	var (
		members []member
		methods []string
		used    = map[string]bool{"Bytes": true}
		at      int
	)
	take := func(n string) error {
		if used[n] {
			return fmt.Errorf("two fields or methods would be called %s: rename one in patches.go", n)
		}
		used[n] = true
		return nil
	}
	for _, f := range ty.Fields {
		if f.Size == 0 {
			if err := p.flexible(name, cName, f.Offset, f); err != nil {
				return err
			}
			continue
		}
		if isAnonymousUnion(f) {
			chosen, rest, err := p.choose(ty, f)
			if err != nil {
				return err
			}
			for _, arm := range rest {
				if arm.Name == "" {
					continue // an anonymous struct in it repeats the chosen member's fields
				}
				typ, err := p.goType(name, cName, arm)
				if err != nil {
					return err
				}
				if err := take(goName(arm.Name)); err != nil {
					return err
				}
				methods = append(methods, fmt.Sprintf("// %[1]s returns the union's member %[5]s, which shares its bytes with %[2]s.\nfunc (s *%[3]s) %[1]s() *%[4]s { return (*%[4]s)(unsafe.Pointer(&s.%[2]s)) }\n\n",
					goName(arm.Name), goName(chosen.Name), name, typ, arm.Name))
			}
			chosen.Offset = f.Offset
			f = chosen
		}
		if f.Name == "" {
			return fmt.Errorf("a struct without a name at %d: teach abigen what to call its fields", f.Offset)
		}
		if f.Offset > at {
			members = append(members, member{"_", fmt.Sprintf("[%d]byte", f.Offset-at)})
		}
		typ, err := p.goType(name, cName, f)
		if err != nil {
			return err
		}
		n := goName(f.Name)
		if err := take(n); err != nil {
			return err
		}
		members = append(members, member{n, typ})
		p.g.asserts = append(p.g.asserts, fmt.Sprintf("_ [0]struct{} = [unsafe.Offsetof(%s{}.%s) - %d]struct{}{}\n", name, n, f.Offset))
		at = f.Offset + f.Size
	}
	if ty.Size > at {
		members = append(members, member{"_", fmt.Sprintf("[%d]byte", ty.Size-at)})
	}
	fmt.Fprintf(&p.b, "// %s is %s in %s.\ntype %s struct {\n_ structs.HostLayout\n", name, cName, p.header, name)
	for _, m := range members {
		fmt.Fprintf(&p.b, "%s %s\n", m.name, m.typ)
	}
	p.b.WriteString("}\n\n")
	p.bytes(name)
	p.b.WriteString(strings.Join(methods, ""))
	return nil
}

// choose splits the members of an anonymous union by the patch table.
func (p *typePrinter) choose(ty *layout.Type, f layout.Field) (chosen layout.Field, rest []layout.Field, err error) {
	arm, ok := chooseArm[ty.Name]
	if !ok {
		return chosen, nil, fmt.Errorf("the union without a name at %d needs an entry in chooseArm", f.Offset)
	}
	for _, m := range f.Type.Inline.Fields {
		if m.Name == arm {
			chosen = m
		} else {
			rest = append(rest, m)
		}
	}
	if chosen.Size != f.Size {
		return chosen, nil, fmt.Errorf("member %s does not fill its union: choose another", arm)
	}
	return chosen, rest, nil
}

// union prints bytes that are aligned as the kernel aligns the union, and a method for each member.
func (p *typePrinter) union(name, cName string, ty *layout.Type) error {
	if err := p.size(name, cName, ty.Size); err != nil {
		return err
	}
	align := p.g.t.Align(ty)
	fmt.Fprintf(&p.b, "// %s is %s in %s. Its methods return the members, which all start at its first byte.\ntype %s struct {\n_ structs.HostLayout\nwords [%d]uint%d\n}\n\n",
		name, cName, p.header, name, ty.Size/align, align*8)
	p.bytes(name)
	used := map[string]bool{"Bytes": true}
	for _, f := range ty.Fields {
		if f.Name == "" || f.Size == 0 {
			return fmt.Errorf("member %q of a union: teach abigen what to call it", f.Name)
		}
		typ, err := p.goType(name, cName, f)
		if err != nil {
			return err
		}
		m := goName(f.Name)
		if used[m] {
			return fmt.Errorf("two members would be called %s", m)
		}
		used[m] = true
		fmt.Fprintf(&p.b, "// %[1]s returns the member %[4]s.\nfunc (s *%[2]s) %[1]s() *%[3]s { return (*%[3]s)(unsafe.Pointer(&s.words)) }\n\n", m, name, typ, f.Name)
	}
	return nil
}

// size claims the type's name and prints its size as a constant.
func (p *typePrinter) size(name, cName string, size int) error {
	if err := p.g.claim(name, cName); err != nil {
		return err
	}
	if err := p.g.claim("Sizeof"+name, "the size of "+cName); err != nil {
		return err
	}
	fmt.Fprintf(&p.b, "// Sizeof%s is the number of bytes of %s on every machine.\nconst Sizeof%s = %d\n\n", name, cName, name, size)
	p.g.asserts = append(p.g.asserts, fmt.Sprintf("_ [0]struct{} = [unsafe.Sizeof(%s{}) - Sizeof%s]struct{}{}\n", name, name))
	return nil
}

func (p *typePrinter) bytes(name string) {
	fmt.Fprintf(&p.b, "// Bytes returns the memory of *s as the kernel sees it. Writes to it change *s.\nfunc (s *%[1]s) Bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(s)), Sizeof%[1]s) }\n\n", name)
}

// flexible prints where arrays without a length start. They are no fields, because Go pads a struct that ends in a
// field of no size.
func (p *typePrinter) flexible(name, cName string, off int, f layout.Field) error {
	if f.Name != "" && f.Type.Count == layout.Flexible {
		c := "Off" + name + goName(f.Name)
		if err := p.g.claim(c, "the offset of "+f.Name+" in "+cName); err != nil {
			return err
		}
		fmt.Fprintf(&p.b, "// %s is where the array %s of %s starts; the array's length is not part of the type.\nconst %s = %d\n\n", c, f.Name, cName, c, off)
		return nil
	}
	if f.Type.Inline == nil {
		return fmt.Errorf("field %q has no size and is no array", f.Name)
	}
	for _, in := range f.Type.Inline.Fields {
		if err := p.flexible(name, cName, off+in.Offset, in); err != nil {
			return err
		}
	}
	return nil
}

// goType returns the Go type of a field and queues the type when it stands inside the field.
func (p *typePrinter) goType(outer, outerC string, f layout.Field) (string, error) {
	var typ string
	switch {
	case f.Type.Inline != nil:
		typ = outer + goName(f.Name)
		in := f.Type.Inline
		cName := fmt.Sprintf("the %s %s of %s", in.Kind, f.Name, strings.TrimPrefix(outerC, "the "))
		p.after = append(p.after, func() error {
			if in.Kind == layout.Union {
				return p.union(typ, cName, in)
			}
			return p.structure(typ, cName, in)
		})
	case f.Type.Named:
		typ = typeName(f.Type.Base)
	case strings.HasPrefix(f.Type.Base, "be"):
		typ = "Be" + f.Type.Base[2:]
	case strings.HasPrefix(f.Type.Base, "u"):
		typ = "uint" + f.Type.Base[1:]
	default:
		typ = "int" + f.Type.Base[1:]
	}
	if f.Type.Count > 0 {
		typ = fmt.Sprintf("[%d]%s", f.Type.Count, typ)
	}
	return typ, nil
}
