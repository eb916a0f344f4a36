package uverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// AH is an address handle: the way to a port, or to a multicast group, for the
// datagrams of UD queue pairs of the same protection domain. Its methods may be
// called from any goroutine.
type AH struct {
	object
	pd      *PD
	dest    GID
	source  GIDEntry
	half    ahHalf
	number  uint32 // by which requests name it
	closing atomic.Bool
}

// AHOptions are the choices of NewAH. The zero value, and nil, mean packets from
// the default source with 64 hops to live.
type AHOptions struct {
	// Source is the local address that packets come from. The zero value is
	// the first RoCE v2 GID of the first active port, one of the
	// destination's kind (IPv4, link-local IPv6, other IPv6) before others.
	// A queue pair that was made for another Source needs the same here.
	Source Source
	// HopLimit of the packets; 0 means 64. On RoCE the kernel takes its own
	// from the route instead, except for multicast.
	HopLimit uint8
	// TrafficClass of the packets.
	TrafficClass uint8
	// FlowLabel of the packets, 20 bits. Soft-RoCE sends 0.
	FlowLabel uint32
	// ServiceLevel is the priority, 0 to 15.
	ServiceLevel uint8
}

// NewAH makes an address handle for the port of an endpoint, or for a multicast
// group, whose Endpoint has nothing but the group's GID. The kernel finds the
// hardware address of the port, which takes a while if it has to ask the network.
//
// On soft-RoCE it needs Linux 5.15.
func (pd *PD) NewAH(to Endpoint, opts *AHOptions) (*AH, error) {
	const op = "create AH"
	var o AHOptions
	if opts != nil {
		o = *opts
	}
	d := pd.dev
	switch {
	case to.GID.IsZero() && to.LID == 0:
		return nil, invalid("%s: %s: the endpoint has neither GID nor LID", d.info.Name, op)
	case o.ServiceLevel > 15:
		return nil, invalid("%s: service level %d: at most 15", op, o.ServiceLevel)
	case o.FlowLabel > 0xfffff:
		return nil, invalid("%s: flow label %#x: at most 20 bits", op, o.FlowLabel)
	}
	source, err := d.sourceFor(o.Source, to.GID)
	if err != nil {
		return nil, err
	}
	return pd.newAH(op, to, source, &o)
}

// NewAHFor makes an address handle for the sender of a datagram, from the
// receive's completion and the first GRHLen bytes of its buffer. An answer goes
// to Dest{AH: ah, QPN: w.SrcQPN}. Packets come from the address that the sender
// sent to, or, if that was a group's, from the default source.
//
// The addresses in the header are the sender's claim.
func (pd *PD) NewAHFor(w WC, grh []byte) (*AH, error) {
	const op = "create AH for a completion"
	d := pd.dev
	if w.Status != StatusSuccess || w.Side != RecvSide {
		return nil, invalid("%s: %s: it is not a successful receive", d.info.Name, op)
	}
	if w.Flags&FlagGRH == 0 {
		if w.SLID == 0 {
			return nil, invalid("%s: %s: it has neither GRH nor source LID: it is not a datagram's", d.info.Name, op)
		}
		source, err := d.resolve(Source{})
		if err != nil {
			return nil, err
		}
		return pd.newAH(op, Endpoint{LID: w.SLID}, source, &AHOptions{ServiceLevel: w.SL})
	}
	h, err := ParseGRH(grh)
	if err != nil {
		return nil, err
	}
	source, err := d.arrival(h)
	if err != nil {
		return nil, err
	}
	return pd.newAH(op, Endpoint{GID: h.Source, LID: w.SLID}, source, &AHOptions{TrafficClass: h.TrafficClass, FlowLabel: h.FlowLabel, ServiceLevel: w.SL})
}

// sourceFor resolves a source for packets to a destination. Where the program
// left the choice to us, addresses of the destination's kind come first.
func (d *Device) sourceFor(s Source, dest GID) (GIDEntry, error) {
	if s.how == sourceDefault || s.how == sourcePort {
		kin := s
		kin.like = kindOfGID(dest)
		if e, err := d.resolve(kin); err == nil {
			return e, nil
		}
	}
	return d.resolve(s)
}

// arrival is the entry of the GID table that a datagram was sent to.
func (d *Device) arrival(h GRH) (GIDEntry, error) {
	if isMulticast(h.Dest) {
		return d.sourceFor(Source{}, h.Source)
	}
	table, err := d.GIDTable()
	if err != nil {
		return GIDEntry{}, err
	}
	for _, e := range table {
		if e.GID == h.Dest && (e.Type == GIDTypeRoCEv2) == h.UDP {
			return e, nil
		}
	}
	return GIDEntry{}, invalid("%s: the datagram was sent to %v, which is not in the GID table: %s", d.info.Name, h.Dest, describeGIDs(table))
}

// gidKind tells addresses apart between which no packet travels.
type gidKind uint8

const (
	gidAny gidKind = iota
	gidIPv4
	gidLinkLocal
	gidGlobal
)

func kindOfGID(g GID) gidKind {
	a, ok := g.Addr()
	switch {
	case !ok:
		return gidAny
	case a.Is4(), isMappedMulticast(g):
		return gidIPv4
	case a.IsLinkLocalUnicast(), a.IsLinkLocalMulticast():
		return gidLinkLocal
	}
	return gidGlobal
}

// isMulticast says whether a GID is a group's: an IPv6 multicast address, or an
// IPv4 one mapped.
func isMulticast(g GID) bool {
	a, ok := g.Addr()
	return ok && a.IsMulticast()
}

// isMappedMulticast recognises ff0e::ffff:a.b.c.d, how rdma_cm writes an IPv4
// group on RoCE.
func isMappedMulticast(g GID) bool {
	return g[0] == 0xff && g[1] == 0x0e && [10]byte(g[2:12]) == [10]byte{8: 0xff, 9: 0xff}
}

// GroupGID is the GID of an IP multicast group on RoCE v2.
func GroupGID(group netip.Addr) (GID, error) {
	if !group.IsMulticast() {
		return GID{}, invalid("%v is not a multicast address", group)
	}
	return GIDFromAddr(group), nil
}

func (pd *PD) newAH(op string, to Endpoint, source GIDEntry, o *AHOptions) (*AH, error) {
	d := pd.dev
	if !d.provides() {
		return nil, d.noProvider(op)
	}
	if source.Index > 255 {
		return nil, invalid("%s: source GID index %d: this request holds 0 to 255", op, source.Index)
	}
	done, err := d.making(kindAH, &pd.object)
	if err != nil {
		return nil, err
	}
	defer done()
	hops := o.HopLimit
	if hops == 0 {
		hops = defaultHopLimit
	}
	ah := &AH{object: object{dev: d, kind: kindAH, id: d.nextID()}, pd: pd, dest: to.GID, source: source}
	in, out := new(abi.UverbsCreateAH), new(abi.UverbsCreateAHResp)
	ah.half = d.provider.newAH(ah)
	in.UserHandle, in.PDHandle = ah.id, pd.handle
	in.Attr = abi.UverbsAHAttr{DLID: to.LID, SL: o.ServiceLevel, PortNum: uint8(source.Port)}
	if !to.GID.IsZero() {
		in.Attr.IsGlobal = 1
		in.Attr.GRH = abi.UverbsGlobalRoute{DGID: to.GID, FlowLabel: o.FlowLabel, SGIDIndex: uint8(source.Index), HopLimit: hops, TrafficClass: o.TrafficClass}
	}
	r := newCommand(d.driver, abi.IB_USER_VERBS_CMD_CREATE_AH, in.Bytes(), out.Bytes())
	ah.half.create(r)
	if err := d.call(op, r); err != nil {
		return nil, explainAH(err, to.GID, source)
	}
	ah.handle = out.AHHandle
	if ah.number, err = ah.half.made(op, &in.Attr); err != nil {
		ah.destroy()
		return nil, err
	}
	if err := d.hold(ah, &pd.object); err != nil {
		ah.free()
		return nil, err
	}
	return ah, nil
}

// explainAH adds what the usual errnos mean.
func explainAH(err error, to GID, source GIDEntry) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case isErrno(err, syscall.ENODATA):
		e.Hint = fmt.Sprintf("the source GID index %d is empty: the address was removed, or the port is down", source.Index)
	case isErrno(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ETIMEDOUT):
		e.Hint = fmt.Sprintf("nobody at %v was found from %v", to, source.GID)
	case isErrno(err, syscall.EINVAL, syscall.EAFNOSUPPORT):
		e.Hint = fmt.Sprintf("from %v to %v: both have to be IPv4 or both IPv6, or have a LID", source.GID, to)
	}
	return err
}

// GID is the address that the handle leads to, zero if it is a LID.
func (ah *AH) GID() GID { return ah.dest }

// Source is the local GID that packets come from.
func (ah *AH) Source() GIDEntry { return ah.source }

// Close destroys the address handle. Datagrams that use it and have not
// completed may fail, and take their queue pair to ERR: close it after them.
func (ah *AH) Close() error {
	if err := ah.retire(); err != nil {
		return err
	}
	ah.closing.Store(true)
	if err := ah.free(); err != nil {
		ah.closing.Store(false)
		ah.revive()
		return err
	}
	ah.release()
	return nil
}

func (ah *AH) free() error {
	err := ah.destroy()
	if err == nil {
		ah.half.detach()
	}
	return err
}

func (ah *AH) destroy() error {
	return ah.dev.destroy("destroy AH", abi.UVERBS_OBJECT_AH, abi.UVERBS_METHOD_AH_DESTROY, ah.handle, nil)
}

// usable says why the handle cannot be used by a queue pair of pd.
func (ah *AH) usable(pd *PD) error {
	switch {
	case ah == nil:
		return fmt.Errorf("Dest.AH is nil: make one with PD.NewAH: %w", ErrInvalid)
	case ah.closing.Load():
		return fmt.Errorf("Dest.AH to %v: %w", ah.dest, os.ErrClosed)
	case ah.pd != pd:
		return fmt.Errorf("Dest.AH to %v belongs to another protection domain than the queue pair: %w", ah.dest, ErrInvalid)
	}
	return nil
}
