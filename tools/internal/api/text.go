package api

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// module is what names of the module's own packages go without.
const module = "github.com/goverbs/goverbs/"

// Text is what a package exports, one thing a line, sorted.
func Text(pkg *types.Package) string {
	w := writer{qualify: func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return strings.TrimPrefix(other.Path(), module)
	}}
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch o := obj.(type) {
		case *types.Const:
			w.line("const %s %s = %s", name, w.typ(o.Type()), o.Val().ExactString())
		case *types.Var:
			w.line("var %s %s", name, w.typ(o.Type()))
		case *types.Func:
			w.line("func %s%s", name, w.signature(o.Signature()))
		case *types.TypeName:
			w.typeName(o)
		}
	}
	slices.Sort(w.lines)
	return strings.Join(slices.Compact(w.lines), "")
}

type writer struct {
	qualify types.Qualifier
	lines   []string
}

func (w *writer) line(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...)+"\n")
}

func (w *writer) typ(t types.Type) string { return types.TypeString(t, w.qualify) }

// signature is a function's type without the names of its parameters, which callers do not see.
func (w *writer) signature(s *types.Signature) string {
	nameless := func(t *types.Tuple) *types.Tuple {
		all := make([]*types.Var, t.Len())
		for i := range all {
			all[i] = types.NewParam(0, nil, "", t.At(i).Type())
		}
		return types.NewTuple(all...)
	}
	var params []*types.TypeParam
	for p := range s.TypeParams().TypeParams() {
		params = append(params, p)
	}
	text := w.typ(types.NewSignatureType(nil, nil, nil, nameless(s.Params()), nameless(s.Results()), s.Variadic()))
	return w.typeParams(params) + strings.TrimPrefix(text, "func")
}

func (w *writer) typeParams(list []*types.TypeParam) string {
	if len(list) == 0 {
		return ""
	}
	all := make([]string, len(list))
	for i, p := range list {
		all[i] = p.Obj().Name() + " " + w.typ(p.Constraint())
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (w *writer) typeName(o *types.TypeName) {
	name := o.Name()
	if a, ok := o.Type().(*types.Alias); ok {
		w.line("type %s = %s", name, w.typ(a.Rhs()))
		return
	}
	named, ok := o.Type().(*types.Named)
	if !ok {
		w.line("type %s = %s", name, w.typ(o.Type()))
		return
	}
	var params []*types.TypeParam
	for p := range named.TypeParams().TypeParams() {
		params = append(params, p)
	}
	head := name + w.typeParams(params)
	switch u := named.Underlying().(type) {
	case *types.Struct:
		w.line("type %s struct%s", head, comparable(u))
		w.fields(name, u)
	case *types.Interface:
		w.interfaceType(head, name, u)
		return
	default:
		w.line("type %s %s", head, w.typ(u))
	}
	w.methods(name, named)
}

// fields writes the fields that programs can name: also those of embedded structs that they
// cannot name.
func (w *writer) fields(name string, s *types.Struct) {
	for f := range s.Fields() {
		if f.Exported() {
			embedded := ""
			if f.Embedded() {
				embedded = " (embedded)"
			}
			w.line("field %s.%s %s%s", name, f.Name(), w.typ(f.Type()), embedded)
			continue
		}
		if inner, ok := deref(f.Type()).Underlying().(*types.Struct); ok && f.Embedded() {
			w.fields(name, inner)
		}
	}
}

// comparable says of plain data that programs cannot compare two with ==. Of a struct that hides
// something nobody should.
func comparable(s *types.Struct) string {
	for f := range s.Fields() {
		if !f.Exported() {
			return ""
		}
	}
	if types.Comparable(s) {
		return ""
	}
	return " (without ==)"
}

func deref(t types.Type) types.Type {
	if p, ok := t.(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// interfaceType writes an interface. One with a method that is not exported is sealed: no other
// package can implement it, so that it may get methods without breaking anybody.
func (w *writer) interfaceType(head, name string, i *types.Interface) {
	sealed := ""
	for m := range i.Methods() {
		if !m.Exported() {
			sealed = " (sealed)"
		}
	}
	if i.IsComparable() || !i.IsMethodSet() {
		w.line("type %s %s", head, w.typ(i))
		return
	}
	w.line("type %s interface%s", head, sealed)
	for m := range i.Methods() {
		if m.Exported() {
			w.line("need %s.%s%s", name, m.Name(), w.signature(m.Signature()))
		}
	}
}

// methods writes a type's methods, with those of embedded fields.
func (w *writer) methods(name string, t *types.Named) {
	value := types.NewMethodSet(t)
	for s := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		f, ok := s.Obj().(*types.Func)
		if !ok || !f.Exported() {
			continue
		}
		receiver := "*" + name
		if value.Lookup(f.Pkg(), f.Name()) != nil {
			receiver = name
		}
		w.line("method (%s) %s%s", receiver, f.Name(), w.signature(s.Type().(*types.Signature)))
	}
}
