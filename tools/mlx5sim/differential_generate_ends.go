package main

// window binds a memory window, has the peer use it and invalidates it.
func (g *generator) window() {
	q, peer := g.live[0], g.live[1]
	n := 64 + g.IntN(4096)
	off := g.IntN(dataBytes - n)
	g.drain(q.scq)
	g.drain(peer.rcq)
	if q.posted+2 > q.sends || peer.posted+2 > peer.sends {
		return
	}
	g.only(q, sendWords{kind: kindBind, flags: pick(g.Rand, 0, flagFence), imm: n, from: keyWindow, of: g.mw, off: off, arg1: regionAll, arg2: accessPeer})
	k := g.IntN(n)
	g.only(peer, sendWords{kind: pick(g.Rand, kindWrite, kindRead), pieces: []piece{{regionAll, g.IntN(dataBytes - k), k}}, from: keyWindow, of: g.mw, off: off + g.IntN(n-k)})
	if len(q.recvs) > 0 && chance(g.Rand, 50) {
		g.only(peer, sendWords{kind: kindSendInv, pieces: []piece{{regionAll, 0, min(k, q.recvs[0])}}, from: keyWindow, of: g.mw})
		q.recvs = q.recvs[1:]
		g.drain(q.rcq)
	} else {
		g.only(q, sendWords{kind: kindLocalInv, flags: pick(g.Rand, 0, flagFence), from: keyWindow, of: g.mw})
	}
	// libmlx5 fences what comes next, even if that is behind a reset.
	g.only(q, sendWords{kind: kindWrite})
}

// settle has the sends that are not signaled come to their ends: goverbs tells of them when a queue
// pair is reset, and libibverbs never does.
func (g *generator) settle(q *scriptQP) {
	g.drain(q.scq)
	for _, p := range []*scriptQP{q, g.qps[q.peer]} {
		if p.tail > 0 {
			g.only(p, sendWords{kind: kindWrite})
		}
	}
}

// fault posts a request that fails, and some behind it that are flushed, and begins anew.
func (g *generator) fault(q *scriptQP) {
	if g.settle(q); g.room(q, 4) < 4 {
		return
	}
	peer := g.receivesOf(g.qps[q.peer])
	n := 1 + g.IntN(2000)
	local := []piece{{regionAll, g.IntN(dataBytes - n), n}}
	r := sendWords{kind: pick(g.Rand, kindWrite, kindRead), pieces: local, off: g.IntN(dataBytes / 4)}
	receiving := len(peer.recvs) > 0
	switch c := g.IntN(7); {
	case c == 0:
		r.from = keyBad
	case c == 1:
		r.of = regionPrivate
	case c == 2:
		r.of = regionForeign
	case c == 3:
		r.kind, r.pieces = kindCAS, []piece{{regionAll, 64, 8}}
		r.off, r.of = 128, regionPrivate
	case c == 4:
		r.pieces[0].mr = regionForeign
		r.kind = kindWrite
	case receiving && c == 5:
		room := peer.recvs[0]
		r.kind, r.pieces = kindSend, []piece{{regionAll, 0, room + 1 + g.IntN(100)}}
		peer.recvs = peer.recvs[1:]
	case receiving:
		r.kind, r.pieces, r.from = kindSendInv, []piece{{regionAll, 0, min(n, peer.recvs[0])}}, keyBad
		peer.recvs = peer.recvs[1:]
	default: // the peer has no receive, and is asked once only
		r.kind = kindSend
	}
	r.flags = pick(g.Rand, 0, flagSignaled)
	l := []sendWords{r}
	for range g.IntN(4) {
		l = append(l, sendWords{kind: kindWrite, flags: pick(g.Rand, 0, flagSignaled), pieces: local})
	}
	l[len(l)-1].flags |= flagSignaled
	g.post(q, l)
	g.restart(q)
}

// restart takes a queue pair and its peer through ERR and RESET, and connects them again.
func (g *generator) restart(q *scriptQP) {
	g.settle(q)
	both := []*scriptQP{q, g.qps[q.peer]}
	for _, p := range both {
		g.w.line(wordState, p.n, stateErr)
	}
	for _, p := range both {
		p.tail, p.quiet = 0, 0
		if !p.shared {
			p.recvs = nil
		}
		g.drain(p.scq)
		g.drain(p.rcq)
	}
	for _, p := range both {
		g.w.line(wordState, p.n, stateReset)
		g.w.line(wordInit, p.n)
	}
	if chance(g.Rand, 50) {
		g.recv(both[1])
	}
	g.join(q)
}

// renew destroys two queue pairs, whatever is in them and not polled for, and makes new ones.
func (g *generator) renew(pair int) {
	both := g.live[2*pair:][:2]
	if pair == 0 {
		g.destroy(wordMW, g.mw)
	}
	// Completions of the second are in the same queues as those of the first, which are swept.
	for _, q := range both {
		g.destroy(wordQP, q.n)
		if chance(g.Rand, 70) {
			g.drain(q.scq)
			g.drain(q.rcq)
		}
	}
	for _, q := range both {
		g.drain(q.scq)
		g.drain(q.rcq)
	}
	if pair == 0 {
		g.w.line(wordMW, 0)
		g.mw++
	}
	for i, q := range both {
		n := &scriptQP{typ: q.typ, scq: q.scq, rcq: q.rcq, shared: q.shared, sends: q.sends, receives: q.receives, ssge: q.ssge, rsge: q.rsge, inline: q.inline}
		g.cqs[q.scq].taken -= q.sends
		g.cqs[q.rcq].taken -= q.receives
		g.qp(n)
		both[i] = n
	}
	g.pair(both[0], both[1])
}
