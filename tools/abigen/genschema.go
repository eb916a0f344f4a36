package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

var kindNames = map[string]string{
	"ptr-in": "PtrIn", "ptr-out": "PtrOut", "const-in": "ConstIn", "flags-in": "FlagsIn",
	"handle": "Handle", "handle-new": "HandleNew", "handle-destroy": "HandleDestroy",
	"fd": "FD", "fd-new": "FDNew", "raw-fd": "RawFD", "handles": "Handles", "enum-in": "EnumIn",
}

// printSchema prints the tables of zschema.go.
func (g *generator) printSchema(s *schema) (string, error) {
	methods, err := mergeExtensions(s.methods)
	if err != nil {
		return "", err
	}
	num := func(name string) int64 {
		v, _ := g.t.Const(name) // readSchema has looked all names up
		return v
	}
	slices.SortFunc(methods, func(a, b *schemaMethod) int {
		return cmp.Or(cmp.Compare(driverNumber(g.t, a), driverNumber(g.t, b)), cmp.Compare(num(a.object), num(b.object)), cmp.Compare(num(a.name), num(b.name)))
	})
	var b strings.Builder
	b.WriteString("// methods is sorted by driver, object and method; driver 0 is the core.\nvar methods = []Method{\n")
	var last string
	for _, m := range methods {
		key := fmt.Sprint(m.driver, num(m.object), num(m.name))
		if key == last {
			return "", fmt.Errorf("schema: %s.%s is there twice", m.object, m.name)
		}
		last = key
		driver := m.driver
		if driver == "" {
			driver = "0"
		} else {
			driver = "uint32(" + driver + ")"
		}
		fmt.Fprintf(&b, "{Driver: %s, Object: %s, ID: %s, ObjectName: %q, Name: %q, %sAttrs: []Attr{\n", driver, m.object, m.name, m.object, m.name, trueField("UHW", m.uhw))
		slices.SortFunc(m.attrs, func(x, y schemaAttr) int { return cmp.Compare(num(x.name), num(y.name)) })
		for i, a := range m.attrs {
			if i > 0 && num(m.attrs[i-1].name) == num(a.name) {
				return "", fmt.Errorf("schema: %s: %s and %s have one number", m.name, m.attrs[i-1].name, a.name)
			}
			b.WriteString(printAttr(a))
		}
		b.WriteString("}},\n")
	}
	b.WriteString("}\n\n// commands is sorted by number, the extended ones last.\nvar commands = []Command{\n")
	slices.SortFunc(s.commands, func(x, y schemaCommand) int {
		return cmp.Or(cmp.Compare(b2i(x.extended()), b2i(y.extended())), cmp.Compare(num(x.name), num(y.name)))
	})
	for _, c := range s.commands {
		number := c.name
		if c.extended() {
			number += " | IB_USER_VERBS_CMD_FLAG_EXTENDED"
		}
		fmt.Fprintf(&b, "{Number: %s, Name: %q, Object: %s, In: %d, Out: %d, %s%s%s},\n", number, c.name, c.object, c.in, c.out, trueField("Response", c.response), trueField("UHW", c.uhw), trueField("Tail", c.tail))
	}
	b.WriteString("}\n\n// objects names the object types by number, the core's first.\nvar objects = []objectName{\n")
	for _, e := range enums(g.t) {
		driver := ""
		switch e.Name {
		case "uverbs_default_objects":
			driver = "0"
		case "mlx5_ib_objects":
			driver = "uint32(RDMA_DRIVER_MLX5)"
		default:
			continue
		}
		for _, v := range e.Values {
			fmt.Fprintf(&b, "{%s, %s, %q},\n", driver, v.Name, v.Name)
		}
	}
	b.WriteString("}\n")
	return b.String(), nil
}

func trueField(name string, v bool) string {
	if v {
		return name + ": true, "
	}
	return ""
}

func (c schemaCommand) extended() bool { return strings.HasPrefix(c.name, "IB_USER_VERBS_EX_CMD_") }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func driverNumber(t *layout.Table, m *schemaMethod) int64 {
	v, _ := t.Const(m.driver)
	return v
}

// mergeExtensions gives a driver a method of its own with the core's attributes and those that it adds.
func mergeExtensions(in []*schemaMethod) ([]*schemaMethod, error) {
	var out []*schemaMethod
	for _, m := range in {
		if m.extend {
			i := slices.IndexFunc(in, func(c *schemaMethod) bool {
				return c.driver == "" && c.object == m.object && c.name == m.name
			})
			if i < 0 {
				return nil, fmt.Errorf("schema: %s extends %s.%s, which the core does not have", m.driver, m.object, m.name)
			}
			merged := *in[i]
			merged.driver = m.driver
			merged.attrs = append(slices.Clone(merged.attrs), m.attrs...)
			m = &merged
		}
		out = append(out, m)
	}
	return out, nil
}

func printAttr(a schemaAttr) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{ID: %s, Name: %q, Kind: %s", a.name, a.name, kindNames[a.kind])
	if a.object == anyObject {
		b.WriteString(", Object: AnyObject")
	} else if a.object != "" {
		fmt.Fprintf(&b, ", Object: %s", a.object)
	}
	if a.mandatory {
		b.WriteString(", Mandatory: true")
	}
	if a.min != 0 {
		fmt.Fprintf(&b, ", MinLen: %d", a.min)
	}
	if a.max != 0 {
		fmt.Fprintf(&b, ", MaxLen: %d", a.max)
	}
	if a.zeroTail {
		b.WriteString(", ZeroTail: true")
	}
	if a.copied {
		b.WriteString(", Copied: true")
	}
	if a.variants != nil {
		fmt.Fprintf(&b, ", Variants: []uint16{%s}", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(a.variants)), ", "), "[]"))
	}
	b.WriteString("},\n")
	return b.String()
}
