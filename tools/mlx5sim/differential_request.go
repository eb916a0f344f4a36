package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// field is a part of what is compared, by name.
type field struct{ name, value string }

// rawAttr is an attribute of an ioctl as it came.
type rawAttr struct {
	id, length, flags, elem uint16
	data                    uint64
	desc                    *abi.Attr
	bytes                   []byte // of an input
}

// rawRequest is an ioctl as it came.
type rawRequest struct {
	title string
	addr  uint64
	head  abi.UverbsIoctlHdr
	attrs []rawAttr
}

// readRequest reads the bytes of an ioctl, and what its inputs point to.
func readRequest(mem request.Memory, addr uint64) *rawRequest {
	r := &rawRequest{title: request.Title(mem, addr), addr: addr}
	if mem.Read(addr, r.head.Bytes()) != nil {
		return r
	}
	method, _ := abi.LookupMethod(r.head.DriverID, r.head.ObjectID, r.head.MethodID)
	ne := binary.NativeEndian
	for i := range uint64(r.head.NumAttrs) {
		var b [abi.SizeofUverbsAttr]byte
		if mem.Read(addr+abi.SizeofUverbsIoctlHdr+i*abi.SizeofUverbsAttr, b[:]) != nil {
			break
		}
		a := rawAttr{id: ne.Uint16(b[0:]), length: ne.Uint16(b[2:]), flags: ne.Uint16(b[4:]), elem: ne.Uint16(b[6:]), data: ne.Uint64(b[8:])}
		if method != nil {
			a.desc, _ = method.Attr(a.id)
		}
		if a.desc != nil && (a.desc.Kind == abi.PtrIn || a.desc.Kind == abi.FlagsIn || a.desc.Kind == abi.ConstIn) {
			a.bytes = make([]byte, a.length)
			if a.length <= 8 {
				copy(a.bytes, b[8:])
			} else if mem.Read(a.data, a.bytes) != nil {
				a.bytes = nil
			}
		}
		r.attrs = append(r.attrs, a)
	}
	return r
}

// input finds the bytes of an attribute.
func (r *rawRequest) input(id uint16) []byte {
	for i := range r.attrs {
		if r.attrs[i].id == id {
			return r.attrs[i].bytes
		}
	}
	return nil
}

// uint32 is a number of an input, 0 if it has none there.
func (r *rawRequest) uint32(id uint16, off int) uint32 {
	if b := r.input(id); len(b) >= off+4 {
		return binary.NativeEndian.Uint32(b[off:])
	}
	return 0
}

func (r *rawRequest) uint64(id uint16, off int) uint64 {
	if b := r.input(id); len(b) >= off+8 {
		return binary.NativeEndian.Uint64(b[off:])
	}
	return 0
}

// A place is a part of an input that the program, or its allocator, is free to choose, and how
// it is compared all the same: it is normalised, and not left out.
type place struct {
	attr string
	off  int
	as   sense
	kind string // of a handle
}

// sense is what a place means.
type sense int

const (
	// A handle or a descriptor: which object of its kind it is, by the order in which they were made.
	senseHandle sense = iota
	// Where the memory of a queue is: its offset in a page, for that is what a driver may not choose.
	senseBuffer
	// Where a doorbell record is: its offset in a line of 64 bytes.
	senseRecord
	// Eight bytes that come back in events: whether they are zero.
	senseOpaque
	// The user index: which queue has it, and that no two do.
	senseIndex
	// A page of registers: of which type it is.
	sensePage
)

const (
	coreIn    = "CORE_IN"
	uhwIn     = "UHW_IN"
	invoke    = "DEVICE.INVOKE_WRITE "
	queryQP   = invoke + "QUERY_QP"
	modifyQP  = invoke + "MODIFY_QP"
	createQP  = "QP.QP_CREATE"
	createCQ  = "CQ.CQ_CREATE"
	createSRQ = "SRQ.SRQ_CREATE"
	resizeCQ  = invoke + "RESIZE_CQ"
	allocUAR  = "UAR.UAR_OBJ_ALLOC"
)

// places are those of requests by their titles. Attributes that are handles, descriptors and pointers
// by the kernel's own schema need none.
var places = map[string][]place{
	createCQ:                       {{uhwIn, 0, senseBuffer, ""}, {uhwIn, 8, senseRecord, ""}, {uhwIn, 24, sensePage, ""}, {"CREATE_CQ_USER_HANDLE", 0, senseOpaque, ""}},
	createQP:                       {{uhwIn, 0, senseBuffer, ""}, {uhwIn, 8, senseRecord, ""}, {uhwIn, 32, senseIndex, ""}, {uhwIn, 36, sensePage, ""}, {"CREATE_QP_USER_HANDLE", 0, senseOpaque, ""}},
	createSRQ:                      {{uhwIn, 0, senseBuffer, ""}, {uhwIn, 8, senseRecord, ""}, {"CREATE_SRQ_USER_HANDLE", 0, senseOpaque, ""}},
	resizeCQ:                       {{uhwIn, 0, senseBuffer, ""}, {coreIn, 0, senseOpaque, ""}, {coreIn, 8, senseHandle, "CQ"}},
	modifyQP:                       {{coreIn, 64, senseHandle, "QP"}},
	queryQP:                        {{coreIn, 0, senseOpaque, ""}, {coreIn, 8, senseHandle, "QP"}},
	invoke + "ALLOC_PD":            {{coreIn, 0, senseOpaque, ""}},
	invoke + "CREATE_COMP_CHANNEL": {{coreIn, 0, senseOpaque, ""}},
	invoke + "REG_MR":              {{coreIn, 0, senseOpaque, ""}, {coreIn, 32, senseHandle, "PD"}},
	invoke + "ALLOC_MW":            {{coreIn, 0, senseOpaque, ""}, {coreIn, 8, senseHandle, "PD"}},
	invoke + "CREATE_AH":           {{coreIn, 0, senseOpaque, ""}, {coreIn, 8, senseOpaque, ""}, {coreIn, 16, senseHandle, "PD"}},
	invoke + "ATTACH_MCAST":        {{coreIn, 16, senseHandle, "QP"}},
	invoke + "DETACH_MCAST":        {{coreIn, 16, senseHandle, "QP"}},
	invoke + "EX_CMD_MODIFY_CQ":    {{coreIn, 0, senseHandle, "CQ"}},
	invoke + "REREG_MR":            {{coreIn, 0, senseOpaque, ""}, {coreIn, 8, senseHandle, "MR"}, {coreIn, 40, senseHandle, "PD"}},
	invoke + "MODIFY_SRQ":          {{coreIn, 0, senseHandle, "SRQ"}},
}

// fields are the parts of the request, normalised. Attributes come by their numbers: the kernel
// takes them in any order. Of pointers the contents count.
func (r *rawRequest) fields(rec *recorder) []field {
	l := []field{
		{"header", fmt.Sprintf("object %#x method %#x driver %d length %d for %d attributes, reserved %#x %#x", r.head.ObjectID, r.head.MethodID, r.head.DriverID, r.head.Length, r.head.NumAttrs, r.head.Reserved1, r.head.Reserved2)},
	}
	attrs := slices.Clone(r.attrs)
	slices.SortStableFunc(attrs, func(a, b rawAttr) int { return int(a.id) - int(b.id) })
	for i := range attrs {
		l = append(l, r.attrFields(rec, &attrs[i])...)
	}
	return l
}

func (r *rawRequest) attrFields(rec *recorder, a *rawAttr) []field {
	if a.desc == nil {
		return []field{{fmt.Sprintf("attribute %#x", a.id), fmt.Sprintf("length %d flags %#x data %#x", a.length, a.flags, a.data)}}
	}
	name := attrName(a.desc.Name)
	how := fmt.Sprintf("length %d flags %#x element %d", a.length, a.flags, a.elem)
	switch a.desc.Kind {
	case abi.Handle, abi.HandleDestroy:
		return []field{{name, how + " " + rec.nameOf(objectKind(a.desc.Object), uint32(a.data))}}
	case abi.FD:
		return []field{{name, how + " " + rec.fileName(uint32(a.data))}}
	case abi.HandleNew, abi.FDNew, abi.PtrOut:
		return []field{{name, how}}
	}
	l := []field{{name, how}}
	for off := 0; off < len(a.bytes); {
		p := r.placeAt(name, off)
		if p == nil {
			n := min(4, len(a.bytes)-off)
			l = append(l, field{fmt.Sprintf("%s+%d", name, off), fmt.Sprintf("%x", a.bytes[off:off+n])})
			off += n
			continue
		}
		n, text := p.normal(rec, r, a.bytes[off:])
		l = append(l, field{fmt.Sprintf("%s+%d", name, off), text})
		off += n
	}
	return l
}

func (r *rawRequest) placeAt(name string, off int) *place {
	all := places[r.title]
	for i := range all {
		if all[i].attr == name && all[i].off == off {
			return &all[i]
		}
	}
	return nil
}

// normal is the normalised form of a place and how many bytes it has.
func (p *place) normal(rec *recorder, r *rawRequest, b []byte) (n int, text string) {
	if len(b) < 4 {
		return len(b), fmt.Sprintf("%x", b)
	}
	v := uint64(binary.NativeEndian.Uint32(b))
	if p.as == senseBuffer || p.as == senseRecord || p.as == senseOpaque {
		if len(b) < 8 {
			return len(b), fmt.Sprintf("%x", b)
		}
		v = binary.NativeEndian.Uint64(b)
	}
	switch p.as {
	case senseBuffer:
		return 8, fmt.Sprintf("memory at %d of a page", v%4096)
	case senseRecord:
		return 8, fmt.Sprintf("a record at %d of a line", v%64)
	case senseOpaque:
		if v == 0 {
			return 8, "nothing"
		}
		return 8, "a word of the program's"
	case senseIndex:
		return 4, rec.newIndex(uint32(v))
	case sensePage:
		return 4, rec.pageName(uint32(v))
	}
	return 4, rec.nameOf(p.kind, uint32(v))
}

// attrName is the name of an attribute without what all have.
func attrName(name string) string {
	for _, p := range []string{"UVERBS_ATTR_", "MLX5_IB_ATTR_"} {
		if s, ok := strings.CutPrefix(name, p); ok {
			return s
		}
	}
	return name
}

// objectKind is the model's name for objects of a type.
func objectKind(object uint16) string {
	switch object {
	case abi.UVERBS_OBJECT_PD:
		return "PD"
	case abi.UVERBS_OBJECT_CQ:
		return "CQ"
	case abi.UVERBS_OBJECT_QP:
		return "QP"
	case abi.UVERBS_OBJECT_SRQ:
		return "SRQ"
	case abi.UVERBS_OBJECT_AH:
		return "AH"
	case abi.UVERBS_OBJECT_MR:
		return "MR"
	case abi.UVERBS_OBJECT_MW:
		return "MW"
	case abi.MLX5_IB_OBJECT_UAR:
		return "UAR"
	}
	return fmt.Sprintf("object %#x", object)
}
