package fakekernel

import (
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
)

// raw posts a request that is all the caller's: what write puts into it.
func (u *userQP) raw(opcode uint32, id uint64, length uint32, list []sge, write func(b []byte)) {
	b := make([]byte, u.sq.stride())
	ne.PutUint64(b, id)
	ne.PutUint32(b[12:], opcode)
	ne.PutUint32(b[16:], flagSignaled)
	ne.PutUint32(b[184:], length)
	ne.PutUint32(b[188:], length)
	ne.PutUint32(b[196:], uint32(len(list)))
	putSGEs(b[208:], list)
	write(b)
	u.sq.push(b)
}

// atomic posts an operation on eight bytes of the peer.
func (e *ends) atomic(opcode uint32, id, at, compareAdd, swap uint64) {
	e.qp[0].raw(opcode, id, 8, []sge{e.span(0, 0, 8)}, func(b []byte) {
		ne.PutUint64(b[24:], at)
		ne.PutUint64(b[32:], compareAdd)
		ne.PutUint64(b[40:], swap)
		ne.PutUint32(b[48:], e.mr[1].RKey)
		ne.PutUint64(b[152:], at)
	})
	e.p[0].must(e.qp[0].ring())
}

// allow gives all rights: to regions made anew, and through the queue pairs.
func (e *ends) allow(access uint32) {
	for i, p := range e.p {
		p.must(p.destroy(abi.UVERBS_OBJECT_MR, e.mr[i].MRHandle))
		e.mr[i] = p.reg(e.pd[i], e.mem[i], localWrite|mwBind|access)
		p.must(e.qp[i].modify(abi.UverbsModifyQP{AttrMask: maskAccess, QPAccessFlags: access}))
	}
}

func TestAtomicOpcodes(t *testing.T) {
	e := connect(t)
	e.allow(remoteAny)
	at := addressOf(e.mem[1]) + 64
	for _, c := range []struct {
		opcode                        uint32
		before, compareAdd, swap, now uint64
		wcOpcode                      uint32
	}{
		{opCompareSwap, 5, 5, 1 << 60, 1 << 60, 3},
		{opCompareSwap, 6, 5, 1 << 60, 6, 3},
		{opFetchAdd, 6, 1 << 50, 9, 6 + 1<<50, 4},
	} {
		ne.PutUint64(e.mem[1][64:], c.before)
		e.atomic(c.opcode, 1, at, c.compareAdd, c.swap)
		e.expect(t, 0, wc{id: 1, opcode: c.wcOpcode, bytes: 8})
		if old, now := ne.Uint64(e.mem[0]), ne.Uint64(e.mem[1][64:]); old != c.before || now != c.now {
			t.Errorf("opcode %d: %d, now %d; want %d and %d", c.opcode, old, now, c.before, c.now)
		}
	}
	e.atomic(opFetchAdd, 2, at+4, 1, 0)
	e.expect(t, 0, wc{id: 2, status: statusRemoteReq})
	e.finish(t)
}

func TestRightsOfAtomics(t *testing.T) {
	for access, want := range map[uint32]uint32{remoteWrite | remoteRead: statusRemoteReq, remoteAtomic: statusRemoteAcc} {
		e := connect(t)
		// The regions of connect do not allow atomics.
		e.p[1].must(e.qp[1].modify(abi.UverbsModifyQP{AttrMask: maskAccess, QPAccessFlags: access}))
		e.atomic(opFetchAdd, 1, addressOf(e.mem[1]), 1, 0)
		e.expect(t, 0, wc{id: 1, status: want})
		e.finish(t)
	}
}

// bind posts a bind at end 1 and returns the new key.
func (e *ends) bind(id uint64, key uint32, off, n int, access uint32) uint32 {
	next := key&^0xff | (key+1)&0xff
	e.qp[1].raw(opBindMW, id, 0, nil, func(b []byte) {
		ne.PutUint64(b[24:], addressOf(e.mem[1])+uint64(off))
		ne.PutUint64(b[32:], uint64(n))
		ne.PutUint32(b[40:], e.mr[1].LKey)
		ne.PutUint32(b[44:], key)
		ne.PutUint32(b[48:], next)
		ne.PutUint32(b[52:], access)
	})
	e.p[1].must(e.qp[1].ring())
	return next
}

func (e *ends) invalidate(end int, opcode uint32, id uint64, key uint32) {
	e.qp[end].raw(opcode, id, 0, nil, func(b []byte) { ne.PutUint32(b[20:], key) })
	e.p[end].must(e.qp[end].ring())
}

func (p *program) allocMW(pd uint32) abi.UverbsAllocMWResp {
	p.t.Helper()
	resp := new(abi.UverbsAllocMWResp)
	p.must(p.write(abi.IB_USER_VERBS_CMD_ALLOC_MW, (&abi.UverbsAllocMW{PDHandle: pd, MWType: 2}).Bytes(), resp.Bytes()))
	return *resp
}

func (p *program) freeMW(handle uint32) error {
	return p.call(abi.UVERBS_OBJECT_MW, abi.UVERBS_METHOD_MW_DESTROY, ref(abi.UVERBS_ATTR_DESTROY_MW_HANDLE, uint64(handle)))
}

func TestWindows(t *testing.T) {
	e := connect(t)
	e.allow(remoteAny)
	m := e.p[1].allocMW(e.pd[1])
	wantErr(t, "PD of a window", e.p[1].destroy(abi.UVERBS_OBJECT_PD, e.pd[1]), syscall.EBUSY)
	key := e.bind(1, m.RKey, 128, 64, remoteWrite)
	e.expect(t, 1, wc{id: 1, opcode: 5})
	wantErr(t, "region of a window", e.p[1].destroy(abi.UVERBS_OBJECT_MR, e.mr[1].MRHandle), syscall.EINVAL)
	copy(e.mem[0], "window")
	e.qp[0].send(opWrite, flagSignaled, 2, []sge{e.span(0, 0, 6)}, addressOf(e.mem[1])+186, key)
	e.p[0].must(e.qp[0].ring())
	e.expect(t, 0, wc{id: 2, opcode: 1, bytes: 6})
	if string(e.mem[1][186:192]) != "window" {
		t.Errorf("%q was written", e.mem[1][186:192])
	}
	e.qp[1].recv(3)
	e.invalidate(0, opSendInvalidate, 4, key)
	e.expect(t, 0, wc{id: 4})
	e.expect(t, 1, wc{id: 3, opcode: 128, flags: 5, imm: string(ne.AppendUint32(nil, key))})
	key = e.bind(5, key, 0, 64, remoteWrite)
	e.expect(t, 1, wc{id: 5, opcode: 5})
	e.invalidate(1, opLocalInvalidate, 6, key)
	e.expect(t, 1, wc{id: 6, opcode: 6})
	key = e.bind(7, key, 0, 64, remoteWrite)
	e.expect(t, 1, wc{id: 7, opcode: 5})
	// One byte past its end.
	e.qp[0].send(opWrite, 0, 8, []sge{e.span(0, 0, 6)}, addressOf(e.mem[1])+59, key)
	e.p[0].must(e.qp[0].ring())
	e.expect(t, 0, wc{id: 8, status: statusRemoteAcc})
	e.p[1].must(e.p[1].freeMW(m.MWHandle))
	e.finish(t)
}

func TestWindowErrors(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(e *ends, key uint32) // the request is number 9 of end 1
		want uint32
	}{
		"another key":   {func(e *ends, key uint32) { e.bind(9, key^1, 0, 8, remoteRead) }, statusMWBind},
		"no such key":   {func(e *ends, key uint32) { e.bind(9, 77, 0, 8, remoteRead) }, statusMWBind},
		"bound already": {func(e *ends, key uint32) { e.bind(9, e.bind(8, key, 0, 8, remoteRead), 0, 8, remoteRead) }, statusMWBind},
		"nothing":       {func(e *ends, key uint32) { e.bind(9, key, 0, 0, remoteRead) }, statusMWBind},
		"too much":      {func(e *ends, key uint32) { e.bind(9, key, 0, 2*pageSize+1, remoteRead) }, statusMWBind},
		"invalidation of another key": {func(e *ends, key uint32) {
			e.invalidate(1, opLocalInvalidate, 9, e.bind(8, key, 0, 8, remoteRead)^1)
		}, statusLocalQPOp},
		"invalidation of a region": {func(e *ends, key uint32) { e.invalidate(1, opLocalInvalidate, 9, e.mr[1].RKey) }, statusLocalQPOp},
	} {
		t.Run(what, func(t *testing.T) {
			e := connect(t)
			e.allow(remoteAny)
			m := e.p[1].allocMW(e.pd[1])
			c.do(e, m.RKey)
			w := e.cq[1].poll(t)
			if w.id == 8 {
				w = e.cq[1].poll(t)
			}
			if w.id != 9 || w.status != c.want {
				t.Errorf("completion %+v, want status %d", w, c.want)
			}
			e.p[1].must(e.p[1].freeMW(m.MWHandle))
			e.finish(t)
		})
	}
}

// What crashes or stalls Linux is told as a violation.
func TestWindowViolations(t *testing.T) {
	e := connect(t)
	e.allow(remoteAny)
	m := e.p[1].allocMW(e.pd[1])
	e.invalidate(1, opLocalInvalidate, 1, m.RKey)
	e.expect(t, 1, wc{id: 1, status: statusLocalQPOp})
	if v := e.k.Violations(); len(v) != 1 || !strings.Contains(v[0], "not bound") {
		t.Errorf("violations: %q", v)
	}
	f := connect(t)
	f.allow(remoteAny)
	m = f.p[1].allocMW(f.pd[1])
	f.bind(1, m.RKey, 0, 8, remoteRead)
	f.p[1].must(f.p[1].destroy(abi.UVERBS_OBJECT_QP, f.qp[1].handle))
	if v := f.k.Violations(); len(v) != 1 || !strings.Contains(v[0], "50 seconds") {
		t.Errorf("violations: %q", v)
	}
}

// Flush and atomic write came with Linux 6.2.
func TestNewOpcodes(t *testing.T) {
	for _, newer := range []bool{false, true} {
		k := New(Device{Linux62: newer})
		p := start(t, k, "/dev/infiniband/uverbs0")
		pd, q := p.allocPD(), p.cq(16)
		u := p.qp(pd, q)
		p.must(u.toInit())
		p.must(u.toRTR(u, gids[0]))
		p.must(u.toRTS())
		mem := pages(4096)
		m, err := p.tryReg(pd, abi.UverbsRegMR{Start: addressOf(mem), HCAVA: addressOf(mem), Length: 4096, AccessFlags: localWrite | remoteAny | accessFlushGlobal})
		if !newer {
			wantErr(t, "a region to flush", err, syscall.EINVAL)
			m = p.reg(pd, mem, localWrite|remoteAny)
		} else {
			p.must(err)
		}
		p.must(u.modify(abi.UverbsModifyQP{AttrMask: maskAccess, QPAccessFlags: remoteAny | accessFlushGlobal}))
		u.raw(opAtomicWrite, 1, 8, nil, func(b []byte) {
			ne.PutUint64(b[24:], addressOf(mem)+8)
			ne.PutUint32(b[32:], m.RKey)
			ne.PutUint64(b[152:], addressOf(mem)+8)
			ne.PutUint64(b[208:], 0x0102030405060708)
		})
		u.raw(opFlush, 2, 16, nil, func(b []byte) {
			ne.PutUint64(b[24:], addressOf(mem))
			ne.PutUint32(b[32:], 16)
			ne.PutUint32(b[36:], m.RKey)
			b[40] = flushGlobal
			ne.PutUint64(b[152:], addressOf(mem))
		})
		p.must(u.ring())
		first, second := q.poll(t), q.poll(t)
		if !newer {
			if first.status != statusLocalQPOp || second.status != statusFlushed {
				t.Errorf("before Linux 6.2: %+v, %+v", first, second)
			}
			continue
		}
		if first.status != 0 || first.opcode != 9 || first.bytes != 8 || second.status != 0 || second.opcode != 8 || second.bytes != 16 {
			t.Errorf("completions %+v, %+v", first, second)
		}
		if ne.Uint64(mem[8:]) != 0x0102030405060708 {
			t.Errorf("%x was written", mem[8:16])
		}
		if v := k.Violations(); len(v) > 0 {
			t.Errorf("violations: %q", v)
		}
	}
}

// UC takes other attributes, and what its peer does not like is lost.
func TestUnreliableConnection(t *testing.T) {
	k := New(Device{})
	p := start(t, k, "/dev/infiniband/uverbs0")
	pd, q := p.allocPD(), p.cq(16)
	mem := pages(4096)
	m := p.reg(pd, mem, localWrite|remoteAny)
	p.uc = true
	ends := [2]*userQP{p.qp(pd, q), p.qp(pd, q)}
	for _, u := range ends {
		p.must(u.toInit())
	}
	for i, u := range ends {
		peer := ends[1-i]
		wantErr(t, "RTR as for RC", u.toRTR(peer, gids[0]), syscall.EINVAL)
		p.must(u.modify(abi.UverbsModifyQP{
			AttrMask: maskState | maskAV | maskPathMTU | maskDestQPN | maskRQPSN, QPState: uint8(stateRTR), PathMTU: 3,
			DestQPNum: peer.qpn, RQPSN: 5, Dest: abi.UverbsQPDest{DGID: gids[0].As16(), SGIDIndex: 1, IsGlobal: 1, PortNum: 1},
		}))
		wantErr(t, "RTS as for RC", u.toRTS(), syscall.EINVAL)
		p.must(u.modify(abi.UverbsModifyQP{AttrMask: maskState | maskSQPSN, QPState: uint8(stateRTS), SQPSN: 900}))
	}
	a, b := ends[0], ends[1]
	copy(mem, "unreliable")
	spans := []sge{{addressOf(mem), 10, m.LKey}}
	a.send(opSend, flagSignaled, 1, spans, 0, 0)                           // no receive
	a.send(opWrite, flagSignaled, 2, spans, addressOf(mem)+100, m.RKey^1)  // no such key
	a.send(opRead, flagSignaled, 3, spans, addressOf(mem)+100, m.RKey)     // not on UC
	b.recv(4, sge{addressOf(mem) + 1000, 100, m.LKey})                     // for the next
	b.send(opWriteImm, flagSignaled, 5, spans, addressOf(mem)+200, m.RKey) // nobody receives it
	p.must(b.ring())
	p.must(a.ring())
	for _, want := range []wc{
		{id: 5, opcode: 1, bytes: 10, flags: 2, imm: "IMM!", qpn: b.qpn},
		{id: 4, opcode: 128, bytes: 10, flags: 1, qpn: b.qpn},
		{id: 1, bytes: 10, qpn: a.qpn},
		{id: 2, opcode: 1, bytes: 10, qpn: a.qpn},
		{id: 3, status: statusLocalQPOp, qpn: a.qpn},
	} {
		if want.imm == "" {
			want.imm = "\x00\x00\x00\x00"
		}
		if got := q.poll(t); got != want {
			t.Errorf("completion %+v, want %+v", got, want)
		}
	}
	if string(mem[1000:1010]) != "unreliable" || mem[100] != 0 || mem[200] != 0 {
		t.Errorf("received %q, written %q and %q", mem[1000:1010], mem[100:110], mem[200:210])
	}
	if v := k.Violations(); len(v) != 1 || !strings.Contains(v[0], "unknown opcode") {
		t.Errorf("violations: %q", v)
	}
}
