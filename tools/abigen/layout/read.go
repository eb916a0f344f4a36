package layout

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxSize bounds every size, offset and array length, so that sums of them
// cannot overflow on a 32-bit machine. Kernel structs are far smaller.
const maxSize = 1 << 20

// maxDepth bounds how deep inline types nest.
const maxDepth = 16

// Read parses a table and checks it.
func Read(r io.Reader) (*Table, error) {
	p := &parser{s: bufio.NewScanner(r)}
	t, err := p.table()
	if err != nil {
		return nil, fmt.Errorf("layout table, line %d: %w", p.line, err)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("layout table: %w", err)
	}
	return t, nil
}

type parser struct {
	s    *bufio.Scanner
	line int
}

// next returns the words of the next line that has any, or nil at the end.
func (p *parser) next() ([]string, error) {
	for p.s.Scan() {
		p.line++
		words := strings.Fields(p.s.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		return words, nil
	}
	return nil, p.s.Err()
}

func (p *parser) table() (*Table, error) {
	w, err := p.next()
	if err != nil {
		return nil, err
	}
	if strings.Join(w, " ") != magic {
		return nil, fmt.Errorf("want %q first: this is no table of this version", magic)
	}
	t := &Table{}
	var h *Header
	for {
		w, err := p.next()
		if err != nil {
			return nil, err
		}
		if w == nil {
			return t, nil
		}
		if h == nil && w[0] != "package" && w[0] != "machine" && w[0] != "header" {
			return nil, fmt.Errorf("%q before the first header", w[0])
		}
		switch {
		case w[0] == "package" && len(w) == 3:
			t.Package, t.Version = w[1], w[2]
		case w[0] == "machine" && len(w) == 2:
			t.Machine = w[1]
		case w[0] == "header" && len(w) == 2:
			h = &Header{Name: w[1]}
			t.Headers = append(t.Headers, h)
		case w[0] == "macro" && len(w) == 3:
			c, err := constant(w[1:])
			if err != nil {
				return nil, err
			}
			h.Macros = append(h.Macros, c)
		case w[0] == "enum" && len(w) == 3 && w[2] == "{":
			e, err := p.enum(noDash(w[1]))
			if err != nil {
				return nil, err
			}
			h.Enums = append(h.Enums, e)
		case (w[0] == "struct" || w[0] == "union") && len(w) == 4 && w[3] == "{":
			ty, err := p.typeBody(kind(w[0]), w[1], w[2], 0)
			if err != nil {
				return nil, err
			}
			h.Types = append(h.Types, ty)
		default:
			return nil, fmt.Errorf("cannot read %q", strings.Join(w, " "))
		}
	}
}

func (p *parser) enum(name string) (*Enum, error) {
	e := &Enum{Name: name}
	for {
		w, err := p.next()
		if err != nil {
			return nil, err
		}
		if w == nil {
			return nil, io.ErrUnexpectedEOF
		}
		if w[0] == "}" {
			return e, nil
		}
		c, err := constant(w)
		if err != nil {
			return nil, err
		}
		e.Values = append(e.Values, c)
	}
}

func (p *parser) typeBody(k Kind, name, size string, depth int) (*Type, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("types nest deeper than %d", maxDepth)
	}
	n, err := number(size)
	if err != nil {
		return nil, err
	}
	ty := &Type{Kind: k, Name: name, Size: n}
	for {
		w, err := p.next()
		if err != nil {
			return nil, err
		}
		if w == nil {
			return nil, io.ErrUnexpectedEOF
		}
		if w[0] == "}" {
			return ty, nil
		}
		f, err := p.field(w, depth)
		if err != nil {
			return nil, err
		}
		ty.Fields = append(ty.Fields, f)
	}
}

// field reads "offset size name type", where type is a scalar, "type TAG", or
// "struct SIZE {" with the body on the lines that follow.
func (p *parser) field(w []string, depth int) (Field, error) {
	if len(w) < 4 {
		return Field{}, fmt.Errorf("a field needs offset, size, name and type, not %q", strings.Join(w, " "))
	}
	off, err := number(w[0])
	if err != nil {
		return Field{}, err
	}
	size, err := number(w[1])
	if err != nil {
		return Field{}, err
	}
	f := Field{Name: noDash(w[2]), Offset: off, Size: size}
	rest := w[3:]
	base := rest[0]
	if base == "type" && len(rest) == 2 {
		f.Type.Named = true
		base = rest[1]
	}
	base, f.Type.Count, err = array(base)
	if err != nil {
		return Field{}, err
	}
	switch {
	case f.Type.Named, len(rest) == 1:
		f.Type.Base = base
	case (base == "struct" || base == "union") && len(rest) == 3 && rest[2] == "{":
		f.Type.Inline, err = p.typeBody(kind(base), "", rest[1], depth+1)
		if err != nil {
			return Field{}, err
		}
	default:
		return Field{}, fmt.Errorf("cannot read the type %q", strings.Join(rest, " "))
	}
	return f, nil
}

// array splits "u32[4]" into its base and count.
func array(s string) (string, int, error) {
	base, rest, ok := strings.Cut(s, "[")
	if !ok {
		return s, 0, nil
	}
	rest, ok = strings.CutSuffix(rest, "]")
	if !ok {
		return "", 0, fmt.Errorf("array type %q lacks its ]", s)
	}
	if rest == "" {
		return base, Flexible, nil
	}
	n, err := number(rest)
	if err == nil && n == 0 {
		err = fmt.Errorf("array type %q: zero elements are written []", s)
	}
	return base, n, err
}

func constant(w []string) (Const, error) {
	if len(w) != 2 {
		return Const{}, fmt.Errorf("want a name and a number, not %q", strings.Join(w, " "))
	}
	v, err := strconv.ParseInt(w[1], 10, 64)
	return Const{w[0], v}, err
}

func number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, err
	}
	if n < 0 || n > maxSize {
		return 0, fmt.Errorf("%d is outside 0 to %d", n, maxSize)
	}
	return n, nil
}

func kind(s string) Kind {
	if s == "union" {
		return Union
	}
	return Struct
}

func noDash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}
