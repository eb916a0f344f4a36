package mlx5

import (
	"fmt"
	"math"

	"github.com/goverbs/goverbs/abi"
)

// A UAR is a page of the device's registers: the one that arms completion queues
// and, in its second half, doorbell registers. Where the system's pages are larger
// than the device's several lie in one, 4096 bytes apart.
const (
	adapterPage     = 4096  // MLX5_ADAPTER_PAGE_SIZE
	registersOffset = 0x800 // of the first doorbell register
	// registersPerUAR is how many BlueFlame registers a UAR has for user
	// space, registersGross how many there are with the kernel's own.
	registersPerUAR = 2
	registersGross  = 4
	// uncachedBytes is the distance of doorbells in an uncached UAR.
	uncachedBytes = 0x100
)

// UARType is how the page of a UAR object is to be mapped.
type UARType uint64

// The types, in the machine's byte order the attribute
// MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE.
const (
	// UARBlueFlame is write-combining. A host where that does not work refuses
	// it with EOPNOTSUPP.
	UARBlueFlame = UARType(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
	// UARUncached works on every host.
	UARUncached = UARType(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
)

// UAR is a UAR object: what the kernel said when it was made.
type UAR struct {
	Type UARType
	// PageID is the device's number of its first UAR, for completion queues
	// and queue pairs to name.
	PageID uint32
	// MapOffset is where in the device file it is mapped, of which MapBytes.
	MapOffset int64
	MapBytes  int
}

// ParseUAR checks the three attributes with which the kernel answers the making
// of a UAR object, on a system with pages of so many bytes.
func ParseUAR(t UARType, mapOffset uint64, mapLength, pageID uint32, pageSize int) (UAR, error) {
	switch {
	case mapLength != uint32(pageSize):
		return UAR{}, fmt.Errorf("mlx5: the driver says that a UAR is mapped as %d bytes: a page has %d", mapLength, pageSize)
	case mapOffset > math.MaxInt64 || mapOffset%uint64(pageSize) != 0:
		return UAR{}, fmt.Errorf("mlx5: the driver says that a UAR is mapped at offset %#x of the device file: it is a multiple of %d", mapOffset, pageSize)
	}
	id, err := number("UAR", pageID)
	return UAR{Type: t, PageID: id, MapOffset: int64(mapOffset), MapBytes: pageSize}, err
}

// Register is where a doorbell register is.
type Register struct {
	// Offset in the mapped page, and how many Bytes.
	Offset, Bytes int
	// UAR is which of the page's UARs it is in: to be added to PageID.
	UAR uint32
}

// DynamicRegisters are the doorbell registers of a page that is mapped as a UAR object
// of the given type: BlueFlame registers, each for one queue pair, or places of
// 8-byte doorbells. On a host without BlueFlame the first kind has none.
func (c *Context) DynamicRegisters(t UARType) []Register {
	n, bytes := registersPerUAR, c.BlueFlameBytes
	if t == UARUncached {
		n, bytes = registersGross, uncachedBytes
	}
	if bytes == 0 {
		return nil
	}
	var all []Register
	for uar := range c.UARsPerPage {
		for i := range n {
			all = append(all, Register{Offset: uar*adapterPage + registersOffset + i*bytes, Bytes: bytes, UAR: uint32(uar)})
		}
	}
	return all
}

// StaticPages is how many pages of UARs a context without dynamic UARs has, to be
// mapped with [MapRegular] and their index.
func (c *Context) StaticPages() int {
	return int(c.Registers) / (c.UARsPerPage * registersPerUAR)
}

// StaticRegister is the doorbell register that the driver chose for a queue pair
// of a context without dynamic UARs: on which page it is, where there, and whether
// it serves that queue pair alone. Only then is it one for BlueFlame, and
// [CombiningDoorbell] is right for it otherwise. The index counts four registers
// in every UAR, of which user space has the first two.
func (c *Context) StaticRegister(index uint32) (page int, r Register, exclusive bool, err error) {
	uar, i := index/registersGross, index%registersGross
	perPage := uint32(c.UARsPerPage)
	if uar/perPage >= uint32(c.StaticPages()) || i >= registersPerUAR {
		return 0, Register{}, false, fmt.Errorf("mlx5: the driver chose doorbell register %#x: the context has %d pages of %d UARs, and registers 0 and 1 of each",
			index, c.StaticPages(), c.UARsPerPage)
	}
	bytes := c.BlueFlameBytes
	// Among those of user space, counted without the kernel's.
	n := uar*registersPerUAR + i
	exclusive = n >= c.Registers-c.ExclusiveRegisters && bytes != 0
	r = Register{Offset: int(uar%perPage)*adapterPage + registersOffset + int(i)*bytes, Bytes: max(bytes, recordBytes), UAR: uar % perPage}
	return int(uar / perPage), r, exclusive, nil
}

// MapCommand says what a mapping of the device file is of.
type MapCommand uint8

// The commands that are in use; the kernel's names are MLX5_IB_MMAP_*.
const (
	MapRegular      = MapCommand(abi.MLX5_IB_MMAP_REGULAR_PAGE)
	MapCombining    = MapCommand(abi.MLX5_IB_MMAP_WC_PAGE)
	MapUncached     = MapCommand(abi.MLX5_IB_MMAP_NC_PAGE)
	MapCoreClock    = MapCommand(abi.MLX5_IB_MMAP_CORE_CLOCK)
	MapNewCombining = MapCommand(abi.MLX5_IB_MMAP_ALLOC_WC)
	MapClockInfo    = MapCommand(abi.MLX5_IB_MMAP_CLOCK_INFO)
)

// mapCommandShift is where in the page number of a mapping the command stands;
// the index is below, and of one that has more than 8 bits the rest above.
const mapCommandShift = 8

// MapOffset is where in the device file the page of a command is, on a system
// with pages of so many bytes. Objects come with offsets of their own.
func MapOffset(c MapCommand, index uint32, pageSize int) (int64, error) {
	limit := uint32(1 << mapCommandShift)
	if c == MapNewCombining {
		limit <<= mapCommandShift
	}
	if index >= limit {
		return 0, fmt.Errorf("mlx5: page %d of mapping command %d: there are %d", index, c, limit)
	}
	page := index>>mapCommandShift<<(2*mapCommandShift) | uint32(c)<<mapCommandShift | index&(1<<mapCommandShift-1)
	return int64(page) * int64(pageSize), nil
}
