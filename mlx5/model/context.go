package model

import (
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// object is a verbs object with a handle.
type object interface {
	// inUse says whether others stand on it, which keeps it from being
	// destroyed.
	inUse() bool
	// end takes it out of the device.
	end()
	// rank orders destruction: those that stand on others first.
	rank() int
}

// context is a verbs context.
type context struct {
	f       *File
	objects map[uint32]object

	version   uint8 // of CQEs
	dynamic   bool
	static    []*uar // pages, without dynamic UARs
	nextBfreg uint32
	exclusive uint32
}

// add enters an object under the smallest free handle. All types share one space
// of handles, as in the kernel, and 0 is one of them.
func (c *context) add(o object) uint32 {
	var h uint32
	for c.objects[h] != nil {
		h++
	}
	c.objects[h] = o
	return h
}

func (c *context) destroy(h uint32) {
	if o := c.objects[h]; o != nil {
		delete(c.objects, h)
		o.end()
	}
}

// destroyAll is what closing the file does.
func (c *context) destroyAll() {
	for rank := range ranks {
		for h, o := range c.objects {
			if o.rank() == rank {
				c.destroy(h)
			}
		}
	}
}

// Ranks of objects.
const (
	rankQP = iota
	rankMW
	rankSRQ
	rankCQ
	rankAH
	rankMR
	rankPD
	rankUAR
	ranks
)

// Offsets up to which a request must reach to be one of the kinds that the driver knows.
const (
	uctxLegacy  = 8
	uctxVersion = 16
	clockInfoV1 = 1 << abi.MLX5_IB_CLOCK_INFO_V1
	maxBfregs   = 512
)

func (c *call) getContext() error {
	f := c.f
	if f.ctx != nil {
		return refuse(request.EINVAL, "the file has a context")
	}
	uhw := c.UHWIn()
	if len(uhw) != uctxLegacy && len(uhw) < uctxVersion {
		return refuse(request.EINVAL, "the driver's request has neither 8 bytes nor 16 or more")
	}
	var in abi.MLX5IBAllocUcontextReqV2
	n := copy(in.Bytes(), uhw)
	for _, b := range uhw[n:] {
		if b != 0 {
			return refuse(request.EOPNOTSUPP, "the driver's request is longer than known, and not zero there")
		}
	}
	switch {
	case in.Flags&^uint32(abi.MLX5_IB_ALLOC_UCTX_DEVX) != 0, in.CompMask != 0, in.Reserved0 != 0, in.Reserved1 != 0, in.Reserved2 != 0:
		return refuse(request.EOPNOTSUPP, "unknown flags, comp_mask or reserved fields of the driver's request")
	case in.Flags != 0 && f.dev.cfg.NoDevX:
		return refuse(request.EINVAL, "the firmware takes no commands from user contexts")
	case in.NumLowLatencyBfregs > in.TotalNumBfregs-1:
		return refuse(request.EINVAL, "all bfregs low-latency, or more")
	}
	ctx := &context{f: f, objects: make(map[uint32]object)}
	ctx.dynamic = in.LibCaps&uint64(abi.MLX5_LIB_CAP_DYN_UAR) != 0 && !f.dev.cfg.StaticUARs
	if !f.dev.cfg.CQEVersion0 {
		ctx.version = min(1, in.MaxCQEVersion)
	}
	if !ctx.dynamic {
		switch {
		case in.TotalNumBfregs == 0:
			return refuse(request.EINVAL, "no bfregs")
		case in.TotalNumBfregs > maxBfregs:
			return refuse(request.ENOMEM, "too many bfregs")
		}
		pages := (in.TotalNumBfregs + 1) / 2
		for i := range pages {
			u := f.newUAR(uarStatic)
			u.index = i
			ctx.static = append(ctx.static, u)
		}
		ctx.exclusive = in.NumLowLatencyBfregs
	}
	f.ctx = ctx
	c.made = append(c.made, func() { f.ctx, f.uars = nil, make(map[uint32]*uar) })
	if err := c.setUint32(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, uint32(f.dev.cfg.Vectors)); err != nil {
		return err
	}
	if err := c.SetUint64(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, uint64(abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS)); err != nil {
		return err
	}
	resp := ctx.response(c.UHWOutLen())
	return c.SetUHWOut(resp.Bytes())
}

// response is struct mlx5_ib_alloc_ucontext_resp for a caller with so much room.
func (x *context) response(room int) *abi.MLX5IBAllocUcontextResp {
	cfg := &x.f.dev.cfg
	r := &abi.MLX5IBAllocUcontextResp{
		QPTabSize: cfg.MaxQP, BfRegSize: blueFlameBytes, TotBfregs: uint32(len(x.static)) * 2, CacheLineSize: cacheLine,
		MaxSQDescSz: maxSendBytes, MaxRQDescSz: maxRecvBytes, MaxSendWQEBB: maxSendBlocks, MaxRecvWR: maxRecvRequests, MaxSRQRecvWR: maxSharedWR,
		NumPorts: uint16(len(cfg.Ports)), ResponseLength: uint32(min(room, abi.SizeofMLX5IBAllocUcontextResp)), CQEVersion: x.version,
		CmdsSuppUHW:  uint8(abi.MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | abi.MLX5_USER_CMDS_SUPP_UHW_CREATE_AH),
		EthMinInline: uint8(abi.MLX5_USER_INLINE_MODE_NONE), LogUARSize: 12, NumUARsPerPage: 1,
		CompMask:     uint32(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY | abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS),
		DumpFillMkey: nullKey,
	}
	if cfg.NoBlueFlame {
		r.BfRegSize = 0
	}
	if cfg.Timestamps == TicksOnly {
		r.CompMask &^= uint32(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS)
	}
	if x.f.counter { // at the beginning of its page
		r.CompMask |= uint32(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET)
	}
	if !cfg.NoClockPage {
		r.ClockInfoVersions = clockInfoV1
	}
	if !x.dynamic {
		r.NumDynBfregs = 1024
	}
	return r
}

func (c *call) queryContext() error {
	if err := c.setUint32(abi.UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, uint32(c.f.dev.cfg.Vectors)); err != nil {
		return err
	}
	if err := c.SetUint64(abi.UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, uint64(abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS)); err != nil {
		return err
	}
	room, _ := c.OutLen(abi.MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX)
	return c.SetOut(abi.MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, c.f.ctx.response(room).Bytes())
}
