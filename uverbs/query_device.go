package uverbs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// GUID is a globally unique identifier: the number whose big-endian bytes it
// is.
type GUID uint64

// String is the GUID in four groups, as ibv_devinfo prints it.
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// DeviceCaps are capability bits of a device (enum ib_uverbs_device_cap_flags
// of rdma/ib_user_verbs.h).
type DeviceCaps uint64

// Some of the bits; String names all.
const (
	CapMemWindow       = DeviceCaps(abi.IB_UVERBS_DEVICE_MEM_WINDOW)
	CapXRC             = DeviceCaps(abi.IB_UVERBS_DEVICE_XRC)
	CapMemWindowType2B = DeviceCaps(abi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B)
	CapFlushGlobal     = DeviceCaps(abi.IB_UVERBS_DEVICE_FLUSH_GLOBAL)
	CapFlushPersistent = DeviceCaps(abi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT)
	CapAtomicWrite     = DeviceCaps(abi.IB_UVERBS_DEVICE_ATOMIC_WRITE)
)

// String lists the bits by the kernel's names.
func (c DeviceCaps) String() string {
	return shortNames(abi.UverbsDeviceCapFlags(c).String(), "IB_UVERBS_DEVICE_")
}

// shortNames takes the prefix off the names of a list as package abi prints them.
func shortNames(list, prefix string) string {
	names := strings.Split(list, "|")
	for i, n := range names {
		names[i] = strings.TrimPrefix(n, prefix)
	}
	return strings.Join(names, "|")
}

// AtomicCap says between whom the device's atomic operations are atomic.
type AtomicCap uint32

// The levels of atomicity.
const (
	AtomicNone AtomicCap = 0
	AtomicHCA  AtomicCap = 1 // among operations of this device
	AtomicGlob AtomicCap = 2 // among all devices and processors of the host
)

// String names the level as ibv_devinfo does.
func (c AtomicCap) String() string {
	switch c {
	case AtomicNone:
		return "ATOMIC_NONE"
	case AtomicHCA:
		return "ATOMIC_HCA"
	case AtomicGlob:
		return "ATOMIC_GLOB"
	}
	return fmt.Sprintf("AtomicCap(%d)", uint32(c))
}

// ODPCaps say what on-demand paging can do (enum ib_odp_general_cap_bits and
// ib_odp_transport_cap_bits of the kernel).
type ODPCaps struct {
	General        uint64
	RC, UC, UD     uint32
	XRC            uint32
	OnDemand       bool // bit 0 of General: regions may be registered without pinning
	ImplicitRegion bool // bit 1 of General: one region for the whole address space
}

// DeviceAttr is what a device is and can do. Limits that do not fit an int are
// cut to the largest one.
type DeviceAttr struct {
	// Firmware is the version; soft-RoCE has none and says 0.0.0.
	Firmware               string
	NodeGUID, SysImageGUID GUID
	VendorID, VendorPartID uint32
	HWVersion              uint32
	// Ports are numbered from 1.
	Ports int

	// MaxMRSize is in bytes. PageSizes has a bit for each page size that a
	// memory region may be made of.
	MaxMRSize, PageSizes uint64
	MaxMR, MaxPD, MaxMW  int

	// MaxQPWR is the largest depth of a send or receive queue, MaxSGE the
	// largest number of spans of a request, MaxSGERead of an RDMA read.
	MaxQP, MaxQPWR, MaxSGE, MaxSGERead int
	// MaxCQE is the largest depth of a completion queue.
	MaxCQ, MaxCQE                int
	MaxSRQ, MaxSRQWR, MaxSRQSGE  int
	MaxAH                        int
	MaxMulticastGroups           int
	MaxMulticastQPs              int // queue pairs in one group
	MaxTotalMulticastQPs         int
	MaxRawIPv6QP, MaxRawEtherQP  int
	MaxEE, MaxRDD                int
	MaxPKeys                     int
	LocalAckDelay                uint8 // exponent: 4.096 us times two to the power of it
	MaxFMR, MaxMapPerFMR         int
	MaxWQTypeRQ                  int
	MaxRWQTables, MaxRWQTableLen int

	// MaxQPReadDepth is how many reads and atomics a queue pair takes at a
	// time as the target, MaxQPInitReadDepth as the initiator;
	// MaxReadDepth is how many the device takes as the target in all.
	MaxQPReadDepth, MaxQPInitReadDepth, MaxReadDepth int
	MaxEEReadDepth, MaxEEInitReadDepth               int

	Caps   DeviceCaps
	Atomic AtomicCap
	ODP    ODPCaps

	// TimestampMask has the bits that completion timestamps have, CoreClock
	// is their frequency in kHz; 0 where there are no timestamps.
	TimestampMask, CoreClock uint64

	// Extended tells whether the device answered the extended query. The
	// fields below, ODP, the timestamps and the upper half of Caps are zero
	// without.
	Extended            bool
	RSSQPTypes          uint32 // bits by QP type
	RawPacketCaps       uint32
	MaxDeviceMemory     uint64 // bytes
	MaxTagMatchingTags  uint32
	MaxTagMatchingOps   uint32
	MaxModerationCount  uint16
	MaxModerationPeriod uint16 // microseconds
	MaxTagMatchingSGE   uint32
	MaxRendezvousHeader uint32 // bytes
	TagMatchingFlags    uint32
}

// Attr is what the device can do. It was asked when the device was opened.
func (d *Device) Attr() DeviceAttr { return d.attr }

// queryDevice asks the device what it can do, and remembers it: by the extended query,
// or by the old one where the driver lacks the other.
func (d *Device) queryDevice() error {
	const op = "query device"
	resp := new(abi.UverbsExQueryDeviceResp)
	err := d.command(op, extended(abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE), new(abi.UverbsExQueryDevice), resp)
	if isErrno(err, syscall.EOPNOTSUPP, syscall.ENOSYS) {
		resp = new(abi.UverbsExQueryDeviceResp)
		err = d.command(op, abi.IB_USER_VERBS_CMD_QUERY_DEVICE, new(abi.UverbsQueryDevice), &resp.Base)
		resp.ResponseLength = abi.SizeofUverbsQueryDeviceResp
	}
	if err != nil {
		return err
	}
	if resp.ResponseLength < abi.SizeofUverbsQueryDeviceResp {
		return d.malformed(op, "an answer of %d bytes", resp.ResponseLength)
	}
	// What the kernel did not fill means nothing.
	if n := resp.ResponseLength; n < abi.SizeofUverbsExQueryDeviceResp {
		clear(resp.Bytes()[n:])
	}
	d.attr = deviceAttr(resp)
	attr := &d.attr
	if attr.Firmware = d.info.Firmware; attr.Firmware == "" {
		attr.Firmware = firmwareVersion(Driver(d.driver), resp.Base.FWVer)
	}
	if attr.Ports == math.MaxUint8 {
		// The answer has one byte for it.
		attr.Ports = max(attr.Ports, d.info.Ports)
	}
	return nil
}

func deviceAttr(resp *abi.UverbsExQueryDeviceResp) DeviceAttr {
	b := &resp.Base
	caps := DeviceCaps(resp.DeviceCapFlagsEx)
	if caps == 0 {
		caps = DeviceCaps(b.DeviceCapFlags)
	}
	odp := &resp.ODPCaps
	return DeviceAttr{
		NodeGUID: GUID(b.NodeGUID.Uint64()), SysImageGUID: GUID(b.SysImageGUID.Uint64()),
		VendorID: b.VendorID, VendorPartID: b.VendorPartID, HWVersion: b.HWVer, Ports: int(b.PhysPortCnt),
		MaxMRSize: b.MaxMRSize, PageSizes: b.PageSizeCap,
		MaxMR: limit(b.MaxMR), MaxPD: limit(b.MaxPD), MaxMW: limit(b.MaxMW),
		MaxQP: limit(b.MaxQP), MaxQPWR: limit(b.MaxQPWR), MaxSGE: limit(b.MaxSGE), MaxSGERead: limit(b.MaxSGERd),
		MaxCQ: limit(b.MaxCQ), MaxCQE: limit(b.MaxCQE),
		MaxSRQ: limit(b.MaxSRQ), MaxSRQWR: limit(b.MaxSRQWR), MaxSRQSGE: limit(b.MaxSRQSGE),
		MaxAH: limit(b.MaxAH), MaxMulticastGroups: limit(b.MaxMcastGrp),
		MaxMulticastQPs: limit(b.MaxMcastQPAttach), MaxTotalMulticastQPs: limit(b.MaxTotalMcastQPAttach),
		MaxRawIPv6QP: limit(b.MaxRawIPv6QP), MaxRawEtherQP: limit(b.MaxRawEthyQP),
		MaxEE: limit(b.MaxEE), MaxRDD: limit(b.MaxRdd), MaxPKeys: int(b.MaxPKeys), LocalAckDelay: b.LocalCAAckDelay,
		MaxFMR: limit(b.MaxFMR), MaxMapPerFMR: limit(b.MaxMapPerFMR),
		MaxWQTypeRQ: limit(resp.MaxWQTypeRQ), MaxRWQTables: limit(resp.RSSCaps.MaxRWQIndirectionTables),
		MaxRWQTableLen: limit(resp.RSSCaps.MaxRWQIndirectionTableSize),
		MaxQPReadDepth: limit(b.MaxQPRdAtom), MaxQPInitReadDepth: limit(b.MaxQPInitRdAtom), MaxReadDepth: limit(b.MaxResRdAtom),
		MaxEEReadDepth: limit(b.MaxEERdAtom), MaxEEInitReadDepth: limit(b.MaxEEInitRdAtom),
		Caps: caps, Atomic: AtomicCap(b.AtomicCap),
		ODP: ODPCaps{
			General: odp.GeneralCaps, RC: odp.PerTransportCaps.RCODPCaps, UC: odp.PerTransportCaps.UCODPCaps,
			UD: odp.PerTransportCaps.UDODPCaps, XRC: resp.XRCODPCaps,
			OnDemand: odp.GeneralCaps&1 != 0, ImplicitRegion: odp.GeneralCaps&2 != 0,
		},
		TimestampMask: resp.TimestampMask, CoreClock: resp.HCACoreClock,
		Extended:   resp.ResponseLength > abi.SizeofUverbsQueryDeviceResp,
		RSSQPTypes: resp.RSSCaps.SupportedQpts, RawPacketCaps: resp.RawPacketCaps, MaxDeviceMemory: resp.MaxDMSize,
		MaxTagMatchingTags: resp.TMCaps.MaxNumTags, MaxTagMatchingOps: resp.TMCaps.MaxOps, MaxTagMatchingSGE: resp.TMCaps.MaxSGE,
		MaxRendezvousHeader: resp.TMCaps.MaxRndvHdrSize, TagMatchingFlags: resp.TMCaps.Flags,
		MaxModerationCount: resp.CQModerationCaps.MaxCQModerationCount, MaxModerationPeriod: resp.CQModerationCaps.MaxCQModerationPeriod,
	}
}

// limit makes an int of a limit. Some drivers say 2^32-1 for "none".
func limit(n uint32) int {
	if uint64(n) > math.MaxInt {
		return math.MaxInt
	}
	return int(n)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// firmwareVersion prints the number as the device's provider in rdma-core does.
func firmwareVersion(driver Driver, v uint64) string {
	switch driver {
	case DriverMlx4, DriverMlx5, DriverRXE:
		// Open asks for it: fmt would be more work than the rest of the answer.
		return decimal(v>>32) + "." + decimal(v>>16&0xffff) + "." + decimal(v&0xffff)
	}
	return fmt.Sprintf("%#x", v)
}
