package model_test

import (
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

func (q *pair) group(command uint32, gid [16]byte) error {
	r := abi.UverbsAttachMcast{GID: gid, QPHandle: q.handle}
	return ioctl(q.c.f, 0, 0, write(command, core(r.Bytes()))...)
}

func TestMulticast(t *testing.T) {
	for name, group := range map[string][16]byte{
		"IPv6": {0: 0xff, 1: 0x0e, 12: 1, 15: 7},
		"IPv4": {10: 0xff, 11: 0xff, 12: 239, 13: 0x81, 15: 7},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUD(t, model.PortConfig{})
			other := w.b.qp(ud, w.qb.scq, w.qb.rcq, qpOptions{})
			other.readyUD()
			for _, q := range []*pair{w.qa, w.qb, other} {
				w.a.must("attach", q.group(abi.IB_USER_VERBS_CMD_ATTACH_MCAST, group))
				q.recv(sge(w.mb, 0, 100))
				q.recv(sge(w.mb, 0, 100))
			}
			// The receive of w.qa is in its own memory.
			w.qa.recvPI = 0
			w.qa.recv(sge(w.ma, 0, 100))
			w.qa.recv(sge(w.ma, 0, 100))
			mac, err := w.a.createAH(group, 2)
			w.a.must("CREATE_AH", err)
			to := av{qkey: qkey, dqpn: 0xffffff, dlid: 0xc000, mac: mac, grh: 2 << 20, gid: group}
			checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0, to.bytes(), inline("to all")), 0)
			if a, b := len(w.qa.rcq.all()), len(w.qb.rcq.all()); a != 1 || b != 2 || string(w.mb.b[40:46]) != "to all" {
				t.Errorf("%d and %d receives, %q", a, b, w.mb.b[40:46])
			}
			w.a.must("detach", other.group(abi.IB_USER_VERBS_CMD_DETACH_MCAST, group))
			wantErrno(t, "detach again", other.group(abi.IB_USER_VERBS_CMD_DETACH_MCAST, group), request.EINVAL)
			wantErrno(t, "no group", other.group(abi.IB_USER_VERBS_CMD_ATTACH_MCAST, w.a.gid(2)), request.EINVAL)
			w.qa.post(opSend, 0, 0, to.bytes())
			if b := len(w.qb.rcq.all()); b != 1 {
				t.Errorf("%d receives", b)
			}
			noViolations(t, w.m)
		})
	}
}

// A queue pair that was made so does not hear itself, and all others of its program do.
func TestMulticastNotToSelf(t *testing.T) {
	w := newUD(t, model.PortConfig{})
	group := [16]byte{0: 0xff, 1: 0x0e, 12: 1, 15: 7}
	q := w.a.qp(ud, w.qa.scq, w.qa.rcq, qpOptions{notSelf: true})
	q.readyUD()
	for _, member := range []*pair{q, w.qa} {
		w.a.must("attach", member.group(abi.IB_USER_VERBS_CMD_ATTACH_MCAST, group))
		member.recv(sge(w.ma, 0, 100))
	}
	mac, err := w.a.createAH(group, 2)
	w.a.must("CREATE_AH", err)
	to := av{qkey: qkey, dqpn: 0xffffff, dlid: 0xc000, mac: mac, grh: 2 << 20, gid: group}
	q.post(opSend, 0, 0, to.bytes(), inline("to others"))
	if got := w.qa.rcq.all(); len(got) != 1 || got[0].uidx != w.qa.uidx {
		t.Errorf("receives %+v", got)
	}
	noViolations(t, w.m)
}

// The two ports of a device reach one another.
func TestTwoPorts(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0", Ports: []model.PortConfig{{}, {}}})
	c := open(t, m, "sim0")
	a, b := c.qp(rc, c.cq(32, cqOptions{}), c.cq(64, cqOptions{}), qpOptions{}), c.qp(rc, c.cq(32, cqOptions{}), c.cq(64, cqOptions{}), qpOptions{})
	one, err := c.d.Port(1)
	c.must("port 1", err)
	two, err := c.d.Port(2)
	c.must("port 2", err)
	if _, err := c.d.Port(3); err == nil || one.MAC == two.MAC || !one.Up || one.MTU != 4096 || len(one.PKeys) != 1 {
		t.Errorf("ports %+v, %+v", one, two)
	}
	a.init(usual)
	c.must("INIT", b.modify(abi.UverbsModifyQP{AttrMask: initMask, QPState: stateInit, PortNum: 2, QPAccessFlags: allAccess}))
	a.joinTo(abi.UverbsQPDest{DGID: two.GIDs[1].Addr, SGIDIndex: 1, IsGlobal: 1, PortNum: 1}, b.qpn, usual)
	b.joinTo(abi.UverbsQPDest{DGID: one.GIDs[1].Addr, SGIDIndex: 1, IsGlobal: 1, PortNum: 2}, a.qpn, usual)
	r := b.recv()
	checkSend(t, a, opSend, a.post(opSend, signaled, 0), 0)
	checkRecv(t, b, a, 2, r, 0, 0)
	c.must("down", c.d.SetPort(2, false))
	c.wantAsync(2, 10)
	noViolations(t, m)
}
