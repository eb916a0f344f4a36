package btfcheck

import (
	"regexp"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

// member is a field of either side. Fields of structs and unions without a name count as fields of what holds them.
type member struct {
	name         string
	offset, size int
	aggregate    bool         // a struct or union
	inline       *layout.Type // the table's type, when it stands inside the field
	typ          btf.Type     // the kernel's type
}

func (m member) end() int { return m.offset + m.size }

var reservedName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^_*(reserved|rsvd|resv|pad)`) })

// reserved says whether a field is there only to be filled later.
func (m member) reserved() bool { return reservedName().MatchString(m.name) }

// unused says whether no field of ms, but for reserved ones, touches the bytes of m.
func unused(ms []member, m member) bool {
	for _, o := range ms {
		if !o.reserved() && o.size > 0 && o.offset < m.end() && m.offset < o.end() {
			return false
		}
	}
	return true
}

// aggregate is a struct or union of the kernel.
type aggregate struct {
	size    int
	members []member
}

func (a aggregate) find(name string) (member, bool) {
	for _, m := range a.members {
		if m.name == name {
			return m, true
		}
	}
	return member{}, false
}

func tableMembers(ty *layout.Type) []member {
	var ms []member
	for _, f := range ty.Fields {
		if f.Name == "" {
			for _, m := range tableMembers(f.Type.Inline) {
				m.offset += f.Offset
				ms = append(ms, m)
			}
			continue
		}
		m := member{name: f.Name, offset: f.Offset, size: f.Size, aggregate: f.Type.Named || f.Type.Inline != nil}
		if f.Type.Count == 0 {
			m.inline = f.Type.Inline
		}
		ms = append(ms, m)
	}
	return ms
}

// aggregates finds the kernel's types of a name. A typedef of it is none.
func aggregates(specs []*btf.Spec, ty *layout.Type) ([]aggregate, error) {
	var as []aggregate
	err := byName(specs, ty.Name, func(t btf.Type) {
		if a, ok := aggregateOf(t); ok {
			as = append(as, a)
		}
	})
	return as, err
}

func aggregateOf(t btf.Type) (aggregate, bool) {
	var (
		size uint32
		ms   []btf.Member
	)
	switch t := t.(type) {
	case *btf.Struct:
		size, ms = t.Size, t.Members
	case *btf.Union:
		size, ms = t.Size, t.Members
	default:
		return aggregate{}, false
	}
	a := aggregate{size: int(size)}
	for _, m := range ms {
		off := int(m.Offset.Bytes())
		if m.Name == "" {
			if in, ok := aggregateOf(btf.UnderlyingType(m.Type)); ok {
				for _, im := range in.members {
					im.offset += off
					a.members = append(a.members, im)
				}
			}
			continue
		}
		n, err := btf.Sizeof(m.Type)
		if err != nil {
			n = 0 // a flexible array
		}
		a.members = append(a.members, member{name: m.Name, offset: off, size: n, typ: m.Type})
	}
	return a, true
}
