package model

import (
	"encoding/binary"
	"os"
	"slices"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Registers of a UAR page.
const (
	armRegister   = 0x20
	firstRegister = 0x800
	endRegister   = 0x1000 // registers of an uncached page
	ncRegister    = 0x100
	bfHalf        = blueFlameBytes / 2
)

type uarKind uint8

const (
	uarBF uarKind = iota
	uarNC
	uarStatic
)

// uar is a page of registers.
type uar struct {
	f     *File
	id    uint32
	kind  uarKind
	index uint32 // of a static page
	users int
}

func (u *uar) inUse() bool { return u.users > 0 }
func (u *uar) end()        { delete(u.f.uars, u.id) }
func (*uar) rank() int     { return rankUAR }

func (f *File) newUAR(k uarKind) *uar {
	u := &uar{f: f, id: f.dev.nextUAR, kind: k}
	f.dev.nextUAR++
	f.uars[u.id] = u
	return u
}

func (c *call) allocUAR() error {
	t, _ := c.Const(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE)
	kind := uarBF
	switch t {
	case uint64(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF):
		if c.f.dev.cfg.NoBlueFlame {
			return refuse(request.EOPNOTSUPP, "write-combining does not work on this host")
		}
	case uint64(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC):
		kind = uarNC
	default:
		return refuse(request.EOPNOTSUPP, "no such type of UAR")
	}
	u := c.f.newUAR(kind)
	if _, err := c.addTo(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, u); err != nil {
		return err
	}
	if err := c.SetUint64(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, objectOffset(u.id)); err != nil {
		return err
	}
	if err := c.setUint32(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, pageSize); err != nil {
		return err
	}
	return c.setUint32(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, u.id)
}

func (c *call) destroyUAR() error {
	_, err := destroyUnused[*uar](c, abi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)
	return err
}

// objectOffset is where in the file the page of a UAR object is: beyond
// the commands of the driver, which are numbers up to 8 in bits 8 to 15 of the page number.
func objectOffset(id uint32) uint64 {
	return uint64(id>>8<<16|9<<8|id&0xff) * pageSize
}

// MapKind says what a mapping is of.
type MapKind int

// The kinds of mappings.
const (
	// MapRegisters is a UAR page, ordinary memory of the caller's: its stores go to
	// [File.Ring], or [File.Poll] finds them.
	MapRegisters MapKind = iota
	// MapClock is the page that translates time stamps, which the model writes
	// once it knows where the program has it ([Mapping.Place]).
	MapClock
	// MapCounter is the page that begins with the device's counter, as a big-endian
	// number: what it says when the memory is placed and whenever [Mapping.Refresh] is
	// called.
	MapCounter
)

// Mapping is a page of the device file that a program may map.
type Mapping struct {
	// Kind is what it is.
	Kind MapKind
	// ID is the number of a UAR page, for [File.Ring].
	ID uint32
	// WriteCombining says that stores to the page may be joined.
	WriteCombining bool
	// Memory, if not nil, is what the page is in. It is kept as long as the model
	// writes there: until [Mapping.Withdraw], or the file is closed.
	Memory any

	f    *File
	addr uint64 // where the program has it, 0 if it has not
}

// Map checks a mapping of the device file, n bytes at an offset, writable or not.
// The memory is the caller's to provide.
func (f *File) Map(offset int64, n int, writable bool) (*Mapping, error) {
	f.m.enter()
	defer f.m.leave()
	switch {
	case f.closed:
		return nil, os.ErrClosed
	case f.ctx == nil || offset < 0 || offset%pageSize != 0 || n != pageSize:
		return nil, request.EINVAL
	case f.dev.gone:
		return nil, request.EIO
	}
	page := uint64(offset) / pageSize
	command, index := abi.MLX5IBMmapCmd(page>>8&0xff), uint32(page&0xff)
	static := func(wc bool) (*Mapping, error) {
		switch {
		case f.ctx.dynamic || int(index) >= len(f.ctx.static) || page>>16 != 0:
			return nil, request.EINVAL
		case wc && f.dev.cfg.NoBlueFlame && command == abi.MLX5_IB_MMAP_WC_PAGE:
			return nil, request.EPERM
		}
		return &Mapping{Kind: MapRegisters, ID: f.ctx.static[index].id, WriteCombining: wc && !f.dev.cfg.NoBlueFlame, f: f}, nil
	}
	switch command {
	case abi.MLX5_IB_MMAP_REGULAR_PAGE, abi.MLX5_IB_MMAP_WC_PAGE:
		return static(true)
	case abi.MLX5_IB_MMAP_NC_PAGE:
		return static(false)
	case abi.MLX5_IB_MMAP_CLOCK_INFO:
		switch {
		case writable:
			return nil, request.EPERM
		case f.dev.cfg.NoClockPage:
			return nil, request.EOPNOTSUPP
		case page != uint64(abi.MLX5_IB_MMAP_CLOCK_INFO)<<8:
			return nil, request.EINVAL
		}
		return &Mapping{Kind: MapClock, f: f}, nil
	}
	if command == abi.MLX5_IB_MMAP_CORE_CLOCK {
		switch {
		case writable:
			return nil, request.EPERM
		case !f.counter:
			return nil, request.EOPNOTSUPP
		case page != uint64(abi.MLX5_IB_MMAP_CORE_CLOCK)<<8:
			return nil, request.EINVAL
		}
		return &Mapping{Kind: MapCounter, f: f}, nil
	}
	u := f.uars[uint32(page>>16)<<8|index]
	if command != 9 || u == nil || u.kind == uarStatic {
		return nil, request.EINVAL
	}
	return &Mapping{Kind: MapRegisters, ID: u.id, WriteCombining: u.kind == uarBF, f: f}, nil
}

// Place tells where the program has the clock page, which is filled in then and
// kept up to date, whenever the device works, until the file is closed; or the page of
// the counter.
func (p *Mapping) Place(addr uint64) error {
	p.f.m.enter()
	defer p.f.m.leave()
	if p.Kind == MapRegisters || p.addr != 0 || addr == 0 {
		return request.EINVAL
	}
	p.addr = addr
	if p.Kind == MapCounter {
		return p.count()
	}
	page := &clockPage{Mapping: p}
	if err := page.update(); err != nil {
		return err
	}
	p.f.m.clocks = append(p.f.m.clocks, page)
	return nil
}

// Refresh has the page of the counter, which was placed, say what that says now.
func (p *Mapping) Refresh() error {
	p.f.m.enter()
	defer p.f.m.leave()
	if p.Kind != MapCounter || p.addr == 0 {
		return request.EINVAL
	}
	return p.count()
}

// Withdraw takes back that the program has the page: the model does not write there any
// more. A page that was not placed is none the worse for it.
func (p *Mapping) Withdraw() {
	p.f.m.enter()
	defer p.f.m.leave()
	p.addr = 0
	p.f.m.clocks = slices.DeleteFunc(p.f.m.clocks, func(c *clockPage) bool { return c.Mapping == p })
}

func (p *Mapping) count() error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], p.f.dev.cycles())
	return p.f.mem.Write(p.addr, b[:])
}
