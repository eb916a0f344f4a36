package model_test

import (
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

// A request reaches only the queue pair that is connected back: everything else is silence.
func TestWrongConnections(t *testing.T) {
	for name, edit := range map[string]func(w *two, rtr, rts *abi.UverbsModifyQP){
		"packet number":  func(w *two, rtr, rts *abi.UverbsModifyQP) { rts.SQPSN++ },
		"QPN":            func(w *two, rtr, rts *abi.UverbsModifyQP) { rtr.DestQPNum = w.qa.qpn },
		"unknown QPN":    func(w *two, rtr, rts *abi.UverbsModifyQP) { rtr.DestQPNum = 5 },
		"source address": func(w *two, rtr, rts *abi.UverbsModifyQP) { rtr.Dest.SGIDIndex = 1 },
		"unknown GID":    func(w *two, rtr, rts *abi.UverbsModifyQP) { rtr.Dest.DGID[3] = 9 },
		"own GID":        func(w *two, rtr, rts *abi.UverbsModifyQP) { rtr.Dest.DGID = w.a.gid(2) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
				// The peer stays; the requester is connected anew, wrongly.
				w.qa.to(stateReset)
				w.qa.init(usual)
				rtr := abi.UverbsModifyQP{
					AttrMask: rtrMask, QPState: stateRTR, PathMTU: 5, DestQPNum: w.qb.qpn, RQPSN: 7, MaxDestRdAtomic: 4,
					Dest: abi.UverbsQPDest{DGID: w.b.gid(2), SGIDIndex: 2, IsGlobal: 1, PortNum: 1},
				}
				rts := abi.UverbsModifyQP{AttrMask: rtsMask, QPState: stateRTS, Timeout: 14, RetryCnt: 1, SQPSN: 7}
				edit(w, &rtr, &rts)
				w.a.must("RTR", w.qa.modify(rtr))
				w.a.must("RTS", w.qa.modify(rts))
				w.qb.recv()
				w.qa.post(opSend, 0, 0)
				if c := waitFor(w.qa.scq); c.syndrome != 0x15 || c.vendor != 0x81 {
					t.Errorf("completion %+v", c)
				}
				w.qb.rcq.none()
			})
		})
	}
}

// A stranger that knows the number of a queue pair does not get in.
func TestStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
		q := w.a.qp(rc, w.qa.scq, w.qa.rcq, qpOptions{})
		q.init(usual)
		q.join(w.qb, usual)
		w.qb.recv()
		q.post(opSend, 0, 0)
		if c := waitFor(w.qa.scq); c.syndrome != 0x15 || c.qpn != q.qpn {
			t.Errorf("completion %+v", c)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "sim1"}, model.DeviceConfig{Name: "sim2"})
		a, b, c := open(t, m, "sim0"), open(t, m, "sim1"), open(t, m, "sim2")
		mk := func(x *client) *pair {
			return x.qp(rc, x.cq(32, cqOptions{channel: true}), x.cq(64, cqOptions{}), qpOptions{})
		}
		qa, qb, qc := mk(a), mk(b), mk(c)
		connect(qa, qb, usual)
		qc.init(usual)
		qc.join(qb, usual)
		qb.recv()
		qc.post(opSend, 0, 0)
		if e := waitFor(qc.scq); e.syndrome != 0x15 {
			t.Errorf("completion %+v", e)
		}
		checkSend(t, qa, opSend, qa.post(opSend, signaled, 0), 0)
	})
}

// Packets that are larger than the responder's path takes are an invalid request.
func TestMTUMismatch(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	q1, q2 := w.a.qp(rc, w.qa.scq, w.qa.rcq, qpOptions{}), w.b.qp(rc, w.qb.scq, w.qb.rcq, qpOptions{})
	small := usual
	small.mtu = 3
	q1.init(usual)
	q2.init(small)
	q1.join(q2, usual)
	q2.join(q1, small)
	checkSend(t, q1, opWrite, q1.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 1024)), 0)
	checkError(t, w.qa.scq, 13, q1.qpn, q1.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 1025)), 0x12, 0x8a)
	w.b.wantAsync(q2.user, 2)
}

// RESET forgets the attributes.
func TestResetForgets(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	w.qa.to(stateReset)
	if r := w.qa.query(); r.RQPSN != 0 || r.SQPSN != 0 || r.DestQPNum != 0 || r.PathMTU != 0 {
		t.Errorf("attributes %+v", r)
	}
}

// A doorbell in a page that is not the queue pair's does nothing.
func TestForeignPage(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	id, _ := w.a.uar(1)
	_, first := w.qa.put(opNop, signaled, 0)
	w.a.f.Ring(id, 0x800, first)
	w.qa.scq.none()
	w.qa.ring(first)
	w.qa.scq.one()
}

// An address that one device gives up another may take, and nobody may take twice.
func TestGIDMoves(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	g := model.GID{Addr: w.a.gid(2), Type: model.GIDRoCE2}
	if w.b.d.SetGID(1, 5, g) == nil {
		t.Error("two devices have one address")
	}
	w.a.must("give up", w.a.d.SetGID(1, 2, model.GID{}))
	w.a.must("take", w.b.d.SetGID(1, 5, g))
	w.a.wantAsync(1, 18)
	w.b.wantAsync(1, 18)
	mac, err := w.a.createAH(g.Addr, 1)
	if p, _ := w.b.d.Port(1); err != nil || mac != p.MAC {
		t.Errorf("MAC %x: %v", mac, err)
	}
	for name, err := range map[string]error{
		"port":  w.a.d.SetGID(2, 0, g),
		"index": w.a.d.SetGID(1, 256, g),
		"type":  w.a.d.SetGID(1, 0, model.GID{Addr: [16]byte{1}}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
