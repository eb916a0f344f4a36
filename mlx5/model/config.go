package model

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// DeviceConfig says what kind of device it is. The zero value of every field is
// what a current ConnectX with one RoCE port has.
type DeviceConfig struct {
	// Name is how the fabric calls it, such as sim0. It must be there, and has no spaces.
	Name string
	// GUID is the node GUID, made from the place in the list by default, and no other
	// device's. MAC addresses
	// and link-local GIDs are made from it.
	GUID uint64
	// Ports are its ports, numbered from 1.
	Ports []PortConfig
	// Vectors is how many completion vectors there are, up to 65535: 4 by default.
	Vectors int
	// ClockKHz is the frequency of the device's clock, from 16 to 4000000: 1000000 by default.
	ClockKHz uint64

	// CQEVersion0: completions carry the numbers of queues, not the user index.
	CQEVersion0 bool
	// StaticUARs: the kernel knows no UAR objects for contexts.
	StaticUARs bool
	// NoBlueFlame: the kernel found that write-combining does not work.
	NoBlueFlame bool
	// NoClockPage: the page that translates time stamps cannot be mapped.
	NoClockPage bool
	// NoDevX: contexts that may send commands to the firmware are refused. Where
	// they are not, the firmware of the model knows no command.
	NoDevX bool
	// NoAtomics: the device does no atomic operations.
	NoAtomics bool
	// NoCompression: the device does not compress completions.
	NoCompression bool
	// Timestamps are the formats of time stamps that it has.
	Timestamps TimestampFormats

	// Limits of objects, by default those of a current device. MaxCQE and MaxQPWR count
	// entries of a queue. The ring of a completion queue has a power of two of entries, one
	// of which stays free, so MaxCQE is such a number less one, up to 4194303. MaxQPWR
	// goes up to 32768, the others up to 8388608, and MaxMR to 16777216.
	MaxCQE, MaxQPWR, MaxQP, MaxCQ, MaxMR, MaxPD, MaxSRQ uint32
}

// TimestampFormats are formats of the time stamps in completions: qp_ts_format of the
// kernel's mlx5_ifc.h.
type TimestampFormats uint8

// The formats that a device has.
const (
	// AllTimestamps: ticks of its counter, or the time of day where the queue asks for that.
	AllTimestamps TimestampFormats = iota
	// TicksOnly and RealTimeOnly: one of the two.
	TicksOnly
	RealTimeOnly
)

// PortConfig describes a port. The zero value is a RoCE port that is up.
type PortConfig struct {
	// InfiniBand makes it an InfiniBand port. All ports of a device are alike.
	InfiniBand bool
	// LID is an InfiniBand port's address, from 1 to 0xbfff; by default a number of its own.
	// A RoCE port has none.
	LID uint16
	// GIDs is the GID table. By default it is the link-local address, on RoCE as v1 and as
	// v2, and there also 10.x.y.z as v2, with numbers that are the port's own. Types fit
	// the link layer, and no two ports have one address; none is multicast.
	GIDs []GID
	// MTU is the active MTU in bytes: 4096 by default.
	MTU int
	// Down: the cable is out when the model starts.
	Down bool
	// PKeys is the P_Key table: 0xffff by default. At least one entry is valid, which is any
	// with another bit than the highest.
	PKeys []uint16
}

// GIDType is the kernel's enum ib_uverbs_gid_type.
type GIDType uint32

// The types of GIDs.
const (
	GIDInfiniBand GIDType = iota
	GIDRoCE1
	GIDRoCE2
)

// A GID is an entry of a GID table. The zero value is an empty one.
type GID struct {
	Addr [16]byte
	Type GIDType
}

// String is the address and the type as a script has them, or "none".
func (g GID) String() string {
	if g.empty() {
		return "none"
	}
	for name, t := range gidTypes {
		if t == g.Type {
			return netip.AddrFrom16(g.Addr).String() + " " + name
		}
	}
	return fmt.Sprintf("%v type %d", netip.AddrFrom16(g.Addr), g.Type)
}

// check refuses what no table of a port with that link layer can have.
func (g GID) check(infiniBand bool) error {
	switch {
	case g.empty():
		return nil
	case g.Type > GIDRoCE2:
		return fmt.Errorf("GID %v: there are GIDInfiniBand, GIDRoCE1 and GIDRoCE2", g)
	case (g.Type == GIDInfiniBand) != infiniBand:
		layer, want := "RoCE", "GIDRoCE1 or GIDRoCE2"
		if infiniBand {
			layer, want = "InfiniBand", "GIDInfiniBand"
		}
		return fmt.Errorf("GID %v does not fit the link layer: on %s it is of type %s", g, layer, want)
	case isGroup(g.Addr):
		return fmt.Errorf("GID %v is a multicast address: queue pairs join those, no port has one", g)
	}
	return nil
}

func (g GID) empty() bool { return g.Addr == [16]byte{} }

// isIPv4 says whether the address is an IPv4 one in IPv6's clothes.
func (g GID) isIPv4() bool {
	return [12]byte(g.Addr[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

// Limits of the device. They are those that libmlx5's recorded bytes were made
// under, so that the same requests fit.
const (
	maxSendBytes    = 1024 // of a send WQE
	maxRecvBytes    = 512  // of a receive WQE
	maxSendBlocks   = 32768
	maxRecvRequests = 32768
	maxSharedWR     = 32767
	maxSharedSGE    = maxRecvBytes/segmentBytes - 1
	maxReadDepth    = 16
	maxMessage      = 1 << 30
	gidTableLength  = 256
	blueFlameBytes  = 512
	staticRegisters = 16
	pageSize        = 4096
	cacheLine       = 64
	nullKey         = 0x200 // dump_fill_mkey
	firmware        = 20<<32 | 99<<16 | 1000
)

// Limits of the model's own.
const (
	maxDevices = 1024 // their numbers of queue pairs begin 0x1000 apart
	maxVectors = 1<<16 - 1
	maxCQE     = 1<<22 - 1
	maxObjects = 1 << 23 // numbers have 24 bits and do not begin at 0
	maxKeys    = 1 << 24
	maxPKeys   = 1<<16 - 1 // the kernel counts them in 16 bits
	maxLID     = 0xbfff    // multicast LIDs follow
	minKHz     = 16        // the multiplier of the clock page has 32 bits
	maxKHz     = 4_000_000
)

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// complete fills in defaults for the n-th device.
func (c *DeviceConfig) complete(n int) error {
	if c.Name == "" {
		return fmt.Errorf("model: device %d has no name", n)
	}
	if n >= maxDevices {
		return fmt.Errorf("model: device %s is number %d: at most %d fit the fabric", c.Name, n+1, maxDevices)
	}
	if strings.ContainsFunc(c.Name, unicode.IsSpace) {
		return fmt.Errorf("model: device %d is called %q: spaces in a name no script could write", n, c.Name)
	}
	setDefault(&c.GUID, 0x0200_00ff_fe00_0001+uint64(n)<<8)
	setDefault(&c.Vectors, 4)
	setDefault(&c.ClockKHz, 1_000_000)
	setDefault(&c.MaxCQE, maxCQE)
	setDefault(&c.MaxQPWR, maxSendBlocks)
	setDefault(&c.MaxQP, 1<<17)
	setDefault(&c.MaxCQ, 1<<20)
	setDefault(&c.MaxMR, maxKeys)
	setDefault(&c.MaxPD, 1<<20)
	setDefault(&c.MaxSRQ, 1<<16)
	if err := c.checkLimits(); err != nil {
		return fmt.Errorf("model: device %s: %w", c.Name, err)
	}
	if len(c.Ports) == 0 {
		c.Ports = []PortConfig{{}}
	}
	c.Ports = append([]PortConfig(nil), c.Ports...)
	if len(c.Ports) > 2 {
		return fmt.Errorf("model: device %s has %d ports: 1 or 2", c.Name, len(c.Ports))
	}
	for i := range c.Ports {
		if err := c.Ports[i].complete(c, n, i); err != nil {
			return err
		}
	}
	return nil
}

// checkLimits refuses limits that the model could not keep.
func (c *DeviceConfig) checkLimits() error {
	if c.Vectors < 1 || c.Vectors > maxVectors {
		return fmt.Errorf("%d completion vectors: from 1 to %d", c.Vectors, maxVectors)
	}
	if c.ClockKHz < minKHz || c.ClockKHz > maxKHz {
		return fmt.Errorf("a clock of %d kHz: from %d to %d", c.ClockKHz, minKHz, maxKHz)
	}
	if c.Timestamps > RealTimeOnly {
		return fmt.Errorf("time stamps of kind %d: there are AllTimestamps, TicksOnly and RealTimeOnly", c.Timestamps)
	}
	if c.MaxCQE > maxCQE || bits.OnesCount32(c.MaxCQE+1) != 1 {
		return fmt.Errorf("MaxCQE %d: a power of two less one, up to %d", c.MaxCQE, maxCQE)
	}
	for _, l := range []struct {
		name       string
		value, max uint32
	}{
		{"MaxQPWR", c.MaxQPWR, maxSendBlocks}, {"MaxQP", c.MaxQP, maxObjects}, {"MaxCQ", c.MaxCQ, maxObjects},
		{"MaxMR", c.MaxMR, maxKeys}, {"MaxPD", c.MaxPD, maxObjects}, {"MaxSRQ", c.MaxSRQ, maxObjects},
	} {
		if l.value > l.max {
			return fmt.Errorf("%s %d: from 1 to %d", l.name, l.value, l.max)
		}
	}
	return nil
}

func (p *PortConfig) complete(c *DeviceConfig, n, i int) error {
	if p.InfiniBand != c.Ports[0].InfiniBand {
		return fmt.Errorf("model: device %s: its ports have different link layers: on a device they are alike", c.Name)
	}
	setDefault(&p.MTU, 4096)
	if mtuCode(p.MTU) == 0 {
		return fmt.Errorf("model: device %s port %d: MTU %d: it is 256, 512, 1024, 2048 or 4096", c.Name, i+1, p.MTU)
	}
	if p.PKeys == nil {
		p.PKeys = []uint16{0xffff}
	}
	p.PKeys = slices.Clone(p.PKeys) // the caller's may change
	if len(p.PKeys) > maxPKeys || !slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k&0x7fff != 0 }) {
		return fmt.Errorf("model: device %s port %d: %d P_Keys: from 1 to %d, of which one at least is valid, such as 0xffff", c.Name, i+1, len(p.PKeys), maxPKeys)
	}
	if p.InfiniBand {
		setDefault(&p.LID, uint16(n*2+i+1))
		if p.LID > maxLID {
			return fmt.Errorf("model: device %s port %d: LID %#x: from 1 to %#x", c.Name, i+1, p.LID, maxLID)
		}
	} else if p.LID != 0 {
		return fmt.Errorf("model: device %s port %d: LID %#x on a RoCE port: only InfiniBand has LIDs", c.Name, i+1, p.LID)
	}
	if p.GIDs == nil {
		local := GID{Addr: linkLocal(c.GUID + uint64(i))}
		if p.InfiniBand {
			p.GIDs = []GID{local}
		} else {
			// On Ethernet it is made of the MAC address, with its local bit the
			// other way round.
			local.Addr[8] ^= 2
			v1, v2 := local, local
			v1.Type, v2.Type = GIDRoCE1, GIDRoCE2
			ip := GID{Type: GIDRoCE2, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: byte(n >> 8), 14: byte(n), 15: byte(i + 1)}}
			p.GIDs = []GID{v1, v2, ip}
		}
	}
	if len(p.GIDs) > gidTableLength {
		return fmt.Errorf("model: device %s port %d: %d GIDs: the table has %d entries", c.Name, i+1, len(p.GIDs), gidTableLength)
	}
	p.GIDs = slices.Clone(p.GIDs)
	for j, g := range p.GIDs {
		if err := g.check(p.InfiniBand); err != nil {
			return fmt.Errorf("model: device %s port %d: %w", c.Name, i+1, err)
		}
		if g.empty() {
			p.GIDs[j] = GID{}
		} else if first := slices.Index(p.GIDs, g); first < j {
			return fmt.Errorf("model: device %s port %d: GID %v is at index %d and at %d", c.Name, i+1, g, first, j)
		}
	}
	return nil
}

// linkLocal is the link-local address of a GUID.
func linkLocal(guid uint64) [16]byte {
	g := [16]byte{0: 0xfe, 1: 0x80}
	for i := range 8 {
		g[8+i] = byte(guid >> (56 - 8*i))
	}
	return g
}

// mtuCode is the code of enum ib_mtu, 0 for a size that is none.
func mtuCode(bytes int) uint8 {
	for code := uint8(1); code <= 5; code++ {
		if bytes == 128<<code {
			return code
		}
	}
	return 0
}
