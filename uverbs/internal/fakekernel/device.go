package fakekernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/goverbs/goverbs/abi"
)

// A Device describes one device of the fake kernel. Zero values mean what a
// soft-RoCE device usually has.
type Device struct {
	// Name is the device's name; "rxe0" and so on by default.
	Name string
	// Driver is an RDMA_DRIVER_ number; 0 means soft-RoCE. Devices of other
	// drivers answer queries and make protection domains and memory
	// regions, no queues.
	Driver abi.RdmaDriverID
	// Netdev is the network device's name; "eth0" and so on by default.
	Netdev string
	// Addrs are the addresses of the GID table, from index 0. By default
	// there are a link-local address and 10.0.0.1, 10.0.0.2 and so on by
	// the device's number.
	Addrs []netip.Addr
	// NUMANode is what /sys says of the device's node, NetdevNUMANode of
	// that of the network device; soft devices have none of their own.
	NUMANode, NetdevNUMANode string
	// MTU is the active MTU in bytes; 1024 by default.
	MTU int
	// Vectors is the number of completion vectors; 2 by default.
	Vectors int
	// MaxCQE is the largest depth of a completion queue; 32767 by default.
	MaxCQE int

	// Lacks are methods that the kernel does not have, LacksCommands write
	// commands.
	Lacks         []Method
	LacksCommands []uint32
	// NoWrite refuses the write interface with this errno, such as EACCES.
	NoWrite error
	// AVInRequest makes the device one of Linux before 5.15, which gives no
	// numbers for address handles. Privileged lets programs use Q_Keys with
	// the top bit set. ReuseQPN gives a new queue pair the lowest free
	// number, where otherwise numbers are not used again.
	AVInRequest, Privileged, ReuseQPN bool
	// Linux62 adds what soft-RoCE can do since Linux 6.2: atomic write and
	// flush.
	Linux62 bool
	// Rereg are the changes of a region that the driver makes, bits of
	// REREG_MR's flags: 0 as soft-RoCE of Linux 6.1, 6, which is PD and
	// access, as that of 6.12. A change of memory gives it another key.
	Rereg uint32
	// DMABuf lets the driver make regions of dma-bufs. NoOptionalAccess makes
	// the kernel one that knows no optional access flags.
	DMABuf, NoOptionalAccess bool
	// NoPermission lets Open fail with EACCES, NoNode with ENOENT; with
	// NoUverbs there is no verbs file at all.
	NoPermission, NoNode, NoUverbs bool
	// CQEStride is the size of a slot of a completion ring: 64 as on Linux
	// 5.10, or 128, the default.
	CQEStride int
}

// Method names a method of an object type.
type Method struct{ Object, Method uint16 }

// device is a device with its state.
type device struct {
	Device
	index    uint32
	name     string // of the uverbs file
	rdev     uint64
	guid     uint64
	gids     [][16]byte
	up       bool
	gone     bool          // answers nothing any more
	removed  chan struct{} // while it is being removed: closed when nobody uses it any more
	nextQPN  uint32
	contexts []*context
	ahs      map[uint32]*ah // by number
}

func newDevice(d Device, n int) *device {
	digit := string(rune('0' + n))
	if d.Name == "" {
		d.Name = "rxe" + digit
	}
	if d.Driver == 0 {
		d.Driver = abi.RDMA_DRIVER_RXE
	}
	if d.Netdev == "" {
		d.Netdev = "eth" + digit
	}
	if d.Addrs == nil {
		d.Addrs = []netip.Addr{
			netip.AddrFrom16([16]byte{0xfe, 0x80, 8: 2, 15: byte(n + 1)}),
			netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}),
		}
	}
	if d.MTU == 0 {
		d.MTU = 1024
	}
	if d.Vectors == 0 {
		d.Vectors = 2
	}
	if d.MaxCQE == 0 {
		d.MaxCQE = 32767
	}
	if d.CQEStride == 0 {
		d.CQEStride = 128
	}
	v := &device{
		Device: d, index: uint32(n), name: "uverbs" + digit,
		rdev: 231<<8 | uint64(192+n), guid: 0x020000fffe000000 | uint64(n+1), up: true,
		nextQPN: firstQPN, ahs: make(map[uint32]*ah),
	}
	for _, a := range d.Addrs {
		v.gids = append(v.gids, a.As16())
	}
	return v
}

// firstQPN is the first number of a queue pair: those before are the kernel's.
const firstQPN = 17

// newQPN is the number of a new queue pair.
func (d *device) newQPN() uint32 {
	n := d.nextQPN
	if !d.ReuseQPN {
		d.nextQPN++
		return n
	}
	taken := make(map[uint32]bool)
	for _, c := range d.contexts {
		for _, o := range c.objects {
			if q, ok := o.(*qp); ok {
				taken[q.number] = true
			}
		}
	}
	for n = firstQPN; taken[n]; n++ {
	}
	return n
}

// lacks tells whether the device's kernel has no such method.
func (d *device) lacks(object, method uint16) bool {
	for _, m := range d.Lacks {
		if m.Object == object && m.Method == method {
			return true
		}
	}
	return false
}

func (d *device) lacksCommand(number uint32) bool {
	for _, n := range d.LacksCommands {
		if n == number {
			return true
		}
	}
	return false
}

func (d *device) isRXE() bool { return d.Driver == abi.RDMA_DRIVER_RXE }

// Limits of soft-RoCE as Linux 6.1 reports them.
const (
	maxQPWR        = 1 << 20
	maxSGE         = 32
	maxInline      = 512
	maxReadDepth   = 128
	maxMessage     = 0x800000
	gidTableLength = 1024
)

// queryDevice is the answer to QUERY_DEVICE and its extended form.
func (d *device) queryDevice() *abi.UverbsExQueryDeviceResp {
	caps := abi.IB_UVERBS_DEVICE_BAD_PKEY_CNTR | abi.IB_UVERBS_DEVICE_BAD_QKEY_CNTR | abi.IB_UVERBS_DEVICE_AUTO_PATH_MIG |
		abi.IB_UVERBS_DEVICE_CHANGE_PHY_PORT | abi.IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE | abi.IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT |
		abi.IB_UVERBS_DEVICE_SYS_IMAGE_GUID | abi.IB_UVERBS_DEVICE_RC_RNR_NAK_GEN | abi.IB_UVERBS_DEVICE_SRQ_RESIZE |
		abi.IB_UVERBS_DEVICE_MEM_WINDOW | abi.IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS | abi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B
	if d.Linux62 {
		caps |= abi.IB_UVERBS_DEVICE_FLUSH_GLOBAL | abi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT | abi.IB_UVERBS_DEVICE_ATOMIC_WRITE
	}
	resp := &abi.UverbsExQueryDeviceResp{
		Base: abi.UverbsQueryDeviceResp{
			MaxMRSize: 1<<64 - 1, PageSizeCap: 0xfffff000,
			VendorID: 0xffffff, MaxQP: 1048560, MaxQPWR: maxQPWR, DeviceCapFlags: uint32(caps),
			MaxSGE: maxSGE, MaxSGERd: maxSGE, MaxCQ: 1 << 20, MaxCQE: uint32(d.MaxCQE), MaxMR: 524287, MaxPD: 1048576,
			MaxQPRdAtom: maxReadDepth, MaxResRdAtom: 258048, MaxQPInitRdAtom: maxReadDepth, AtomicCap: 1,
			MaxMW: 524287, MaxMcastGrp: 8192, MaxMcastQPAttach: 56, MaxTotalMcastQPAttach: 458752, MaxAH: 32767,
			MaxSRQ: 917503, MaxSRQWR: 1048576, MaxSRQSGE: 27, MaxPKeys: 64, LocalCAAckDelay: 15, PhysPortCnt: 1,
		},
		ResponseLength:   abi.SizeofUverbsExQueryDeviceResp,
		DeviceCapFlagsEx: uint64(caps),
	}
	resp.Base.NodeGUID, resp.Base.SysImageGUID = be64(d.guid), be64(d.guid)
	return resp
}

func be64(v uint64) (b abi.Be64) {
	binary.BigEndian.PutUint64(b[:], v)
	return b
}

// queryPort is the answer to QUERY_PORT.
func (d *device) queryPort() *abi.UverbsQueryPortRespEx {
	resp := &abi.UverbsQueryPortRespEx{LegacyResp: abi.UverbsQueryPortResp{
		PortCapFlags: uint32(abi.IB_UVERBS_PCF_CM_SUP), MaxMsgSz: maxMessage, GIDTblLen: gidTableLength, PKeyTblLen: 1,
		State: 4, MaxMTU: mtuCode(4096), ActiveMTU: mtuCode(d.MTU), MaxVLNum: 1, SubnetTimeout: 0,
		ActiveWidth: 1, ActiveSpeed: 1, PhysState: 5, LinkLayer: 2, Flags: 1,
	}}
	if !d.up {
		resp.LegacyResp.State, resp.LegacyResp.PhysState = 1, 3
	}
	return resp
}

// mtuCode is enum ib_mtu.
func mtuCode(bytes int) uint8 {
	for code := uint8(1); code < 5; code++ {
		if bytes <= 128<<code {
			return code
		}
	}
	return 5
}

// gidEntry is the entry of the GID table at index i.
func (d *device) gidEntry(i int) []byte {
	e := &abi.UverbsGIDEntry{
		GIDIndex: uint32(i), PortNum: 1, GIDType: uint32(abi.IB_UVERBS_GID_TYPE_ROCE_V2), NetdevIfindex: d.index + 2,
	}
	b := e.Bytes()
	copy(b, d.gids[i][:])
	return b
}
