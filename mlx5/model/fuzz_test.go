package model

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// hostile is a device with a program whose memory is one window, for bytes that may be
// anything.
type hostile struct {
	m   *Model
	f   *File
	mem window
}

func newHostile(t testing.TB) *hostile {
	t.Helper()
	m, err := New(DeviceConfig{Name: "sim0", Ports: []PortConfig{{}, {PKeys: []uint16{0xffff, 0x7fff}}}})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{m: m, mem: window{pageSize, make([]byte, 64*pageSize)}}
	if h.f, err = m.devices[0].Open(h.mem, nil); err != nil {
		t.Fatal(err)
	}
	h.f.ctx = &context{f: h.f, objects: make(map[uint32]object), version: 1, dynamic: true}
	h.f.newUAR(uarNC)
	// Whatever happens can be said.
	m.Trace(func(e Event) { _ = e.String() })
	return h
}

// pair makes a queue pair whose queues are at fixed places, connected to itself.
func (h *hostile) pair(typ uint8) *qp {
	d := h.m.devices[0]
	q := &cq{f: h.f, d: d, cqn: d.nextCQN, buf: 8 * pageSize, db: 2 * pageSize, entries: 256, size: 64, uar: h.f.uars[1]}
	d.cqTable[q.cqn] = q
	p := &qp{
		f: h.f, d: d, qpn: d.nextQPN, typ: typ, pd: &pd{d: d}, sendCQ: q, recvCQ: q, db: 3 * pageSize, recvBuf: 4 * pageSize, sendBuf: 5 * pageSize,
		blocks: 64, receives: 16, shift: 6, uar: h.f.uars[1], state: stateRTS, port: d.ports[0],
	}
	p.attr = qpAttributes{dest: p.qpn, access: regionRights, mtu: 5, maxRead: 4, maxDestRead: 4, path: abi.UverbsQPDest{DGID: d.ports[0].gids[1].Addr, SGIDIndex: 1, IsGlobal: 1}}
	d.nextQPN++
	d.qps[p.qpn] = p
	d.keys[4] = &mkey{f: h.f, key: 0x400, pd: p.pd, iova: 40 * pageSize, start: 40 * pageSize, length: 16 * pageSize, access: regionRights}
	w := &mw{f: h.f, typ: mwType2}
	w.key = &mkey{f: h.f, key: 0x500, pd: p.pd, window: w}
	d.keys[5] = w.key
	return p
}

// FuzzWork lets the device work on queues of any bytes. Whatever they are: no panic, at most one
// completion for each block of the send queue and each receive, and what is not registered is
// not touched.
func FuzzWork(f *testing.F) {
	for _, file := range []string{"wqe_send.txt", "wqe_send_roce.txt"} {
		text, err := os.ReadFile("../testdata/recorded/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[:min(len(text), 512)], uint8(2), uint16(4), uint16(2))
	}
	var send [64]byte
	binary.BigEndian.PutUint32(send[:], wqeSend)
	binary.BigEndian.PutUint32(send[4:], 0x100<<8|2)
	binary.BigEndian.PutUint32(send[16:], 8)
	binary.BigEndian.PutUint32(send[20:], 0x400)
	binary.BigEndian.PutUint64(send[24:], 40*pageSize)
	for _, typ := range []uint8{2, 3, 4} {
		f.Add(send[:], typ, uint16(1), uint16(1))
	}
	send[3] = wqeUMR
	f.Add(send[:], uint8(2), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, queue []byte, typ uint8, sends, receives uint16) {
		h := newHostile(t)
		q := h.pair(typeRC + typ%3)
		copy(h.mem.b[3*pageSize:], queue) // receives begin at page 4, behind the window's base
		copy(h.mem.b[4*pageSize:], queue)
		binary.BigEndian.PutUint32(h.mem.b[2*pageSize:], uint32(receives))
		binary.BigEndian.PutUint32(h.mem.b[2*pageSize+recordSend:], uint32(sends))
		before := append([]byte(nil), h.mem.b...)
		word := uint64(q.qpn)<<8 | 1
		h.f.Ring(1, firstRegister, word)
		h.f.Recheck()
		q.stopTimer()
		if n := q.sendCQ.producer; n > uint32(min(sends, 64))+uint32(min(receives, 16)) {
			t.Errorf("%d completions of %d blocks and %d receives", n, sends, receives)
		}
		for i, b := range h.mem.b {
			page := uint64(i)/pageSize + 1
			ring, data := page >= 8 && page < 12, page >= 40 && page < 56
			if b != before[i] && !ring && !data {
				t.Fatalf("byte %#x changed", i)
			}
		}
	})
}

// FuzzIoctl runs requests of any bytes: no panic, and errors that the kernel has.
func FuzzIoctl(f *testing.F) {
	for m := range abi.Methods(uint32(abi.RDMA_DRIVER_MLX5)) {
		f.Add(seedRequest(m), uint64(m.Object))
	}
	f.Fuzz(func(t *testing.T, req []byte, seed uint64) {
		h := newHostile(t)
		q := h.pair(typeRC)
		h.f.ctx.add(q.pd)
		h.f.ctx.add(q.sendCQ)
		h.f.ctx.add(q)
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range h.mem.b[:16*pageSize] {
			if r.IntN(4) == 0 {
				h.mem.b[i] = byte(r.Uint32())
			}
		}
		for range 3 {
			if err := h.f.Ioctl(append([]byte(nil), req...)); err != nil && request.ErrnoOf(err) == request.EIO {
				t.Errorf("%v", err)
			}
		}
		q.stopTimer()
	})
}

// seedRequest is a request with all attributes of a method, whose pointers lead into memory.
func seedRequest(m *abi.Method) []byte {
	ne := binary.NativeEndian
	b := make([]byte, abi.SizeofUverbsIoctlHdr, 512)
	next := uint64(2 * pageSize)
	for _, a := range m.Attrs {
		var r [abi.SizeofUverbsAttr]byte
		ne.PutUint16(r[:], a.ID)
		n := max(a.MinLen, min(a.MaxLen, 32))
		switch a.Kind {
		case abi.Handle, abi.HandleNew, abi.HandleDestroy, abi.FD, abi.FDNew, abi.RawFD:
			n = 0
		}
		ne.PutUint16(r[2:], n)
		if n > 8 || a.Kind == abi.PtrOut {
			ne.PutUint64(r[8:], next)
			next += uint64(n)
		} else {
			r[8] = 1
		}
		b = append(b, r[:]...)
	}
	ne.PutUint16(b, uint16(len(b)))
	ne.PutUint16(b[2:], m.Object)
	ne.PutUint16(b[4:], m.ID)
	ne.PutUint16(b[6:], uint16(len(m.Attrs)))
	ne.PutUint32(b[16:], uint32(abi.RDMA_DRIVER_MLX5))
	return b
}
