package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// GRHLen is how many bytes come before the message in every buffer that receives
// datagrams: the global route header, or its place. A receive of a UD queue pair
// needs so much more room than the message, and WC.Bytes counts it.
//
// Give every receive room for QP.MaxDatagram and GRHLen bytes. What is too long
// for its receive is dropped by most devices, but takes the receiving queue pair
// to ERR on soft-RoCE of Linux 6.1, whoever sent it.
const GRHLen = 40

// ErrGRH says that bytes are no global route header.
var ErrGRH = errors.New("not a global route header")

// GRH is the header that came with a datagram: where it came from and went to.
type GRH struct {
	// Version is 4 for an IPv4 header, 6 for an IPv6 header or an
	// InfiniBand GRH, which look the same.
	Version int
	// Source and Dest are the sender's GID and the one that it sent to,
	// which is a group's for multicast.
	Source, Dest GID
	// TrafficClass, FlowLabel (20 bits, 0 on IPv4) and HopLimit are those
	// of the packet.
	TrafficClass uint8
	FlowLabel    uint32
	HopLimit     uint8
	// UDP says that the packet was one of RoCE v2; otherwise it was one of
	// RoCE v1 or InfiniBand.
	UDP bool
}

// Header fields, all in network order: RFC 791 and RFC 8200.
const (
	grhIPv4     = 20 // where an IPv4 header stands in the 40 bytes
	protocolUDP = 17
)

// ParseGRH reads the first GRHLen bytes of the buffer of a datagram receive. An
// IPv6 header, and InfiniBand's own, fill them; an IPv4 header stands in the
// last 20 of them, and the first 20 then mean nothing. The sender chose most of
// these bytes: believe the addresses as far as the network is to be believed.
//
// It fails with ErrGRH, also for fewer bytes.
func ParseGRH(b []byte) (GRH, error) {
	if len(b) < GRHLen {
		return GRH{}, fmt.Errorf("goverbs: %w: %d bytes, want %d", ErrGRH, len(b), GRHLen)
	}
	h4 := b[grhIPv4:GRHLen]
	like4 := h4[0] == 0x45 && h4[9] == protocolUDP
	like6 := b[0]>>4 == 6
	// Both may seem to be there: what stands before an IPv4 header is
	// whatever the buffer held. Then the checksum of the IPv4 header decides.
	// Alone it need not be right: soft-RoCE leaves it out on loopback.
	if like4 && (!like6 || internetSum(h4) == 0xffff) {
		return GRH{
			Version: 4, Source: GIDFromAddr(netip.AddrFrom4([4]byte(h4[12:16]))), Dest: GIDFromAddr(netip.AddrFrom4([4]byte(h4[16:20]))),
			TrafficClass: h4[1], HopLimit: h4[8], UDP: true,
		}, nil
	}
	if !like6 {
		return GRH{}, fmt.Errorf("goverbs: %w: it begins with %#x, and %#x at byte %d: want 6x, or 45", ErrGRH, b[0], h4[0], grhIPv4)
	}
	word := binary.BigEndian.Uint32(b)
	return GRH{
		Version: 6, Source: GID(b[8:24]), Dest: GID(b[24:40]),
		TrafficClass: uint8(word >> 20), FlowLabel: word & 0xfffff, HopLimit: b[7], UDP: b[6] == protocolUDP,
	}, nil
}

// internetSum is the ones' complement sum of a header, 0xffff if the checksum in
// it is right.
func internetSum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
