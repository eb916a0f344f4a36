package fakekernel

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/abi"
)

func (e *ends) expect(t *testing.T, end int, want wc) {
	t.Helper()
	want.qpn = e.qp[end].qpn
	if want.imm == "" {
		want.imm = "\x00\x00\x00\x00"
	}
	if d := cmp.Diff(want, e.cq[end].poll(t), cmp.AllowUnexported(wc{})); d != "" {
		t.Errorf("completion at end %d (-want +got):\n%s", end, d)
	}
}

func TestSendReceive(t *testing.T) {
	for _, ring := range []struct {
		name string
		f    func(*userQP) error
	}{{"write", (*userQP).ring}, {"ioctl", (*userQP).ringIoctl}} {
		t.Run(ring.name, func(t *testing.T) {
			e := connect(t)
			copy(e.mem[0], "hello, peer")
			e.qp[1].recv(70, e.span(1, 0, 5), e.span(1, 100, 50))
			e.qp[0].send(opSend, flagSignaled, 30, []sge{e.span(0, 0, 7), e.span(0, 7, 4)}, 0, 0)
			e.p[0].must(ring.f(e.qp[0]))
			e.expect(t, 1, wc{id: 70, opcode: 128, bytes: 11, flags: 1})
			e.expect(t, 0, wc{id: 30, bytes: 11})
			if got := string(e.mem[1][:5]) + string(e.mem[1][100:106]); got != "hello, peer" {
				t.Errorf("received %q", got)
			}
			e.finish(t)
		})
	}
}

// Every opcode, over sizes around the packet size, and rings that wrap.
func TestOpcodes(t *testing.T) {
	e := connect(t)
	id := uint64(1)
	for round := range 5 {
		for _, n := range []int{0, 1, 1023, 1024, 1025, 4096} {
			for _, op := range []uint32{opWrite, opWriteImm, opSend, opSendImm, opRead} {
				from, to := 0, 1
				if op == opRead {
					from, to = 1, 0
				}
				for i := range n {
					e.mem[from][i] = byte(i*7 + round + n)
				}
				clear(e.mem[to])
				e.qp[1].recv(id, e.span(1, 0, 4096))
				remote := addressOf(e.mem[1])
				e.qp[0].send(op, flagSignaled, id+1, []sge{e.span(0, 0, n)}, remote, e.mr[1].RKey)
				e.p[0].must(e.qp[0].ring())
				sent := wc{id: id + 1, bytes: uint32(n)}
				switch op {
				case opWrite, opWriteImm:
					sent.opcode = 1
				case opRead:
					sent.opcode = 2
				}
				received := wc{id: id, opcode: 128, bytes: uint32(n), flags: 1}
				if op == opWriteImm || op == opSendImm {
					sent.flags, sent.imm = 2, "IMM!"
					received.flags, received.imm = 3, "IMM!"
				}
				if op == opWriteImm {
					received.opcode = 129
				}
				e.expect(t, 0, sent)
				if op == opWrite || op == opRead {
					// The receive is still there: use it up.
					e.qp[0].send(opSend, 0, 0, nil, 0, 0)
					e.p[0].must(e.qp[0].ring())
					received = wc{id: id, opcode: 128, flags: 1}
				}
				e.expect(t, 1, received)
				if !bytes.Equal(e.mem[from][:n], e.mem[to][:n]) || e.mem[to][n] != 0 {
					t.Fatalf("opcode %d, %d bytes: the bytes differ", op, n)
				}
				id += 2
			}
		}
	}
	e.finish(t)
}

func TestInline(t *testing.T) {
	e := connect(t)
	e.qp[1].recv(1, e.span(1, 0, 64))
	b := make([]byte, e.qp[0].sq.stride())
	ne.PutUint64(b, 2)
	ne.PutUint32(b[12:], opSend)
	ne.PutUint32(b[16:], flagSignaled|flagInline)
	ne.PutUint32(b[184:], 6)
	ne.PutUint32(b[188:], 6)
	copy(b[208:], "inline")
	e.qp[0].sq.push(b)
	e.p[0].must(e.qp[0].ring())
	e.expect(t, 1, wc{id: 1, opcode: 128, bytes: 6, flags: 1})
	e.expect(t, 0, wc{id: 2, bytes: 6})
	if string(e.mem[1][:6]) != "inline" {
		t.Errorf("received %q", e.mem[1][:6])
	}
	e.finish(t)
}

func TestUnsignalledSendsFreeTheirSlots(t *testing.T) {
	e := connect(t)
	for i := range 50 {
		e.qp[0].send(opWrite, 0, uint64(i), []sge{e.span(0, 0, 8)}, addressOf(e.mem[1]), e.mr[1].RKey)
		e.p[0].must(e.qp[0].ring())
		if e.qp[0].sq.producer() != e.qp[0].sq.consumer() {
			t.Fatal("the slot is still taken")
		}
	}
	if _, ok := e.cq[0].pop(); ok {
		t.Error("an unsignalled write completed")
	}
	e.finish(t)
}

func TestRNR(t *testing.T) {
	e := connect(t)
	e.qp[0].send(opSend, flagSignaled, 1, []sge{e.span(0, 0, 4)}, 0, 0)
	e.p[0].must(e.qp[0].ring())
	e.expect(t, 0, wc{id: 1, status: statusRNRRetryExc})
	e.finish(t)
}

func TestRNRThatEnds(t *testing.T) {
	e := connect(t)
	e.p[0].must(e.qp[0].modify(abi.UverbsModifyQP{})) // nothing at all is a no-op
	e.qp[0].send(opSend, flagSignaled, 1, []sge{e.span(0, 0, 4)}, 0, 0)
	e.k.mu.Lock()
	for _, o := range e.k.devices[0].contexts[0].objects {
		if q, ok := o.(*qp); ok {
			q.attr.RNRRetry = 7 // for ever
		}
	}
	e.k.mu.Unlock()
	e.p[0].must(e.qp[0].ring())
	if _, ok := e.cq[0].pop(); ok {
		t.Fatal("a send without a receive completed")
	}
	e.qp[1].recv(2, e.span(1, 0, 4))
	e.expect(t, 0, wc{id: 1, bytes: 4})
	e.expect(t, 1, wc{id: 2, opcode: 128, bytes: 4, flags: 1})
	e.finish(t)
}

func TestPeerThatDoesNotAnswer(t *testing.T) {
	for what, away := range map[string]func(*ends) error{
		"RESET": func(e *ends) error { return e.qp[1].to(stateReset) },
		"port down": func(e *ends) error {
			e.k.SetPort("rxe1", false)
			return nil
		},
		"own port down": func(e *ends) error {
			e.k.SetPort("rxe0", false)
			return nil
		},
		"another PSN": func(e *ends) error {
			for _, o := range e.k.devices[1].contexts[0].objects {
				if q, ok := o.(*qp); ok {
					q.rqPSN--
				}
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := connect(t)
			e.p[0].must(away(e))
			e.qp[0].send(opWrite, 0, 1, []sge{e.span(0, 0, 4)}, addressOf(e.mem[1]), e.mr[1].RKey)
			e.qp[0].send(opWrite, 0, 2, []sge{e.span(0, 0, 4)}, addressOf(e.mem[1]), e.mr[1].RKey)
			e.p[0].must(e.qp[0].ring())
			e.expect(t, 0, wc{id: 1, status: statusRetryExc})
			e.expect(t, 0, wc{id: 2, status: statusFlushed})
			e.finish(t)
		})
	}
}

func TestProtection(t *testing.T) {
	type result struct{ requester, responder uint32 }
	const none = 99
	for what, c := range map[string]struct {
		do   func(e *ends)
		want result
	}{
		"bad lkey": {func(e *ends) {
			e.qp[0].send(opSend, 0, 1, []sge{{addressOf(e.mem[0]), 4, 0x12345600}}, 0, 0)
		}, result{statusLocalQPOp, none}},
		"span past the region": {func(e *ends) {
			e.qp[0].send(opSend, 0, 1, []sge{e.span(0, 2*pageSize-2, 4)}, 0, 0)
		}, result{statusLocalQPOp, none}},
		"bad rkey": {func(e *ends) {
			e.qp[0].send(opWrite, 0, 1, []sge{e.span(0, 0, 4)}, addressOf(e.mem[1]), e.mr[1].RKey^1)
		}, result{statusRemoteAcc, statusFlushed}},
		"write past the region": {func(e *ends) {
			e.qp[0].send(opWrite, 0, 1, []sge{e.span(0, 0, 4)}, addressOf(e.mem[1])+2*pageSize-3, e.mr[1].RKey)
		}, result{statusRemoteAcc, statusFlushed}},
		"read before the region": {func(e *ends) {
			e.qp[0].send(opRead, 0, 1, []sge{e.span(0, 0, 4)}, addressOf(e.mem[1])-1, e.mr[1].RKey)
		}, result{statusRemoteAcc, statusFlushed}},
		"receive too small": {func(e *ends) {
			e.qp[0].send(opSend, 0, 1, []sge{e.span(0, 0, 65)}, 0, 0)
		}, result{statusRemoteOp, statusLocalQPOp}},
	} {
		t.Run(what, func(t *testing.T) {
			e := connect(t)
			e.qp[1].recv(2, e.span(1, 0, 64))
			c.do(e)
			e.p[0].must(e.qp[0].ring())
			e.expect(t, 0, wc{id: 1, status: c.want.requester})
			if c.want.responder == none {
				if _, ok := e.cq[1].pop(); ok {
					t.Error("the peer saw something")
				}
			} else {
				e.expect(t, 1, wc{id: 2, status: c.want.responder})
			}
			// Both that failed are in ERR and flush what comes.
			e.qp[0].send(opSend, 0, 3, nil, 0, 0)
			e.p[0].must(e.qp[0].ring())
			e.expect(t, 0, wc{id: 3, status: statusFlushed})
			e.finish(t)
		})
	}
}

func TestErrorStateFlushes(t *testing.T) {
	e := connect(t)
	e.qp[0].recv(1)
	e.qp[0].recv(2)
	e.qp[0].send(opSend, 0, 3, nil, 0, 0)
	e.p[0].must(e.qp[0].to(stateErr))
	for _, id := range []uint64{3, 1, 2} {
		e.expect(t, 0, wc{id: id, status: statusFlushed})
	}
	e.qp[0].recv(4)
	e.p[0].must(e.qp[0].ring())
	if _, ok := e.cq[0].pop(); ok {
		t.Error("a receive that was posted in ERR was flushed: Linux 6.1 leaves it")
	}
	e.finish(t)
}

func TestResetKeepsIndices(t *testing.T) {
	e := connect(t)
	for range 3 {
		e.qp[0].send(opWrite, 0, 1, nil, 0, 0)
	}
	e.p[0].must(e.qp[0].ring())
	e.qp[0].recv(1)
	e.p[0].must(e.qp[0].to(stateReset))
	sq, rq := e.qp[0].sq, e.qp[0].rq
	if sq.producer() != 3 || sq.consumer() != 3 || rq.producer() != 1 || rq.consumer() != 1 {
		t.Errorf("indices after RESET: %d %d, %d %d", sq.producer(), sq.consumer(), rq.producer(), rq.consumer())
	}
	if e.qp[0].ring() != syscall.EINVAL {
		t.Error("a doorbell in RESET is no error")
	}
	e.finish(t)
}

func TestOwnPeer(t *testing.T) {
	k := New(Device{})
	p := start(t, k, "/dev/infiniband/uverbs0")
	pd, q := p.allocPD(), p.cq(16)
	u := p.qp(pd, q)
	p.must(u.toInit())
	p.must(u.toRTR(u, gids[0]))
	p.must(u.toRTS())
	u.recv(1)
	u.send(opSend, flagSignaled, 2, nil, 0, 0)
	p.must(u.ring())
	for _, id := range []uint64{1, 2} {
		if w := q.poll(t); w.id != id || w.status != 0 {
			t.Errorf("%+v", w)
		}
	}
	// It refuses itself: one completion for each request.
	m := p.reg(pd, pages(64), localWrite)
	u.send(opWrite, flagSignaled, 3, []sge{{1, 0, m.LKey}}, 0, 0)
	u.send(opRead, flagSignaled, 4, []sge{{addressOf(pages(8)), 8, m.LKey}}, 1, 77)
	p.must(u.ring())
	for _, id := range []uint64{3, 4} {
		if w := q.poll(t); w.id != id {
			t.Errorf("%+v", w)
		}
	}
	if e, ok := q.pop(); ok {
		t.Errorf("one completion too many: %x", e)
	}
}

func TestFreeRunningIndexStalls(t *testing.T) {
	e := connect(t)
	word(e.qp[0].sq.b, 128).Store(e.qp[0].sq.mask() + 1)
	e.p[0].must(e.qp[0].ring())
	word(e.qp[1].rq.b, 128).Store(1 << 30)
	word(e.qp[0].sq.b, 128).Store(0)
	e.qp[0].send(opSend, 0, 1, nil, 0, 0)
	e.p[0].must(e.qp[0].ring())
	e.expect(t, 0, wc{id: 1, status: statusRNRRetryExc})
	if v := e.k.Violations(); len(v) < 2 {
		t.Errorf("violations: %q", v)
	}
}

func TestMalformedRequests(t *testing.T) {
	for what, spoil := range map[string]func(b []byte){
		"opcode":  func(b []byte) { ne.PutUint32(b[12:], 77) },
		"state":   func(b []byte) { ne.PutUint32(b[148:], 1) },
		"resid":   func(b []byte) { ne.PutUint32(b[188:], 3) },
		"current": func(b []byte) { ne.PutUint32(b[192:], 1) },
		"spans":   func(b []byte) { ne.PutUint32(b[196:], 1<<31) },
		"length":  func(b []byte) { ne.PutUint32(b[184:], 5); ne.PutUint32(b[188:], 5) },
		"iova":    func(b []byte) { ne.PutUint64(b[152:], 0) },
		"inline": func(b []byte) {
			ne.PutUint32(b[16:], flagInline)
			ne.PutUint32(b[184:], 1<<31)
			ne.PutUint32(b[188:], 1<<31)
		},
		"read into": func(b []byte) { ne.PutUint32(b[12:], opRead); ne.PutUint32(b[16:], flagInline) },
	} {
		t.Run(what, func(t *testing.T) {
			e := connect(t)
			e.qp[0].send(opWrite, 0, 1, []sge{e.span(0, 0, 4)}, addressOf(e.mem[1]), e.mr[1].RKey)
			spoil(e.qp[0].sq.b[384:])
			e.p[0].must(e.qp[0].ring())
			e.expect(t, 0, wc{id: 1, status: statusLocalQPOp})
			if v := e.k.Violations(); len(v) != 1 {
				t.Errorf("violations: %q", v)
			}
		})
	}
}

func TestOverflow(t *testing.T) {
	e := connect(t)
	async := e.p[0].asyncEvents()
	room := int(e.cq[0].mask())
	for i := range room + 3 {
		e.qp[0].send(opWrite, flagSignaled, uint64(i), nil, 0, 0)
		e.p[0].must(e.qp[0].ring())
	}
	for range 3 {
		var b [16]byte
		n, err := async.Read(b[:])
		if err != nil || n != 16 || ne.Uint64(b[:]) != 0xc0ffee || ne.Uint32(b[8:]) != eventCQErr {
			t.Fatalf("event %x, %d, %v", b, n, err)
		}
	}
	for i := range room {
		e.expect(t, 0, wc{id: uint64(i), opcode: 1})
	}
	if _, ok := e.cq[0].pop(); ok {
		t.Error("a completion that had no room came nevertheless")
	}
	resp := make([]byte, 8)
	e.p[0].must(e.p[0].destroy(abi.UVERBS_OBJECT_QP, e.qp[0].handle))
	e.p[0].must(e.p[0].call(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY,
		ref(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, uint64(e.cq[0].handle)), out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, resp)))
	if got := fmt.Sprint(ne.Uint32(resp), ne.Uint32(resp[4:])); got != "0 3" {
		t.Errorf("events reported: %s", got)
	}
}
