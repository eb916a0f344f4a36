package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// ContextRequest is what a process asks the driver for when it opens a device:
// struct mlx5_ib_alloc_ucontext_req_v2 of rdma/mlx5-abi.h.
type ContextRequest struct {
	// DynamicUARs asks for a context without doorbell registers of its own:
	// UAR pages are made as objects and named by completion queues and queue
	// pairs. Kernels from 5.10 on have it.
	DynamicUARs bool
	// DevX asks that the context may send commands to the firmware. Where it
	// may not, opening fails, and can be tried without.
	DevX bool
	// Registers and ExclusiveRegisters are how many doorbell registers a
	// context without DynamicUARs is to have, and how many of them serve one
	// queue pair each. Both 0 are libmlx5's 16 and 4.
	Registers, ExclusiveRegisters uint32
}

// libmlx5's numbers of registers.
const (
	defaultRegisters = 16
	defaultExclusive = 4
	maxRegisters     = 512 // MLX5_MAX_BFREGS
)

// Encode returns the driver's part of the request. It asks for completions that
// carry the user index (CQE version 1) and says that UARs are pages of 4096 bytes
// also where the system's are larger.
func (r ContextRequest) Encode() ([]byte, error) {
	total, exclusive := r.Registers, r.ExclusiveRegisters
	if total == 0 && exclusive == 0 {
		total, exclusive = defaultRegisters, defaultExclusive
	}
	if total == 0 || total > maxRegisters || exclusive > total-1 {
		return nil, fmt.Errorf("mlx5: a context of %d doorbell registers, of which %d are exclusive: from 1 to %d, and one at least is shared", total, exclusive, maxRegisters)
	}
	q := &abi.MLX5IBAllocUcontextReqV2{
		TotalNumBfregs:      total,
		NumLowLatencyBfregs: exclusive,
		MaxCQEVersion:       1,
		LibCaps:             uint64(abi.MLX5_LIB_CAP_4K_UAR),
	}
	if r.DynamicUARs {
		q.LibCaps |= uint64(abi.MLX5_LIB_CAP_DYN_UAR)
	}
	if r.DevX {
		q.Flags = uint32(abi.MLX5_IB_ALLOC_UCTX_DEVX)
	}
	return q.Bytes(), nil
}

// Context is what the driver says when a device is opened: struct
// mlx5_ib_alloc_ucontext_resp of rdma/mlx5-abi.h.
type Context struct {
	// Limits bound the sizes of queues.
	Limits Limits
	// Ports is how many the device has.
	Ports int
	// CacheLine is the size of the host's cache lines, in bytes.
	CacheLine int
	// CQEVersion is 1 if completions carry the user index, else 0: they carry
	// the numbers of queue pairs and shared receive queues then.
	CQEVersion uint8

	// BlueFlameBytes is the size of a BlueFlame register, 0 if write-combining
	// does not work on this host.
	BlueFlameBytes int
	// Registers is how many doorbell registers the context has, 0 with dynamic
	// UARs; ExclusiveRegisters, as asked, of them serve one queue pair each.
	Registers, ExclusiveRegisters uint32
	// UARBytes is the size of a UAR, UARsPerPage how many a system page holds.
	UARBytes, UARsPerPage int

	// QueryDeviceData and CreateAHData say that those commands return data of
	// the driver's.
	QueryDeviceData, CreateAHData bool
	// ClockPage says that the page that translates time stamps can be mapped.
	ClockPage bool
	// CoreClock says that the device's clock can be mapped; it is at
	// CoreClockOffset in its page.
	CoreClock       bool
	CoreClockOffset int
	// NullKey is the lkey of a sink for data, if HasNullKey.
	NullKey    uint32
	HasNullKey bool
	// ECE: queue pairs negotiate enhanced connection establishment. RealTime:
	// completions can carry the time of day.
	ECE, RealTime bool
}

// Offsets in the response.
const (
	contextRequired = 32 // what every kernel has: up to max_srq_recv_wr
	contextLength   = 40 // response_length
	contextCounted  = 44
)

// ParseContext reads the driver's part of the answer to a ContextRequest, of
// which exclusive registers were asked for, on a system with pages of so many
// bytes. Older drivers say less, newer ones more.
func ParseContext(b []byte, exclusive uint32, pageSize int) (*Context, error) {
	if len(b) < contextRequired {
		return nil, fmt.Errorf("mlx5: the driver's answer to the opening of a context has %d bytes: %d at least", len(b), contextRequired)
	}
	var r abi.MLX5IBAllocUcontextResp
	n := copy(r.Bytes(), b)
	if n >= contextCounted {
		// What the driver did not count it did not write.
		clear(r.Bytes()[min(n, max(contextCounted, int(min(r.ResponseLength, abi.SizeofMLX5IBAllocUcontextResp)))):])
	}
	has := func(bit abi.MLX5IBAllocUcontextRespMask) bool { return r.CompMask&uint32(bit) != 0 }
	c := &Context{
		Limits: Limits{
			SendBytes:      uint32(r.MaxSQDescSz),
			RecvBytes:      uint32(r.MaxRQDescSz),
			SendBlocks:     r.MaxSendWQEBB,
			RecvRequests:   r.MaxRecvWR,
			SharedRequests: r.MaxSRQRecvWR,
		},
		Ports:           int(r.NumPorts),
		CacheLine:       int(r.CacheLineSize),
		CQEVersion:      r.CQEVersion,
		BlueFlameBytes:  int(r.BfRegSize),
		Registers:       r.TotBfregs,
		UARBytes:        pageSize,
		UARsPerPage:     1,
		QueryDeviceData: r.CmdsSuppUHW&uint8(abi.MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE) != 0,
		CreateAHData:    r.CmdsSuppUHW&uint8(abi.MLX5_USER_CMDS_SUPP_UHW_CREATE_AH) != 0,
		ClockPage:       r.ClockInfoVersions>>abi.MLX5_IB_CLOCK_INFO_V1&1 != 0,
		CoreClock:       has(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET),
		HasNullKey:      has(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY),
		ECE:             has(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE),
		RealTime:        has(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS),
	}
	if c.HasNullKey {
		c.NullKey = r.DumpFillMkey
	}
	// Kernels that know nothing of UARs of 4096 bytes leave both 0.
	if r.LogUARSize != 0 || r.NumUARsPerPage != 0 {
		if r.LogUARSize < 12 || r.LogUARSize > 30 || r.NumUARsPerPage == 0 || uint64(r.NumUARsPerPage)<<r.LogUARSize > uint64(pageSize) {
			return nil, fmt.Errorf("mlx5: the driver says that a page of %d bytes holds %d UARs of 2^%d bytes", pageSize, r.NumUARsPerPage, r.LogUARSize)
		}
		c.UARBytes, c.UARsPerPage = 1<<r.LogUARSize, int(r.NumUARsPerPage)
	}
	if c.CoreClock {
		if r.HCACoreClockOffset > uint64(pageSize-clockBytes) {
			return nil, fmt.Errorf("mlx5: the driver says that the device's clock is at offset %#x of a page of %d bytes", r.HCACoreClockOffset, pageSize)
		}
		c.CoreClockOffset = int(r.HCACoreClockOffset)
	}
	if c.Registers > 0 {
		c.ExclusiveRegisters = exclusive
	}
	return c, c.check()
}

// clockBytes is the size of the device's clock in its page.
const clockBytes = 8

// check refuses what no driver says and what would break arithmetic elsewhere.
func (c *Context) check() error {
	perPage := uint32(c.UARsPerPage * registersPerUAR)
	switch {
	case c.CQEVersion > 1:
		return fmt.Errorf("mlx5: the driver chose CQE version %d: it was asked for 1 at most", c.CQEVersion)
	case c.CacheLine < recordBytes || c.CacheLine > adapterPage || c.CacheLine&(c.CacheLine-1) != 0:
		return fmt.Errorf("mlx5: the driver says that cache lines have %d bytes: a power of two from %d to %d", c.CacheLine, recordBytes, adapterPage)
	case c.BlueFlameBytes != 0 && (c.BlueFlameBytes < 2*blockBytes || c.BlueFlameBytes > (adapterPage-registersOffset)/registersPerUAR || c.BlueFlameBytes&(c.BlueFlameBytes-1) != 0):
		return fmt.Errorf("mlx5: the driver says that BlueFlame registers have %d bytes: a power of two from %d to %d, or none",
			c.BlueFlameBytes, 2*blockBytes, (adapterPage-registersOffset)/registersPerUAR)
	case c.Registers > 2*maxRegisters || c.Registers%perPage != 0:
		return fmt.Errorf("mlx5: the driver says that the context has %d doorbell registers: %d in each page, and %d at most", c.Registers, perPage, 2*maxRegisters)
	case c.Ports == 0:
		return fmt.Errorf("mlx5: the driver says that the device has no ports")
	case c.Registers > 0 && c.ExclusiveRegisters >= c.Registers:
		return fmt.Errorf("mlx5: the driver gave %d doorbell registers where %d were to be exclusive", c.Registers, c.ExclusiveRegisters)
	}
	return nil
}

// Dynamic says whether the context has no doorbell registers of its own: the
// driver agreed to dynamic UARs.
func (c *Context) Dynamic() bool { return c.Registers == 0 }

// ParsePD reads the driver's part of the answer to the making of a protection
// domain: its number.
func ParsePD(b []byte) (pdn uint32, err error) {
	var r abi.MLX5IBAllocPDResp
	if len(b) < abi.SizeofMLX5IBAllocPDResp {
		return 0, short("protection domain", b, abi.SizeofMLX5IBAllocPDResp)
	}
	copy(r.Bytes(), b)
	return number("protection domain", r.PDN)
}

// short is the error of an answer that lacks what it must have.
func short(what string, b []byte, want int) error {
	return fmt.Errorf("mlx5: the driver's answer to the making of a %s has %d bytes: %d at least", what, len(b), want)
}

// number checks that a number of an object has 24 bits, as all of the device's.
func number(what string, n uint32) (uint32, error) {
	if n >= 1<<24 {
		return 0, fmt.Errorf("mlx5: the driver says that the %s has number %#x: they have 24 bits", what, n)
	}
	return n, nil
}
