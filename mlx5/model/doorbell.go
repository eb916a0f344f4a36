package model

// Ring tells the device that eight bytes were stored at an offset of a UAR page of
// the context, as a big-endian number: a doorbell of a send queue, of which a
// BlueFlame copy is one too, by its first eight bytes, or one that arms a completion
// queue. The device does its work before the call returns, and looks at that queue alone:
// another one whose doorbell was not rung stays as it is.
//
// Stores before the call are seen by the device.
func (f *File) Ring(page uint32, offset int, value uint64) {
	f.m.enter()
	defer f.m.leave()
	if u := f.uar(page); u != nil {
		f.ring(u, offset, value)
		f.recheck()
	}
}

// uar finds a page to ring at, nil if nothing rings any more.
func (f *File) uar(page uint32) *uar {
	if f.closed || f.ctx == nil || f.dev.gone {
		return nil
	}
	u := f.uars[page]
	if u == nil {
		f.m.violation("a doorbell in UAR %#x, which the context has not", page)
	}
	return u
}

func (f *File) ring(u *uar, offset int, value uint64) {
	if t := f.m.tap.Doorbell; t != nil {
		t(f.program, u.id, offset, value)
	}
	if offset == armRegister {
		f.arm(u, uint32(value>>32), uint32(value))
		return
	}
	q := f.rung(u, offset, uint32(value)>>8)
	if q == nil || !q.loadSends() {
		return
	}
	// The doorbell is the first eight bytes of the last request: from them follows
	// how far the queue goes.
	blocks := uint16(value&0x3f+3) / 4
	if end := uint16(value>>40) + blocks; end != q.sendPI && !(f.polled && int16(q.sendPI-end) > 0) {
		f.m.violation("QP %#x: a doorbell for a request that ends at block %#x, while its record says %#x: the record is written first", q.qpn, end, q.sendPI)
	}
	if q.state < stateRTS {
		f.m.violation("QP %#x: its doorbell is rung in state %d, before RTS", q.qpn, q.state)
		return
	}
	q.list()
}

// rung finds the queue pair of a doorbell.
func (f *File) rung(u *uar, offset int, qpn uint32) *qp {
	q := f.dev.qps[qpn]
	switch {
	case q == nil || q.f != f:
		f.m.violation("a doorbell for QP %#x, which the context has not", qpn)
		return nil
	case q.uar != u:
		f.m.violation("QP %#x: a doorbell in UAR %#x, and it was made with %#x: the device takes no notice", qpn, u.id, q.uar.id)
		return nil
	}
	ok := offset >= firstRegister && offset < endRegister && offset%ncRegister == 0
	if u.kind != uarNC {
		// Two registers of two halves; of a static page the one that the kernel chose. To
		// programs registers without BlueFlame have no size, so all of a page are at the first.
		half, chosen := offset&^bfHalf, int(q.register)
		if f.dev.cfg.NoBlueFlame {
			chosen = firstRegister
		}
		ok = ok && (half == firstRegister || half == firstRegister+blueFlameBytes) && (u.kind == uarBF || half == chosen)
	}
	if !ok {
		f.m.violation("QP %#x: a doorbell at offset %#x of UAR %#x, where it has no register", qpn, offset, u.id)
		return nil
	}
	return q
}

// Recheck looks at the receive doorbell records of the context's queue pairs that are
// in error, which have no register: receives that are posted there end as flushed.
// The device does so on its own, now and then. Here every doorbell and every ioctl of
// the file looks, so arming before waiting is enough; who only polls the ring says so
// with this.
func (f *File) Recheck() {
	f.m.enter()
	defer f.m.leave()
	f.recheck()
}

func (f *File) recheck() {
	if f.dev.broken == 0 {
		return
	}
	for _, q := range f.dev.pairs() {
		if q.f == f && q.state == stateErr {
			q.list()
		}
	}
}

// Poll looks for doorbells in the pages of the context and does what they ask
// for. It says whether there were any. Strict acts only on the queues whose
// doorbells it finds. Otherwise a doorbell makes it look at the records of all queues of the page
// too, because a second store to a register hides a first one that was not seen yet;
// a program that forgets a doorbell is then not found out.
func (f *File) Poll(d Doorbells, strict bool) (found bool) {
	f.m.enter()
	defer f.m.leave()
	if f.closed || f.ctx == nil || f.dev.gone {
		return false
	}
	for id, u := range f.uars {
		if v := d.Take(id, armRegister); v != 0 {
			found = true
			f.ring(u, armRegister, v)
			if !strict {
				f.rearm(u)
			}
		}
		rung := false
		for off := firstRegister; off < endRegister; off += ncRegister {
			if v := d.Take(id, off); v != 0 {
				rung = true
				f.ring(u, off, v)
			}
		}
		if rung && !strict {
			f.relook(u)
		}
		found = found || rung
	}
	f.recheck()
	return found
}

// rearm looks for arm words that changed without a doorbell that was seen.
func (f *File) rearm(u *uar) {
	for _, q := range f.dev.cqTable {
		if q.f != f || q.uar != u {
			continue
		}
		if word, err := f.mem.Load32(q.db + recordArm); err == nil && word != q.seenArm && word != neverArmed {
			q.arm(word)
		}
	}
}

// relook looks for send queues of a page that have more than was seen.
func (f *File) relook(u *uar) {
	for _, q := range f.dev.pairs() {
		if q.f == f && q.uar == u && q.state >= stateRTS && q.loadSends() {
			q.list()
		}
	}
}
