package model

// Route is how the packets of a request go, as far as the fabric has packets: it
// carries messages whole, and counts packets as a network would.
type Route struct {
	// Type is that of the queue pair, enum ib_uverbs_qp_type: 2 is RC, 3 UC, 4 UD.
	Type uint8
	// Packets is how many packets the message has, or what a READ brings. PSN is
	// the number of the first, MTU how many bytes of payload one takes.
	Packets, PSN, MTU uint32
	// InfiniBand says that the ports are linked by LID. Then addresses are those of the
	// requests, or, where they have none, the first GIDs of the ports.
	InfiniBand      bool
	FromGID, ToGID  GID
	FromMAC, ToMAC  [6]byte
	PKey            uint16
	QKey            uint32 // of a datagram
	Class, HopLimit uint8
	FlowLabel       uint32
	SourceUDP       uint16 // port of a datagram on RoCE, 0 elsewhere
}

// mayRoute says whether requests of the opcode leave the device.
func mayRoute(opcode uint8) bool { return known(opcode) && opcode != wqeNop && opcode != wqeUMR }

// route is the way of the packets of a request: none, the zero value, if it did not get
// as far as to leave the device.
func (q *qp) route(w *wqe, o Outcome, v *verdict) (r Route) {
	switch {
	case !mayRoute(w.opcode) || q.port == nil || !q.port.up || o == OutcomeHeldUp || o == OutcomeFlushed:
		return r
	case o == OutcomeFailed && v.syndrome != syndInvalidReq && v.syndrome != syndRemoteAccess && v.syndrome != syndRemoteOp:
		return r // for reasons of its own side, or no attempt at all
	}
	p, m := q.port, q.d.m
	r = Route{Type: q.typ, InfiniBand: p.ib, FromMAC: p.mac(), PKey: p.pkey(q), PSN: q.sendPSN}
	var lid uint16
	var to *port
	if q.typ == typeUD {
		a := &w.av
		r.MTU, r.Packets, r.QKey, r.Class, r.HopLimit, r.FlowLabel, r.ToMAC = 128<<p.mtu, 1, a.qkey, a.class, a.hop, a.grh&avFlowMask, a.mac
		if a.qkey&privateQKey != 0 {
			r.QKey = q.attr.qkey
		}
		if !p.ib || a.grh&avGRH != 0 {
			r.FromGID, r.ToGID.Addr = p.gid(int(a.grh>>avSGIDShift&0xff)), a.gid
		}
		if p.ib {
			lid = a.dlid
		} else {
			r.SourceUDP = a.dlid
		}
	} else {
		a := &q.attr.path
		r.MTU, r.Packets, r.Class, r.HopLimit, r.FlowLabel = 128<<q.attr.mtu, packets(w.length, q.attr.mtu), a.TrafficClass, a.HopLimit, a.FlowLabel
		if a.IsGlobal != 0 {
			r.FromGID, r.ToGID.Addr = p.gid(int(a.SGIDIndex)), a.DGID
		}
		lid = a.DLID
		if to = m.gids[a.DGID]; a.IsGlobal != 0 && to != nil {
			r.ToMAC = to.mac()
		}
	}
	if o == OutcomeCarried {
		r.PSN = (r.PSN - r.Packets) & psnMask // it has moved on
	}
	if p.ib && r.FromGID.empty() {
		r.FromGID = p.gid(0)
		if to = m.lids[lid]; to != nil {
			r.ToGID.Addr, r.ToMAC = to.gid(0).Addr, to.mac()
		}
	}
	r.ToGID.Type = r.FromGID.Type
	return r
}
