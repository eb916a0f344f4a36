package main

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// readDWARF turns the debug information of an object file into a table of what the headers under include declare.
func readDWARF(object, include string, macros map[string][]string) (*layout.Table, error) {
	f, err := elf.Open(object)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, err := f.DWARF()
	if err != nil {
		return nil, err
	}
	s := &dwarfScan{d: d, include: include, values: map[string]int64{}, types: map[string][]located[*layout.Type]{}, enums: map[string][]located[*layout.Enum]{}}
	if err := s.walk(); err != nil {
		return nil, err
	}
	return s.table(macros)
}

// located is a declaration with its line, which gives the order.
type located[T any] struct {
	line int64
	decl T
}

type dwarfScan struct {
	d       *dwarf.Data
	include string
	values  map[string]int64 // lifted macros
	types   map[string][]located[*layout.Type]
	enums   map[string][]located[*layout.Enum]
}

// walk visits the declarations at file scope.
func (s *dwarfScan) walk() error {
	r := s.d.Reader()
	var files []*dwarf.LineFile
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		if e == nil {
			return nil
		}
		if e.Tag == dwarf.TagCompileUnit {
			lr, err := s.d.LineReader(e)
			if err != nil {
				return err
			}
			files = lr.Files()
			continue
		}
		r.SkipChildren()
		switch e.Tag {
		case dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType:
		default:
			continue
		}
		file, _ := e.Val(dwarf.AttrDeclFile).(int64)
		line, _ := e.Val(dwarf.AttrDeclLine).(int64)
		if int(file) >= len(files) || files[file] == nil {
			return fmt.Errorf("DWARF names file %d of %d", file, len(files))
		}
		header, err := filepath.Rel(s.include, files[file].Name)
		if err != nil {
			header = files[file].Name
		}
		t, err := s.d.Type(e.Offset)
		if err != nil {
			return err
		}
		if err := s.declaration(header, line, t); err != nil {
			return err
		}
	}
}

func (s *dwarfScan) declaration(header string, line int64, t dwarf.Type) error {
	switch t := t.(type) {
	case *dwarf.EnumType:
		if strings.HasPrefix(t.EnumName, macroPrefix) {
			s.values[strings.TrimPrefix(t.EnumName, macroPrefix)] = t.Val[0].Val
			return nil
		}
		e := &layout.Enum{Name: t.EnumName}
		for _, v := range t.Val {
			e.Values = append(e.Values, layout.Const{Name: v.Name, Value: v.Val})
		}
		s.enums[header] = append(s.enums[header], located[*layout.Enum]{line, e})
	case *dwarf.StructType:
		if t.StructName == "" || t.Incomplete || !slices.Contains(headers, header) {
			return nil
		}
		ty, err := structType(t)
		if err != nil && !strings.HasPrefix(header, "rdma/") {
			return nil // most of linux/in.h is none of ours; what is used and missing fails in layout.Read
		}
		if err != nil {
			return fmt.Errorf("%s: %s %s: %w", header, t.Kind, t.StructName, err)
		}
		s.types[header] = append(s.types[header], located[*layout.Type]{line, ty})
	}
	return nil
}

// table puts the declarations in the order of the headers.
func (s *dwarfScan) table(macros map[string][]string) (*layout.Table, error) {
	t := &layout.Table{Machine: machine}
	for _, name := range headers {
		h := &layout.Header{Name: name}
		for _, l := range sorted(s.types[name]) {
			h.Types = append(h.Types, l.decl)
		}
		if strings.HasPrefix(name, "rdma/") {
			for _, l := range sorted(s.enums[name]) {
				h.Enums = append(h.Enums, l.decl)
			}
			for _, m := range macros[name] {
				v, ok := s.values[m]
				if !ok {
					return nil, fmt.Errorf("%s: macro %s was lifted and is not in the DWARF", name, m)
				}
				h.Macros = append(h.Macros, layout.Const{Name: m, Value: v})
			}
			if len(h.Types)+len(h.Enums)+len(h.Macros) == 0 {
				return nil, fmt.Errorf("%s declares nothing: are these the right headers?", name)
			}
		}
		t.Headers = append(t.Headers, h)
	}
	keepReachable(t)
	return t, nil
}

func sorted[T any](ls []located[T]) []located[T] {
	return slices.SortedStableFunc(slices.Values(ls), func(a, b located[T]) int { return int(a.line - b.line) })
}

// keepReachable drops the types of foreign headers that no RDMA type uses.
func keepReachable(t *layout.Table) {
	used := map[string]bool{}
	var use func(ty *layout.Type)
	use = func(ty *layout.Type) {
		for _, f := range ty.Fields {
			switch {
			case f.Type.Inline != nil:
				use(f.Type.Inline)
			case f.Type.Named && !used[f.Type.Base]:
				used[f.Type.Base] = true
				if in, ok := t.Type(f.Type.Base); ok {
					use(in)
				}
			}
		}
	}
	for _, h := range t.Headers {
		if strings.HasPrefix(h.Name, "rdma/") {
			for _, ty := range h.Types {
				use(ty)
			}
		}
	}
	for _, h := range t.Headers {
		if !strings.HasPrefix(h.Name, "rdma/") {
			h.Types = slices.DeleteFunc(h.Types, func(ty *layout.Type) bool { return !used[ty.Name] })
		}
	}
	t.Headers = slices.DeleteFunc(t.Headers, func(h *layout.Header) bool {
		return len(h.Types)+len(h.Enums)+len(h.Macros) == 0
	})
}

func structType(t *dwarf.StructType) (*layout.Type, error) {
	ty := &layout.Type{Name: t.StructName, Size: int(t.ByteSize)}
	switch t.Kind {
	case "struct":
	case "union":
		ty.Kind = layout.Union
	default:
		return nil, fmt.Errorf("%s is neither struct nor union", t.Kind)
	}
	for _, f := range t.Field {
		if f.BitSize != 0 {
			return nil, fmt.Errorf("field %s is a bit field: teach abigen how the kernel lays it out on big-endian machines", f.Name)
		}
		ref, err := fieldType(f.Type)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		size := 0
		if ref.Count != layout.Flexible {
			size = int(f.Type.Size())
		}
		if size == 0 && ref.Count == 0 {
			// The empty struct that the kernel's flexible-array macro puts before the array takes no room.
			if in := ref.Inline; in != nil && len(in.Fields) == 0 {
				continue
			}
		}
		ty.Fields = append(ty.Fields, layout.Field{Name: f.Name, Offset: int(f.ByteOffset), Size: size, Type: ref})
	}
	return ty, nil
}

// scalars maps the kernel's type names to the table's. A field's big-endian type is known by its typedef only.
var scalars = map[string]string{
	"__u8": "u8", "__u16": "u16", "__u32": "u32", "__u64": "u64", "__aligned_u64": "u64",
	"__s8": "s8", "__s16": "s16", "__s32": "s32", "__s64": "s64",
	"__be16": "be16", "__be32": "be32", "__be64": "be64",
	"unsigned char": "u8", "unsigned short int": "u16", "short unsigned int": "u16", "unsigned short": "u16",
}

func fieldType(t dwarf.Type) (layout.Ref, error) {
	switch t := t.(type) {
	case *dwarf.TypedefType:
		if s, ok := scalars[t.Name]; ok {
			return layout.Ref{Base: s}, nil
		}
		return fieldType(t.Type)
	case *dwarf.StructType:
		if t.StructName != "" {
			return layout.Ref{Base: t.StructName, Named: true}, nil
		}
		in, err := structType(t)
		return layout.Ref{Inline: in}, err
	case *dwarf.ArrayType:
		ref, err := fieldType(t.Type)
		if err != nil {
			return ref, err
		}
		if ref.Count != 0 {
			return ref, fmt.Errorf("arrays of arrays are not in the table's language")
		}
		ref.Count = int(t.Count)
		if t.Count <= 0 {
			ref.Count = layout.Flexible
		}
		return ref, nil
	}
	if s, ok := scalars[t.String()]; ok {
		return layout.Ref{Base: s}, nil
	}
	return layout.Ref{}, fmt.Errorf("type %s is none of %v", t, slices.Sorted(maps.Keys(scalars)))
}
