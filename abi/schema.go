package abi

// Kind says what an attribute of a uverbs method carries and in which
// direction, as the kernel declares it. The kernel derives how it treats an
// attribute's length and data from the kind alone, never from the data.
type Kind uint8

const (
	// PtrIn is a value for the kernel: inside Data when it has at most eight
	// bytes, otherwise behind the pointer in Data.
	PtrIn Kind = iota + 1
	// PtrOut is a buffer for the kernel to fill. Data is always a pointer to
	// it, also when the buffer is small.
	PtrOut
	// ConstIn is a 64-bit number inside Data; its length must be eight, also
	// for an enum or a port number.
	ConstIn
	// FlagsIn is a set of bits inside Data, of four or eight bytes.
	FlagsIn
	// Handle is an existing object in Data. Its length must be zero.
	Handle
	// HandleNew is an object to be made; the kernel writes its handle to Data.
	HandleNew
	// HandleDestroy is an object that the method destroys.
	HandleDestroy
	// FD is the file descriptor of a uverbs object, such as a completion
	// channel. Its length must be zero.
	FD
	// FDNew is a file to be made; the kernel writes the descriptor to Data.
	FDNew
	// RawFD is a file descriptor that is no uverbs object, such as a DMA-BUF.
	RawFD
	// Handles is an array of 32-bit handles, inside Data when there are at
	// most two.
	Handles
	// EnumIn is a PtrIn whose form is chosen by the attribute's elem_id.
	EnumIn
)

var kindNames = [...]string{
	PtrIn: "ptr-in", PtrOut: "ptr-out", ConstIn: "const-in", FlagsIn: "flags-in", Handle: "handle", HandleNew: "handle-new",
	HandleDestroy: "handle-destroy", FD: "fd", FDNew: "fd-new", RawFD: "raw-fd", Handles: "handles", EnumIn: "enum-in",
}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return unknownValue("Kind", uint64(k))
}

// AnyObject is the Object of a handle that may be of any type.
const AnyObject = 0xffff

// An Attr describes one attribute of a method. Lengths are in bytes, those of
// Handles too.
type Attr struct {
	ID        uint16
	Kind      Kind
	Mandatory bool     // the kernel refuses the call without it
	ZeroTail  bool     // may be longer than MaxLen; the rest of an input must be zero
	Copied    bool     // the kernel reads it while it looks at the attributes, not in the method
	MinLen    uint16   // least length
	MaxLen    uint16   // largest length, or the length that is known when ZeroTail is set
	Object    uint16   // type of the object of handles and descriptors, or AnyObject
	Name      string   // the kernel's constant, such as UVERBS_ATTR_CREATE_CQ_CQE
	Variants  []uint16 // lengths of the forms of an EnumIn, by elem_id
}

// A Method describes one method of an object type. Driver is zero for a
// method that all drivers have; a driver's own description of a core method
// carries the core's attributes and those that the driver adds. Attrs are sorted by ID.
type Method struct {
	Driver     uint32 // an RdmaDriverID, or 0
	Object     uint16
	ID         uint16
	UHW        bool // takes the driver's opaque request and response
	ObjectName string
	Name       string
	Attrs      []Attr
}

// Attr finds an attribute by its number.
func (m *Method) Attr(id uint16) (*Attr, bool) {
	for i := range m.Attrs {
		if m.Attrs[i].ID == id {
			return &m.Attrs[i], true
		}
	}
	return nil, false
}

// LookupMethod finds a method of a driver, or of the core when the driver adds
// nothing to it. The description is shared: do not write to it.
func LookupMethod(driver uint32, object, method uint16) (*Method, bool) {
	if driver != 0 {
		if m, ok := lookupMethod(driver, object, method); ok {
			return m, true
		}
	}
	return lookupMethod(0, object, method)
}

func lookupMethod(driver uint32, object, method uint16) (*Method, bool) {
	key := methodKey(driver, object, method)
	lo, hi := 0, len(methods)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		m := &methods[mid]
		switch k := methodKey(m.Driver, m.Object, m.ID); {
		case k == key:
			return m, true
		case k < key:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return nil, false
}

func methodKey(driver uint32, object, method uint16) uint64 {
	return uint64(driver)<<32 | uint64(object)<<16 | uint64(method)
}

// Methods calls yield with each method that a driver's devices may have: its
// own descriptions and those of the core that it does not add to. A device may lack some of
// them. It is an iter.Seq[*Method].
func Methods(driver uint32) func(yield func(*Method) bool) {
	return func(yield func(*Method) bool) {
		for i := range methods {
			m := &methods[i]
			if m.Driver != 0 && m.Driver != driver {
				continue
			}
			if m.Driver == 0 && driver != 0 {
				if _, own := lookupMethod(driver, m.Object, m.ID); own {
					continue
				}
			}
			if !yield(m) {
				return
			}
		}
	}
}

type objectName struct {
	driver uint32
	id     uint16
	name   string
}

// ObjectName returns the kernel's constant for an object type, such as
// UVERBS_OBJECT_CQ, or object(N) for one that is not known. Numbers from 0x1000 on
// mean what the driver says.
func ObjectName(driver uint32, object uint16) string {
	for _, o := range objects {
		if o.id == object && (o.driver == 0 || o.driver == driver) {
			return o.name
		}
	}
	return unknownValue("object", uint64(object))
}

// A Command describes one of the older write commands, which INVOKE_WRITE
// carries in its CORE_IN and CORE_OUT attributes. In and Out are the least numbers
// of bytes that a caller should give. For plain commands, less is ENOSPC; INVOKE_WRITE
// takes extended ones with less, although the write system call does not.
type Command struct {
	Number   uint32 // with IB_USER_VERBS_CMD_FLAG_EXTENDED for extended commands
	Object   uint16
	In, Out  uint16
	Response bool   // the request starts with a 64-bit response pointer, which INVOKE_WRITE ignores
	UHW      bool   // takes the driver's opaque request and response
	Tail     bool   // data may follow the request's struct; otherwise it must be zero
	Name     string // the kernel's constant, such as IB_USER_VERBS_CMD_ALLOC_PD
}

// LookupCommand finds a write command by its number, which has the bit
// IB_USER_VERBS_CMD_FLAG_EXTENDED for the extended ones. The description is shared: do not
// write to it.
func LookupCommand(number uint32) (*Command, bool) {
	for i := range commands {
		if commands[i].Number == number {
			return &commands[i], true
		}
	}
	return nil, false
}
