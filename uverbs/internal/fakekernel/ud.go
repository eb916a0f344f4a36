package fakekernel

import (
	"encoding/binary"
	"slices"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// ah is an address handle. Requests name it by a number that is the device's,
// not the context's, as soft-RoCE has it since Linux 5.15.
type ah struct {
	dev    *device
	pd     *pd
	number uint32
	attr   abi.UverbsAHAttr
}

func (*ah) kind() string { return "AH" }

func (a *ah) end() {
	a.pd.users--
	delete(a.dev.ahs, a.number)
}

func (c *ioctl) createAH(cmd *abi.Command, in []byte) error {
	var r abi.UverbsCreateAH
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	d := c.f.dev
	p, err := lookup[*pd](c.f.ctx, r.PDHandle)
	switch {
	case !d.isRXE():
		return syscall.EOPNOTSUPP
	case err != nil, r.Attr.PortNum != 1, r.Attr.IsGlobal != 1:
		return syscall.EINVAL
	case !d.hasGID(uint64(r.Attr.GRH.SGIDIndex)):
		return syscall.ENODATA
	case isIPv4(d.gids[r.Attr.GRH.SGIDIndex]) != isIPv4(r.Attr.GRH.DGID):
		return syscall.EINVAL
	}
	a := &ah{dev: d, pd: p, attr: r.Attr}
	for a.number = 1; d.ahs[a.number] != nil; a.number++ {
	}
	d.ahs[a.number] = a
	p.users++
	h := c.add(a)
	if c.UHWOutLen() >= abi.SizeofRxeCreateAHResp && !d.AVInRequest {
		if err := c.set(abi.UVERBS_ATTR_UHW_OUT, (&abi.RxeCreateAHResp{AHNum: a.number}).Bytes()); err != nil {
			return err
		}
	}
	return c.reply((&abi.UverbsCreateAHResp{AHHandle: h}).Bytes())
}

func (c *ioctl) destroyAH() error {
	h, _ := c.Handle(abi.UVERBS_ATTR_DESTROY_AH_HANDLE)
	a, err := lookup[*ah](c.f.ctx, h)
	if err != nil {
		return err
	}
	c.f.ctx.destroy(h, a)
	return nil
}

// attachMulticast and detachMulticast enter and leave a group.
func (c *ioctl) attachMulticast(cmd *abi.Command, in []byte) error {
	q, group, err := c.member(cmd, in)
	if err != nil {
		return err
	}
	if !slices.Contains(q.groups, group) {
		q.groups = append(q.groups, group)
	}
	return nil
}

func (c *ioctl) detachMulticast(cmd *abi.Command, in []byte) error {
	q, group, err := c.member(cmd, in)
	if err != nil {
		return err
	}
	i := slices.Index(q.groups, group)
	if i < 0 {
		return syscall.EINVAL
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	return nil
}

func (c *ioctl) member(cmd *abi.Command, in []byte) (*qp, [16]byte, error) {
	var r abi.UverbsAttachMcast // as struct ib_uverbs_detach_mcast
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return nil, r.GID, err
	}
	q, err := lookup[*qp](c.f.ctx, r.QPHandle)
	if err != nil || q.typ != uint64(abi.IB_UVERBS_QPT_UD) || !isGroup(r.GID) {
		return nil, r.GID, syscall.EINVAL
	}
	return q, r.GID, nil
}

// isIPv4 says whether a GID is an IPv4 address, mapped.
func isIPv4(g [16]byte) bool { return [12]byte(g[:]) == [12]byte{10: 0xff, 11: 0xff} }

// isGroup says whether a GID is a multicast address.
func isGroup(g [16]byte) bool { return g[0] == 0xff || isIPv4(g) && g[12]>>4 == 14 }

// ownQKey in a request stands for the sender's own Q_Key.
const ownQKey = 1 << 31

// datagram carries out a request of a UD queue pair and returns its status. What
// nobody takes is lost without a word.
func (q *qp) datagram(w *sendWQE) int {
	d := q.ctx.dev
	a := d.ahs[w.ah]
	data, ok := q.gather(w)
	if !ok || a == nil || a.pd != q.pd || w.opcode != opSend && w.opcode != opSendImm {
		return statusLocalQPOp // Linux 6.1's status for all of these
	}
	if len(data) > d.MTU {
		q.ctx.k.violation("a datagram of %d bytes, the MTU is %d: the driver drops it and reports success", len(data), d.MTU)
		return statusOK
	}
	if !d.up {
		return statusOK
	}
	qkey := w.qkey
	if qkey&ownQKey != 0 {
		qkey = q.attr.QKey
	}
	buf := append(q.routeHeader(a, len(data)), data...)
	for _, p := range q.audience(a, w.dest) {
		p.hear(q, w, qkey, buf)
	}
	return statusOK
}

// audience is who gets a datagram: the queue pair of a number at an address, or
// all that are in a group.
func (q *qp) audience(a *ah, number uint32) (all []*qp) {
	group := isGroup(a.attr.GRH.DGID)
	for _, d := range q.ctx.k.devices {
		if !d.up || d.gone || !group && !slices.Contains(d.gids, a.attr.GRH.DGID) {
			continue
		}
		for _, c := range d.contexts {
			for _, o := range c.objects {
				p, ok := o.(*qp)
				if !ok || p.typ != uint64(abi.IB_UVERBS_QPT_UD) || p.state != stateRTR && p.state != stateRTS {
					continue
				}
				if group && slices.Contains(p.groups, a.attr.GRH.DGID) || !group && p.number == number {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

// hear receives a datagram, or drops it.
func (p *qp) hear(from *qp, w *sendWQE, qkey uint32, buf []byte) {
	if qkey != p.attr.QKey {
		return
	}
	r, ok := p.peekRecv()
	if !ok {
		return
	}
	// Linux 6.1 fails the receiver of a datagram that is too long for it.
	if fits, ok := p.copyIn(r.sges, buf); !fits {
		p.refuse(&r, statusLocalQPOp, 0)
		return
	} else if !ok {
		p.refuse(&r, statusLocalProt, 0)
		return
	}
	p.popRecv()
	c := completion{
		wrID: r.id, opcode: 128, byteLen: uint32(len(buf)), qpn: p.number, flags: wcGRH, port: 1, srcQP: from.number,
	}
	if w.hasImm() {
		c.flags |= wcWithImm
		c.imm = w.imm
	}
	p.recv.post(c, w.flags&flagSolicit != 0)
}

// routeHeader is the 40 bytes before a datagram: an IPv6 header, or 20 zero
// bytes and an IPv4 header, whose checksum soft-RoCE leaves open on loopback.
func (q *qp) routeHeader(a *ah, n int) []byte {
	const udpAndBTH = 8 + 12 + 8
	be := binary.BigEndian
	g := &a.attr.GRH
	src := q.ctx.dev.gids[g.SGIDIndex]
	h := make([]byte, 40)
	if !isIPv4(g.DGID) {
		be.PutUint32(h, 6<<28|uint32(g.TrafficClass)<<20|g.FlowLabel&0xfffff)
		be.PutUint16(h[4:], uint16(n+udpAndBTH))
		h[6], h[7] = 17, g.HopLimit
		copy(h[8:], src[:])
		copy(h[24:], g.DGID[:])
		return h
	}
	v4 := h[20:]
	v4[0], v4[1] = 0x45, g.TrafficClass
	be.PutUint16(v4[2:], uint16(20+n+udpAndBTH))
	be.PutUint16(v4[6:], 0x4000)
	v4[8], v4[9] = g.HopLimit, 17
	copy(v4[12:], src[12:])
	copy(v4[16:], g.DGID[12:])
	return h
}
