package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// schemaPath is the table of methods that zschema.go is generated from.
const schemaPath = "testdata/abi/schema-6.12.txt"

const schemaMagic = "goverbs-schema 1"

type schema struct {
	methods  []*schemaMethod
	commands []schemaCommand
}

type schemaMethod struct {
	driver string // constant of rdma_driver_id; empty for the core
	object string
	name   string
	extend bool // adds attributes to the core's method
	uhw    bool
	attrs  []schemaAttr
}

type schemaAttr struct {
	name      string
	kind      string
	object    string // of handles and fds
	min, max  int    // bytes, for arrays of handles too
	zeroTail  bool
	copied    bool // the kernel copies it while it walks the attributes
	mandatory bool
	variants  []int
}

type schemaCommand struct {
	object              string
	name                string
	in, out             int
	response, uhw, tail bool
}

// schemaReader resolves names by the layout table, so that a misspelt one is an error.
type schemaReader struct {
	t      *layout.Table
	out    schema
	driver string
	object string
	method *schemaMethod
	writes bool
}

func readSchemaFile(path string, t *layout.Table) (*schema, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readSchema(f, t)
}

func readSchema(r io.Reader, t *layout.Table) (*schema, error) {
	s := &schemaReader{t: t}
	sc := bufio.NewScanner(r)
	if sc.Scan(); sc.Text() != schemaMagic {
		return nil, fmt.Errorf("schema: the first line must be %q", schemaMagic)
	}
	for line := 2; sc.Scan(); line++ {
		w := strings.Fields(sc.Text())
		if len(w) == 0 || strings.HasPrefix(w[0], "#") {
			continue
		}
		if err := s.line(w); err != nil {
			return nil, fmt.Errorf("schema, line %d: %w", line, err)
		}
	}
	return &s.out, sc.Err()
}

func (s *schemaReader) line(w []string) error {
	switch {
	case w[0] == "driver" && len(w) == 2:
		s.driver = w[1]
		return s.known(w[1])
	case (w[0] == "object" || w[0] == "commands") && len(w) == 2:
		s.object, s.method, s.writes = w[1], nil, w[0] == "commands"
		return s.known(w[1])
	case (w[0] == "method" || w[0] == "extend") && len(w) == 2 && s.object != "":
		s.method = &schemaMethod{driver: s.driver, object: s.object, name: w[1], extend: w[0] == "extend"}
		s.out.methods = append(s.out.methods, s.method)
		return s.known(w[1])
	case s.writes:
		return s.command(w)
	case s.method != nil && len(w) == 1 && w[0] == "uhw":
		s.method.uhw = true
		s.method.attrs = append(s.method.attrs,
			schemaAttr{name: "UVERBS_ATTR_UHW_IN", kind: "ptr-in", max: maxAttrLen},
			schemaAttr{name: "UVERBS_ATTR_UHW_OUT", kind: "ptr-out", max: maxAttrLen})
		return nil
	case s.method != nil:
		return s.attr(w)
	}
	return fmt.Errorf("cannot read %q here", strings.Join(w, " "))
}

// maxAttrLen is what the 16-bit length of an attribute can say.
const maxAttrLen = 1<<16 - 1

func (s *schemaReader) known(name string) error {
	if _, ok := s.t.Const(name); !ok {
		return fmt.Errorf("the headers have no %s", name)
	}
	return nil
}

// attr reads "NAME kind [arguments] mandatory|optional".
func (s *schemaReader) attr(w []string) error {
	if len(w) < 3 {
		return fmt.Errorf("an attribute needs a name, a kind and whether it is mandatory, not %q", strings.Join(w, " "))
	}
	a := schemaAttr{name: w[0], kind: w[1]}
	if err := s.known(a.name); err != nil {
		return err
	}
	switch w[len(w)-1] {
	case "mandatory":
		a.mandatory = true
	case "optional":
	default:
		return fmt.Errorf("%s: the last word must be mandatory or optional", a.name)
	}
	args := w[2 : len(w)-1]
	if n := len(args); n > 0 && args[n-1] == "copied" && a.kind == "ptr-in" {
		a.copied, args = true, args[:n-1]
	}
	want := map[string]int{"ptr-in": 1, "ptr-out": 1, "enum-in": 1, "handle": 1, "handle-new": 1, "handle-destroy": 1, "fd": 1, "fd-new": 1, "handles": 2}[a.kind]
	if len(args) != want {
		return fmt.Errorf("%s: kind %s takes %d arguments, not %d", a.name, a.kind, want, len(args))
	}
	var err error
	switch a.kind {
	case "ptr-in", "ptr-out":
		err = s.length(&a, args[0])
	case "const-in":
		a.min, a.max = 8, 8
	case "flags-in":
		a.min, a.max = 4, 8
	case "raw-fd":
	case "enum-in":
		for v := range strings.SplitSeq(args[0], ",") {
			n, err := strconv.ParseUint(v, 10, 16)
			if err != nil {
				return err
			}
			a.variants = append(a.variants, int(n))
			a.max = max(a.max, int(n))
		}
	case "handle", "handle-new", "handle-destroy", "fd", "fd-new", "handles":
		a.object = args[0]
		if a.object != anyObject {
			if err := s.known(a.object); err != nil {
				return err
			}
		}
		if a.kind == "handles" {
			a.min, a.max, err = span(args[1])
			a.min, a.max = a.min*4, a.max*4
		}
	default:
		return fmt.Errorf("%s: unknown kind %q", a.name, a.kind)
	}
	s.method.attrs = append(s.method.attrs, a)
	return err
}

// anyObject stands for a handle of any type. The headers do not have it.
const anyObject = "UVERBS_IDR_ANY_OBJECT"

func (s *schemaReader) length(a *schemaAttr, arg string) error {
	key, val, _ := strings.Cut(arg, "=")
	var err error
	switch key {
	case "size":
		a.min, err = s.sizeof(val)
		a.max = a.min
	case "struct":
		a.min, err = s.sizeof(val)
		a.max, a.zeroTail = a.min, true
	case "min":
		a.min, err = strconv.Atoi(val)
		a.max = maxAttrLen
	case "range":
		a.min, a.max, err = span(val)
	default:
		err = fmt.Errorf("%s: unknown length %q", a.name, arg)
	}
	return err
}

func span(s string) (lo, hi int, err error) {
	if _, err := fmt.Sscanf(s, "%d..%d", &lo, &hi); err != nil || lo < 0 || lo > hi || hi > maxAttrLen/4 {
		return 0, 0, fmt.Errorf("want N..M, not %q", s)
	}
	return lo, hi, nil
}

// sizeof returns the bytes of a scalar, a struct, or a struct up to and with one member.
func (s *schemaReader) sizeof(name string) (int, error) {
	if n, ok := layout.ScalarSize(name); ok {
		return n, nil
	}
	tag, member, hasMember := strings.Cut(name, ".")
	ty, ok := s.t.Type(tag)
	if !ok {
		return 0, fmt.Errorf("the headers have no struct %s", tag)
	}
	if !hasMember {
		return ty.Size, nil
	}
	for _, f := range ty.Fields {
		if f.Name == member {
			return f.Offset + f.Size, nil
		}
	}
	return 0, fmt.Errorf("struct %s has no member %s", tag, member)
}

func (s *schemaReader) command(w []string) error {
	if len(w) < 3 {
		return fmt.Errorf("a command needs a name, a request and a response, not %q", strings.Join(w, " "))
	}
	c := schemaCommand{object: s.object, name: w[0]}
	if err := s.known(c.name); err != nil {
		return err
	}
	var err error
	if c.in, err = s.sizeof(w[1]); err != nil {
		return err
	}
	if w[2] != "-" {
		if c.out, err = s.sizeof(w[2]); err != nil {
			return err
		}
	}
	for _, word := range w[3:] {
		switch word {
		case "response":
			c.response = true
		case "uhw":
			c.uhw = true
		case "tail":
			c.tail = true
		default:
			return fmt.Errorf("%s: unknown word %q", c.name, word)
		}
	}
	s.out.commands = append(s.out.commands, c)
	return nil
}
