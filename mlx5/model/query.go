package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Numbers that structs of the kernel carry and its headers for programs do not name.
const (
	capsBadPKey       = 1 << 1
	capsBadQKey       = 1 << 2
	capsPortActive    = 1 << 10
	capsSysImageGUID  = 1 << 11
	capsRCRNRNak      = 1 << 12
	capsSRQResize     = 1 << 13
	capsMemWindow     = 1 << 17
	capsMemMgmt       = 1 << 21
	capsMemWindow2B   = 1 << 24
	atomicHCA         = 1 // enum ib_atomic_cap
	linkInfiniBand    = 1
	linkEthernet      = 2
	portDown          = 1
	portActive        = 4
	physLinkUp        = 5
	physDisabled      = 3
	width4X           = 2
	speedEDR          = 32
	miniFormats       = uint32(abi.MLX5_IB_CQE_RES_FORMAT_HASH | abi.MLX5_IB_CQE_RES_FORMAT_CSUM | abi.MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX)
	maxModerationN    = 0xffff
	maxModerationTime = 0x0fff
	portCapsRoCE      = 0x04010000
	portCapsIB        = 0x04000000
	maxMinis          = 64 // completions in one compressed session
)

// Firmware is the version of the device's firmware, as the kernel prints it.
func (d *Device) Firmware() string {
	return fmt.Sprintf("%d.%d.%04d", firmware>>32, firmware>>16&0xffff, firmware&0xffff)
}

func (d *Device) attributes() *abi.UverbsExQueryDeviceResp {
	c := &d.cfg
	r := &abi.UverbsExQueryDeviceResp{
		Base: abi.UverbsQueryDeviceResp{
			FWVer: firmware, NodeGUID: abi.MakeBe64(c.GUID), SysImageGUID: abi.MakeBe64(c.GUID), MaxMRSize: 1<<64 - 1, PageSizeCap: 1<<64 - pageSize,
			VendorID: 0x02c9, VendorPartID: 0x101d, MaxQP: c.MaxQP, MaxQPWR: c.MaxQPWR,
			DeviceCapFlags: capsBadPKey | capsBadQKey | capsPortActive | capsSysImageGUID | capsRCRNRNak | capsSRQResize | capsMemWindow | capsMemMgmt | capsMemWindow2B,
			MaxSGE:         30, MaxSGERd: 30, MaxCQ: c.MaxCQ, MaxCQE: c.MaxCQE, MaxMR: c.MaxMR, MaxPD: c.MaxPD,
			MaxQPRdAtom: maxReadDepth, MaxQPInitRdAtom: maxReadDepth, MaxResRdAtom: maxReadDepth * c.MaxQP, AtomicCap: atomicHCA,
			MaxMW: c.MaxMR, MaxMcastGrp: 1 << 13, MaxMcastQPAttach: 240, MaxTotalMcastQPAttach: 240 << 13, MaxAH: 1<<31 - 1, MaxSRQ: c.MaxSRQ, MaxSRQWR: maxSharedWR, MaxSRQSGE: maxSharedSGE,
			MaxPKeys: uint16(len(d.ports[0].pkeys)), LocalCAAckDelay: 16, PhysPortCnt: uint8(len(d.ports)),
		},
		TimestampMask: 1<<clockBits - 1, HCACoreClock: c.ClockKHz,
		CQModerationCaps: abi.UverbsCQModerationCaps{MaxCQModerationCount: maxModerationN, MaxCQModerationPeriod: maxModerationTime},
	}
	if c.NoAtomics {
		r.Base.AtomicCap = 0
	}
	return r
}

func (c *call) queryDevice(*abi.Command, []byte) error {
	return c.reply(c.f.dev.attributes().Base.Bytes())
}

func (c *call) queryDeviceEx(cmd *abi.Command, in []byte) error {
	var q abi.UverbsExQueryDevice
	if err := request.Fill(cmd, q.Bytes(), in); err != nil {
		return err
	}
	if q.CompMask != 0 || q.Reserved != 0 {
		return refuse(request.EINVAL, "comp_mask or reserved is not zero")
	}
	r := c.f.dev.attributes()
	room, _ := c.OutLen(abi.UVERBS_ATTR_CORE_OUT)
	r.ResponseLength = uint32(min(room, abi.SizeofUverbsExQueryDeviceResp))
	if err := c.reply(r.Bytes()); err != nil {
		return err
	}
	u := &abi.MLX5IBQueryDeviceResp{
		ResponseLength: uint32(min(c.UHWOutLen(), abi.SizeofMLX5IBQueryDeviceResp)),
		CQECompCaps:    abi.MLX5IBCQECompCaps{MaxNum: maxMinis, SupportedFormat: miniFormats},
		Flags:          uint32(abi.MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP | abi.MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD),
	}
	if c.f.dev.cfg.NoCompression {
		u.CQECompCaps = abi.MLX5IBCQECompCaps{}
		u.Flags &^= uint32(abi.MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP)
	}
	return c.SetUHWOut(u.Bytes())
}

func (p *port) attributes() *abi.UverbsQueryPortRespEx {
	r := &abi.UverbsQueryPortRespEx{LegacyResp: abi.UverbsQueryPortResp{
		PortCapFlags: portCapsRoCE, MaxMsgSz: maxMessage, QKeyViolCntr: p.badQKeys, GIDTblLen: gidTableLength, PKeyTblLen: uint16(len(p.pkeys)),
		State: portActive, MaxMTU: 5, ActiveMTU: p.mtu, MaxVLNum: 1, ActiveWidth: width4X, ActiveSpeed: speedEDR, PhysState: physLinkUp, LinkLayer: linkEthernet,
	}}
	l := &r.LegacyResp
	if p.ib {
		l.PortCapFlags, l.LinkLayer, l.LID, l.SMLID, l.MaxVLNum = portCapsIB, linkInfiniBand, p.lid, 1, 4
	}
	if !p.up {
		l.State, l.PhysState = portDown, physDisabled
	}
	return r
}

func (c *call) queryPort() error {
	n, _ := c.Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM)
	p := c.f.dev.port(n)
	if p == nil {
		return refuse(request.EINVAL, "no such port")
	}
	return c.SetOut(abi.UVERBS_ATTR_QUERY_PORT_RESP, p.attributes().Bytes())
}

// entry is an entry of the GID table as programs get it.
func (p *port) entry(i int) []byte {
	e := &abi.UverbsGIDEntry{GIDIndex: uint32(i), PortNum: uint32(p.number), GIDType: uint32(p.gids[i].Type)}
	e.GID[0] = binary.NativeEndian.Uint64(p.gids[i].Addr[:])
	e.GID[1] = binary.NativeEndian.Uint64(p.gids[i].Addr[8:])
	if !p.ib {
		e.NetdevIfindex = uint32(p.number) + 1
	}
	return e.Bytes()
}

func (c *call) queryGIDTable() error {
	if size, _ := c.Const(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE); size < abi.SizeofUverbsGIDEntry || size > math.MaxUint16 {
		return refuse(request.EOPNOTSUPP, "entries of that size are not known")
	} else if _, err := c.Flags(abi.UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0); err != nil {
		return err
	} else if room, _ := c.OutLen(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES); uint64(room)%size != 0 {
		return refuse(request.EINVAL, "the room is no whole number of entries")
	} else {
		var table []byte
		n := uint64(0)
		for _, p := range c.f.dev.ports {
			for i, g := range p.gids {
				if !g.empty() {
					table = append(append(table, p.entry(i)...), make([]byte, size-abi.SizeofUverbsGIDEntry)...)
					n++
				}
			}
		}
		if len(table) > room {
			return refuse(request.EINVAL, "more entries than room")
		}
		if err := c.SetOut(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table); err != nil {
			return err
		}
		return c.SetUint64(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, n)
	}
}

func (c *call) queryGIDEntry() error {
	if _, err := c.Flags(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0); err != nil {
		return err
	}
	n, _ := c.Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT)
	index, _ := c.Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)
	p := c.f.dev.port(n)
	switch {
	case p == nil, index >= gidTableLength:
		return refuse(request.EINVAL, "no such port, or index beyond the table")
	case p.gid(int(index)).empty():
		return refuse(request.ENODATA, "the entry is empty")
	}
	return c.SetOut(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, p.entry(int(index)))
}
