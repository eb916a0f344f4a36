package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Device is one device of a fabric.
type Device struct {
	m     *Model
	cfg   DeviceConfig
	ports []*port
	files []*File
	gone  bool

	qps     map[uint32]*qp
	cqTable map[uint32]*cq
	keys    map[uint32]*mkey // by index: the key without its low byte

	// Next numbers. Those of queue pairs begin elsewhere on every device, so that
	// a program that mixes up its own and its peer's is found out.
	nextQPN, nextCQN, nextSRQN, nextPDN, nextKey, nextUAR uint32
	cqs, mrs, pds, srqs                                   uint32 // how many there are
	broken                                                int    // queue pairs in error
}

// port is one port.
type port struct {
	d      *Device
	number uint8
	up     bool
	ib     bool
	lid    uint16
	mtu    uint8 // code
	gids   []GID
	pkeys  []uint16
	// badQKeys counts datagrams with a wrong Q_Key.
	badQKeys uint32
}

func newDevice(m *Model, c DeviceConfig, n int) (*Device, error) {
	d := &Device{
		m: m, cfg: c, qps: make(map[uint32]*qp), cqTable: make(map[uint32]*cq), keys: make(map[uint32]*mkey),
		nextQPN: 0x100 + uint32(n)*0x1000, nextCQN: 0x400, nextSRQN: 0x40, nextPDN: 0x10, nextKey: 3, nextUAR: 1,
	}
	for _, o := range m.devices {
		if o.cfg.GUID == c.GUID {
			return nil, fmt.Errorf("model: device %s: its GUID %#016x is that of %s", c.Name, c.GUID, o.cfg.Name)
		}
	}
	for i, pc := range c.Ports {
		p := &port{d: d, number: uint8(i + 1), up: !pc.Down, ib: pc.InfiniBand, lid: pc.LID, mtu: mtuCode(pc.MTU), pkeys: pc.PKeys}
		p.gids = append(make([]GID, 0, gidTableLength), pc.GIDs...)
		if p.ib {
			if o := m.lids[p.lid]; o != nil {
				return nil, fmt.Errorf("model: device %s port %d: LID %d is taken: %s port %d has it", c.Name, i+1, p.lid, o.d.cfg.Name, o.number)
			}
			m.lids[p.lid] = p
		}
		d.ports = append(d.ports, p)
		for _, g := range p.gids {
			if o := m.gids[g.Addr]; !g.empty() && o != nil && o != p {
				return nil, fmt.Errorf("model: device %s port %d: GID %v is taken: %s port %d has it", c.Name, i+1, g, o.d.cfg.Name, o.number)
			}
			p.claim(g)
		}
	}
	return d, nil
}

// Name is the device's name.
func (d *Device) Name() string { return d.cfg.Name }

// GUID is the node GUID.
func (d *Device) GUID() uint64 { return d.cfg.GUID }

// Ports is how many ports there are.
func (d *Device) Ports() int { return len(d.ports) }

// PortInfo is what a program may see of a port.
type PortInfo struct {
	// Up: the cable is in.
	Up bool
	// InfiniBand says whether it is InfiniBand, with LID; otherwise RoCE, with MAC.
	InfiniBand bool
	LID        uint16
	MAC        [6]byte
	// MTU is the active one in bytes.
	MTU int
	// GIDs and PKeys are the tables, with empty entries of the first where they are.
	GIDs  []GID
	PKeys []uint16
}

// Port tells of a port, counted from 1. The slices are the caller's.
func (d *Device) Port(number int) (PortInfo, error) {
	d.m.enter()
	defer d.m.leave()
	p, err := d.findPort(number)
	if err != nil {
		return PortInfo{}, fmt.Errorf("model: %w", err)
	}
	i := PortInfo{Up: p.up, InfiniBand: p.ib, LID: p.lid, MTU: 128 << p.mtu, GIDs: slices.Clone(p.gids), PKeys: slices.Clone(p.pkeys)}
	if !p.ib {
		i.MAC = p.mac()
	}
	return i, nil
}

func (d *Device) port(n uint64) *port {
	if n == 0 || n > uint64(len(d.ports)) {
		return nil
	}
	return d.ports[n-1]
}

// findPort is port for a number that a test gave.
func (d *Device) findPort(number int) (*port, error) {
	if number < 1 || number > len(d.ports) {
		return nil, fmt.Errorf("device %s has no port %d: ports are counted from 1 to %d", d.cfg.Name, number, len(d.ports))
	}
	return d.ports[number-1], nil
}

// SetPort plugs the cable of a port in or out. Programs get PORT_ACTIVE or PORT_ERR.
func (d *Device) SetPort(number int, up bool) error {
	d.m.enter()
	defer d.m.leave()
	if err := d.setPort(number, up); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

func (d *Device) setPort(number int, up bool) error {
	p, err := d.findPort(number)
	if err != nil {
		return err
	}
	if p.up != up {
		p.up = up
		event := uint32(eventPortErr)
		if up {
			event = eventPortActive
		}
		d.announce(event, uint64(number))
	}
	return nil
}

// SetGID changes an entry of a port's GID table, the zero GID empties it.
// Programs get GID_CHANGE. Queue pairs that use the entry send from the new address
// from then on, so their peers do not know them any more. As in [PortConfig] the type must
// fit the link layer, a multicast address is none, and no table has an address and type
// twice, no two ports one address.
func (d *Device) SetGID(number, index int, g GID) error {
	d.m.enter()
	defer d.m.leave()
	if err := d.setGID(number, index, g); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

func (d *Device) setGID(number, index int, g GID) error {
	if err := d.checkGID(number, index, g); err != nil {
		return err
	}
	p := d.ports[number-1]
	if g.empty() {
		g = GID{}
	} else if i := slices.Index(p.gids, g); i >= 0 && i != index {
		return fmt.Errorf("GID %v of device %s port %d is at index %d already", g, d.cfg.Name, number, i)
	}
	if o := d.m.gids[g.Addr]; !g.empty() && o != nil && o != p {
		return fmt.Errorf("GID %v belongs to device %s port %d", g, o.d.cfg.Name, o.number)
	}
	for len(p.gids) <= index {
		p.gids = append(p.gids, GID{})
	}
	old := p.gids[index]
	p.gids[index] = g
	if !slices.ContainsFunc(p.gids, func(x GID) bool { return x.Addr == old.Addr }) {
		delete(d.m.gids, old.Addr)
	}
	p.claim(g)
	d.announce(eventGIDChange, uint64(number))
	return nil
}

// checkGID refuses what no GID table of the port can have at an index.
func (d *Device) checkGID(number, index int, g GID) error {
	p, err := d.findPort(number)
	if err != nil {
		return err
	}
	if index < 0 || index >= gidTableLength {
		return fmt.Errorf("GID index %d of device %s port %d: from 0 to %d", index, d.cfg.Name, number, gidTableLength-1)
	}
	if err := g.check(p.ib); err != nil {
		return fmt.Errorf("device %s port %d: %w", d.cfg.Name, number, err)
	}
	return nil
}

// claim makes the port answer to an address.
func (p *port) claim(g GID) {
	if !g.empty() {
		p.d.m.gids[g.Addr] = p
	}
}

// has says whether the port has an address of a type.
func (p *port) has(addr [16]byte, t GIDType) bool {
	return slices.Contains(p.gids, GID{addr, t})
}

// gid is the entry at an index, empty where there is none.
func (p *port) gid(index int) GID {
	if index >= len(p.gids) {
		return GID{}
	}
	return p.gids[index]
}

// mac is the port's Ethernet address.
func (p *port) mac() (a [6]byte) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], p.d.cfg.GUID+uint64(p.number-1))
	copy(a[:3], b[:3])
	copy(a[3:], b[5:])
	return a
}

// Fail is a fatal error of the device: nothing works any more. Programs
// get DEVICE_FATAL, then EIO from every call and every event queue.
func (d *Device) Fail() {
	d.m.enter()
	defer d.m.leave()
	d.fail()
}

func (d *Device) fail() {
	if d.gone {
		return
	}
	d.announce(eventDeviceFatal, 0)
	d.gone = true
	for _, q := range d.qps {
		q.stopTimer()
	}
	for _, f := range d.files {
		for _, e := range f.queues {
			e.breakOff()
		}
	}
}

// pairs are the queue pairs in the order in which they were made.
func (d *Device) pairs() []*qp {
	return slices.SortedFunc(maps.Values(d.qps), func(a, b *qp) int { return cmp.Compare(a.qpn, b.qpn) })
}

// queues are the completion queues in the order in which they were made.
func (d *Device) queues() []*cq {
	return slices.SortedFunc(maps.Values(d.cqTable), func(a, b *cq) int { return cmp.Compare(a.cqn, b.cqn) })
}

// announce tells all programs of something that is the device's or a port's.
func (d *Device) announce(event uint32, element uint64) {
	for _, f := range d.files {
		if f.ctx != nil {
			f.async(nil, element, event, nil)
		}
	}
}
