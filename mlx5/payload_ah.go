package mlx5

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/abi"
)

// AddressVector says where datagrams go. The device reads it in every request.
type AddressVector struct {
	// Ethernet: the port is one of RoCE. SL, 3 bits there and 4 on InfiniBand.
	Ethernet bool
	SL       uint8
	// StaticRate bounds the rate of packets: a number of enum ib_rate, 0 for
	// no bound.
	StaticRate uint8

	// Global: there is a global route header, always so on Ethernet.
	Global       bool
	DestGID      [16]byte
	SourceIndex  uint8 // of the source in the GID table
	FlowLabel    uint32
	TrafficClass uint8
	HopLimit     uint8

	// Ethernet: the hardware address, and the source port of the UDP packets,
	// 0 for RoCE v1: see UDPSourcePort.
	DestMAC [6]byte
	UDPPort uint16

	// InfiniBand: the port, and the low bits of this side's own LID.
	DestLID    uint16
	SourcePath uint8
}

// Bits of an address vector.
const (
	avGlobal         = 1 << 30 // InfiniBand only
	avSourceShift    = 20
	maxFlowLabel     = 1<<20 - 1
	maxSourcePath    = 1<<7 - 1
	firstUDPPort     = 0xc000
	flowLabelLowBits = 14
)

// staticRates has, by number of enum ib_rate, what the device takes for it: the
// next rate that it knows, or 0 where that is none.
var staticRates = [...]uint8{
	2: 7, 5: 10, 3: 8, 6: 11, 4: 9, 7: 12, 8: 13, 9: 14, 10: 15, // 2.5, 5, 10, 20, 30, 40, 60, 80, 120 Gb/s
	11: 11, 12: 13, 13: 15, 15: 9, 16: 15, 19: 9, 20: 13, // 14, 56, 112, 25, 100, 28, 50
}

// Encode returns the address vector as the device reads it (struct mlx5_av of
// linux/mlx5/qp.h), without Q_Key and QPN, which each request has its own of.
func (a *AddressVector) Encode() (b [addressBytes]byte, err error) {
	sl := uint8(15)
	if a.Ethernet {
		sl = 7
	}
	switch {
	case a.SL > sl:
		return b, fmt.Errorf("mlx5: an address of service level %d: from 0 to %d", a.SL, sl)
	case a.FlowLabel > maxFlowLabel:
		return b, fmt.Errorf("mlx5: an address of flow label %#x: it has 20 bits", a.FlowLabel)
	case a.Ethernet && !a.Global:
		return b, fmt.Errorf("mlx5: an address without a GID on Ethernet: RoCE has no others")
	case a.Ethernet && a.UDPPort != 0 && a.UDPPort < firstUDPPort:
		return b, fmt.Errorf("mlx5: an address with UDP source port %#x: from %#x on", a.UDPPort, firstUDPPort)
	case a.SourcePath > maxSourcePath:
		return b, fmt.Errorf("mlx5: an address with source path %#x: it has 7 bits", a.SourcePath)
	}
	rate := uint8(0)
	if int(a.StaticRate) < len(staticRates) {
		rate = staticRates[a.StaticRate] << 4
	}
	route := uint32(a.SourceIndex)<<avSourceShift | a.FlowLabel
	if a.Ethernet {
		b[12] = rate | a.SL<<1
		binary.BigEndian.PutUint16(b[14:], a.UDPPort)
		copy(b[20:26], a.DestMAC[:])
	} else {
		b[12] = rate | a.SL
		b[13] = a.SourcePath
		binary.BigEndian.PutUint16(b[14:], a.DestLID)
		route |= avGlobal
	}
	if a.Global {
		b[26], b[27] = a.TrafficClass, a.HopLimit
		binary.BigEndian.PutUint32(b[28:], route)
		copy(b[32:], a.DestGID[:])
	}
	return b, nil
}

// UDPSourcePort is the source port of RoCE v2 packets by which switches tell flows
// apart: made of the flow label, or, where that is 0, of 14 bits of any number.
func UDPSourcePort(flowLabel, any uint32) uint16 {
	if flowLabel &= maxFlowLabel; flowLabel == 0 {
		flowLabel = any & (1<<flowLabelLowBits - 1)
	}
	return uint16(flowLabel&(1<<flowLabelLowBits-1)^flowLabel>>flowLabelLowBits) | firstUDPPort
}

// ParseCreateAH reads the driver's part of the answer to the making of an address
// handle, on a context with CreateAHData: the hardware address that the kernel
// found for it (struct mlx5_ib_create_ah_resp).
func ParseCreateAH(b []byte) (mac [6]byte, err error) {
	var r abi.MLX5IBCreateAHResp
	const end = 10 // of dmac
	if len(b) < end {
		return mac, short("address handle", b, end)
	}
	copy(r.Bytes(), b)
	if r.ResponseLength < end || r.DMAC == mac {
		return mac, fmt.Errorf("mlx5: the driver answered the making of an address handle with %d bytes and hardware address %x", r.ResponseLength, r.DMAC)
	}
	return r.DMAC, nil
}

// AddressVectors numbers the address vectors of a device, from 1 on, so that send
// requests can name them. Its methods may be called from any goroutine; look-ups
// take no lock.
type AddressVectors struct {
	slots atomic.Pointer[[]atomic.Pointer[vector]]

	mu   sync.Mutex
	free []uint32
	last uint32 // highest number in use so far
}

// vector is an encoded address vector without Q_Key and QPN, as numbers: the 4
// bytes after those two, and the four words after them.
type vector [5]uint64

// nowhere is the address vector of numbers that are not taken.
var nowhere vector

// get returns the vector of a number, all zeros if it has none.
func (t *AddressVectors) get(n uint32) *vector {
	if s := t.slots.Load(); s != nil && uint64(n) < uint64(len(*s)) {
		if v := (*s)[n].Load(); v != nil {
			return v
		}
	}
	return &nowhere
}

// Add takes in an address vector and returns its number.
func (t *AddressVectors) Add(a *AddressVector) (n uint32, err error) {
	b, err := a.Encode()
	if err != nil {
		return 0, err
	}
	v := vector{uint64(binary.BigEndian.Uint32(b[12:]))}
	for i := range v[1:] {
		v[1+i] = binary.BigEndian.Uint64(b[16+8*i:])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := len(t.free); k > 0 {
		n, t.free = t.free[k-1], t.free[:k-1]
	} else {
		t.last++
		n = t.last
		t.grow(int(n) + 1)
	}
	(*t.slots.Load())[n].Store(&v)
	return n, nil
}

// grow makes room for n numbers. Readers keep the old slice for one look-up more;
// its entries are never changed afterwards, since Add and Remove hold the lock.
func (t *AddressVectors) grow(n int) {
	old := t.slots.Load()
	if old != nil && n <= len(*old) {
		return
	}
	s := make([]atomic.Pointer[vector], max(2*n, 16))
	if old != nil {
		for i := range *old {
			s[i].Store((*old)[i].Load())
		}
	}
	t.slots.Store(&s)
}

// Remove frees a number. Requests that name it and are not yet staged go nowhere.
func (t *AddressVectors) Remove(n uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.slots.Load()
	if n == 0 || s == nil || uint64(n) >= uint64(len(*s)) || (*s)[n].Load() == nil {
		panic(fmt.Sprintf("mlx5: address vector %d, which is not there", n))
	}
	(*s)[n].Store(nil)
	t.free = append(t.free, n)
}
