package model_test

import (
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

// Packets are numbered one after the other, also by what a READ brings, and only those
// requests have some that leave the device.
func TestTraceRoute(t *testing.T) {
	for _, ib := range []bool{false, true} {
		p := usual
		p.mtu = 3 // 1024
		w := newTwo(t, rc, cqOptions{}, qpOptions{}, p)
		if ib {
			m := newModel(t, model.DeviceConfig{Name: "sim0", Ports: []model.PortConfig{{InfiniBand: true}}})
			c := open(t, m, "sim0")
			p.sgid = 0
			w = &two{m: m, a: c, b: c, qa: c.qp(rc, c.cq(32, cqOptions{}), c.cq(64, cqOptions{}), qpOptions{})}
			w.qb = c.qp(rc, c.cq(32, cqOptions{}), c.cq(64, cqOptions{}), qpOptions{})
			w.ma, w.mb = c.mr(1<<16, allAccess), c.mr(1<<16, allAccess)
			connect(w.qa, w.qb, p)
		}
		from, to := model.GID{Addr: w.a.gid(uint64(p.sgid))}, model.GID{Addr: w.b.gid(uint64(p.sgid))}
		r := trace(t, w.m)
		psn := uint32(7)
		for _, c := range []struct {
			opcode   uint8
			segments [][]byte
			packets  uint32
		}{
			{opWrite, [][]byte{raddr(w.mb, 0), sge(w.ma, 0, 2049)}, 3},
			{opNop, nil, 0},
			{opRead, [][]byte{raddr(w.mb, 0), sge(w.ma, 0, 1024)}, 1},
			{opFAA, [][]byte{raddr(w.mb, 0), atomicOperands(1, 0), sge(w.ma, 0, 8)}, 1},
			{opWrite, [][]byte{raddr(&region{addr: 4096, key: 0xdead00}, 0), sge(w.ma, 0, 1025)}, 2}, // the peer refuses
			{opWrite, [][]byte{raddr(w.mb, 0), sge(w.ma, 0, 8)}, 0},                                  // is flushed
		} {
			r.events = r.events[:0]
			w.qa.post(c.opcode, 0, 0, c.segments...)
			var told []model.Route
			for _, e := range r.events {
				if e, ok := e.(model.RequestEvent); ok {
					told = append(told, e.Route)
				}
			}
			if len(told) != 1 {
				t.Fatalf("opcode %#x: %d requests", c.opcode, len(told))
			}
			got := told[0]
			if c.packets == 0 {
				if got != (model.Route{}) {
					t.Errorf("opcode %#x: %+v, want no way", c.opcode, got)
				}
				continue
			}
			if got.Packets != c.packets || got.PSN != psn || got.MTU != 1024 || got.Type != rc || got.InfiniBand != ib || got.PKey != 0xffff {
				t.Errorf("opcode %#x: %+v, want %d packets from %d", c.opcode, got, c.packets, psn)
			}
			if got.FromGID.Addr != from.Addr || got.ToGID.Addr != to.Addr || got.FromMAC == [6]byte{} || got.ToMAC == [6]byte{} || ib == (got.FromMAC != got.ToMAC) {
				t.Errorf("opcode %#x: %+v, want from %v to %v", c.opcode, got, from, to)
			}
			psn += c.packets
		}
	}
}
