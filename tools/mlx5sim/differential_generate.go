package main

import (
	"math/rand/v2"
	"slices"
)

// generator makes a script from a seed, and follows what becomes of it as far as it must: a
// program may not post more than there is room for, and what goes wrong must do so at
// once, for no two programs wait equally long.
type generator struct {
	*rand.Rand
	w        words
	requests int // posted
	want     int
	gid      int

	cqs  []*scriptCQ
	qps  []*scriptQP
	live []*scriptQP // those that are used: pairs of RC, of RC with the SRQ, of UC and of UD
	srq  *scriptQP   // its receives
	ahs  int
	mw   int

	posted func(*sendWords) // is told of send requests, if not nil
}

// scriptCQ is a CQ of a script.
type scriptCQ struct {
	depth  int
	taken  int // by queue pairs
	events bool
	arm    int  // 1: for solicited completions only
	armed  bool // and no solicited one has come since
}

// scriptQP is a queue pair of a script.
type scriptQP struct {
	n, typ, scq, rcq, peer              int
	sends, receives, ssge, rsge, inline int
	shared                              bool // its receives come from the SRQ

	posted, tail int // sends that may be outstanding, and those behind the last signaled one
	quiet        int // unsignaled ones in a row
	recvs        []int
	recvPosted   int // receives that may be outstanding
}

// generate makes the script of a seed: want requests, on InfiniBand or RoCE. The other numbers
// are how many it has and how many steps.
func generate(seed uint64, want int, infiniBand bool) (text []byte, requests, steps int) {
	g := newGenerator(seed, want, infiniBand)
	g.all()
	return g.w.text, g.requests, g.w.steps
}

func newGenerator(seed uint64, want int, infiniBand bool) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x6d6c78357369)), want: want, gid: 2}
	if infiniBand {
		g.gid = 0
	}
	return g
}

// all makes the whole script.
func (g *generator) all() {
	g.setUp()
	for g.requests < g.want {
		g.step()
	}
	g.tearDown()
}

func (g *generator) setUp() {
	w := &g.w
	w.begin(g.gid)
	w.line(wordPD)
	w.line(wordPD)
	w.line(wordMR, 0, 0, dataBytes, accessAll|accessBind)
	w.line(wordMR, 0, 0, dataBytes/2, 1)
	w.line(wordMR, 1, 0, dataBytes, accessAll)
	w.line(wordMW, 0)
	g.cq(64, false)
	// The queue pair that ends steps, and does nothing else.
	g.qp(&scriptQP{typ: transportRC, sends: 1, receives: 1, ssge: 1, rsge: 1})
	depth := func() int { return pick(g.Rand, 8, 16, 33, 64, 100) }
	sge := func() int { return 1 + g.IntN(6) }
	pair := func(typ, scq, rcq int, shared bool) {
		for range 2 {
			g.qp(&scriptQP{
				typ: typ, scq: scq, rcq: rcq, shared: shared, sends: depth(), receives: depth(), ssge: sge(), rsge: sge(),
				inline: pick(g.Rand, 0, 16, 60, 100, 200),
			})
		}
		b := len(g.qps) - 1
		g.live = append(g.live, g.qps[b-1:]...)
		g.pair(g.qps[b-1], g.qps[b])
	}
	for range 6 {
		g.cq(512, chance(g.Rand, 60))
	}
	g.srq = &scriptQP{receives: depth(), rsge: sge()}
	w.line(wordSRQ, 0, g.srq.receives, g.srq.rsge)
	pair(transportRC, 1, 2, false)
	pair(transportRC, 3, 3, true)
	g.cqs[3].taken += g.srq.receives
	pair(transportUC, 4, 5, false)
	pair(transportUD, 6, 6, false)
	g.ah()
}

func (g *generator) cq(depth int, events bool) {
	g.cqs = append(g.cqs, &scriptCQ{depth: depth, events: events, arm: g.IntN(2)})
	g.w.line(wordCQ, depth, truth(events))
}

// pair makes two queue pairs each other's peers.
func (g *generator) pair(a, b *scriptQP) {
	a.peer, b.peer = b.n, a.n
	if a.typ != transportUD {
		g.join(b)
	}
}

func (g *generator) qp(q *scriptQP) {
	q.n = len(g.qps)
	g.qps = append(g.qps, q)
	srq := 0
	if q.shared {
		srq, q.receives, q.rsge = 1, 0, 0
	}
	key := 0
	if q.typ == transportUD {
		key = qkey
	}
	g.w.line(wordQP, q.typ, 0, q.scq, q.rcq, srq, q.sends, q.receives, q.ssge, q.rsge, q.inline, accessPeer, key)
	g.cqs[q.scq].taken += q.sends
	g.cqs[q.rcq].taken += q.receives
}

func (g *generator) ah() {
	g.ahs++
	g.w.line(wordAH, 0, g.IntN(8), g.IntN(256), 1+g.IntN(1<<20-1))
}

// join connects a queue pair and its peer.
func (g *generator) join(q *scriptQP) {
	a, b, mtu := g.IntN(1<<24), g.IntN(1<<24), 1+g.IntN(5)
	g.w.line(wordConnect, q.n, q.peer, a, b, mtu)
	g.w.line(wordConnect, q.peer, q.n, b, a, mtu)
}

// step does one of the things that programs do.
func (g *generator) step() {
	q := pick(g.Rand, g.live...)
	switch c := g.IntN(1000); {
	case c < 280:
		g.recv(q)
	case c < 700:
		g.send(q)
	case c < 800:
		g.w.line(wordPoll, g.IntN(len(g.cqs)), 1+g.IntN(20))
	case c < 850:
		g.drain(g.IntN(len(g.cqs)))
	case c < 920:
		g.event()
	case c < 940:
		i := 1 + g.IntN(len(g.cqs)-1)
		g.cqs[i].depth = g.cqs[i].taken + g.IntN(1024)
		g.w.line(wordResize, i, g.cqs[i].depth)
	case c < 960:
		g.window()
	case c < 976:
		g.fault(g.live[g.IntN(4)])
	case c < 978:
		g.restart(g.live[g.IntN(6)])
	case c < 980:
		g.renew(g.IntN(4))
	case c < 990:
		g.ah()
		if g.ahs > 3 && chance(g.Rand, 50) {
			g.w.line(wordLimit, 0, g.IntN(min(g.srq.receives, 4)))
		}
	case c < 992: // no event waits for more than one completion, which would take a time
		g.w.line(wordModerate, g.IntN(len(g.cqs)), g.IntN(2))
	case c < 994:
		q = g.live[6]
		g.w.line(wordGroup, q.n, 1)
		g.w.line(wordGroup, q.n, 0)
	case c < 996:
		g.w.line(wordRereg, regionPrivate, 1|pick(g.Rand, 0, accessBind))
	default:
		g.w.line(wordDigest)
	}
}

// drain polls until a CQ is empty, which makes room.
func (g *generator) drain(cq int) {
	g.w.line(wordPoll, cq, mostPolled)
	for _, q := range g.live {
		if q.scq == cq {
			q.posted = q.tail
		}
		if q.rcq == cq && !q.shared {
			q.recvPosted = len(q.recvs)
		}
		if q.rcq == cq && q.shared {
			g.srq.recvPosted = len(g.srq.recvs)
		}
	}
}

// event takes the event that may be there, and arms. libmlx5 takes an arm for new once the program
// took the event of the one before, goverbs as soon as it knows that there is one; what was
// asked for while an arm stands is for libmlx5 the last thing, for goverbs the most; and where
// goverbs cannot know whether the device has answered it arms with every number that may be
// next. So programs that are to be alike take events first, ask a queue for the same all the
// time, and arm when it is empty, or when what they asked for has come.
func (g *generator) event() {
	i := g.IntN(len(g.cqs))
	if !g.cqs[i].events {
		return
	}
	q := g.cqs[i]
	g.w.line(wordEvent, i)
	switch {
	case chance(g.Rand, 30):
		return
	case q.arm == 0: // of an empty queue
		g.drain(i)
	case q.armed:
		return
	}
	q.armed = true
	g.w.line(wordArm, i, q.arm)
}

// receivesOf is whose receives a queue pair takes.
func (g *generator) receivesOf(q *scriptQP) *scriptQP {
	if q.shared {
		return g.srq
	}
	return q
}

func (g *generator) recv(q *scriptQP) {
	n := 1 + g.IntN(mostPosted)
	of := g.receivesOf(q)
	if of.recvPosted+n > of.receives {
		g.drain(q.rcq)
	}
	n = min(n, of.receives-of.recvPosted)
	if n == 0 {
		return
	}
	if q.shared {
		g.w.put(wordSharedRecv, 0, n)
	} else {
		g.w.put(wordRecv, q.n, n)
	}
	for range n {
		room := 16384 + g.IntN(2048)
		if chance(g.Rand, 25) {
			room = 40 + g.IntN(200)
		}
		l := pieces(g.Rand, regionAll, room, of.rsge)
		if q.shared {
			// libmlx5 posts pieces of no bytes to an SRQ as they are, and a device takes 0 for 2^31.
			l = slices.DeleteFunc(l, func(p piece) bool { return p.n == 0 })
		}
		g.w.list(l)
		of.recvs = append(of.recvs, room)
	}
	g.w.end()
	of.recvPosted += n
	g.requests += n
}

// room makes room for n sends.
func (g *generator) room(q *scriptQP, n int) int {
	if q.posted+n > q.sends {
		g.drain(q.scq)
	}
	return min(n, q.sends-q.posted)
}

// post writes requests, and notes them.
func (g *generator) post(q *scriptQP, l []sendWords) {
	g.w.put(wordSend, q.n, len(l))
	for i := range l {
		g.w.request(&l[i])
		if g.posted != nil {
			g.posted(&l[i])
		}
		q.posted++
		q.tail, q.quiet = q.tail+1, q.quiet+1
		if l[i].flags&flagSignaled != 0 {
			q.tail, q.quiet = 0, 0
		}
	}
	g.w.end()
	g.requests += len(l)
}

// signal says whether the next request is signaled. goverbs asks for a completion now and then
// even where the program does not, so no more than that are quiet in a row.
func (g *generator) signal(q *scriptQP, quiet int, last bool) int {
	if last && chance(g.Rand, 80) || q.quiet+quiet+2 >= (q.sends+1)/2 || q.posted+quiet+2 > q.sends || chance(g.Rand, 50) {
		return flagSignaled
	}
	return 0
}

func (g *generator) send(q *scriptQP) {
	n := g.room(q, 1+g.IntN(mostPosted))
	if n <= 0 {
		return
	}
	var l []sendWords
	quiet := 0
	for i := range n {
		r, ok := g.one(q)
		if !ok {
			continue
		}
		f := g.signal(q, quiet+i, i == n-1)
		if f == 0 {
			quiet++
		}
		r.flags |= f
		l = append(l, r)
	}
	if len(l) > 0 {
		g.post(q, l)
	}
}

// one makes one request that succeeds. It is false if there is no receive for it.
func (g *generator) one(q *scriptQP) (r sendWords, ok bool) {
	if q.typ == transportUD {
		return g.datagram(q), true
	}
	kinds := []int{kindSend, kindSend, kindSendImm, kindWrite, kindWriteImm}
	if q.typ == transportRC {
		kinds = append(kinds, kindRead, kindCAS, kindFAA)
	}
	r.kind = pick(g.Rand, kinds...)
	n := size(g.Rand, dataBytes)
	peer := g.receivesOf(g.qps[q.peer])
	var solicited *scriptCQ
	if takesReceive(r.kind) {
		switch {
		case len(peer.recvs) > 0:
			solicited = g.cqs[g.qps[q.peer].rcq]
			if r.kind != kindWriteImm {
				n = min(n, peer.recvs[0])
			}
			peer.recvs = peer.recvs[1:]
		case q.typ == transportRC:
			return r, false
		}
	}
	g.fill(q, &r, n)
	if solicited != nil && r.flags&flagSolicited != 0 {
		solicited.armed = false // an event
	}
	return r, true
}

func takesReceive(kind int) bool {
	return kind == kindSend || kind == kindSendImm || kind == kindWriteImm || kind == kindSendInv
}

// fill gives a request n bytes of data, a place at the peer and flags.
func (g *generator) fill(q *scriptQP, r *sendWords, n int) {
	switch r.kind {
	case kindCAS, kindFAA:
		n = 8
		r.pieces = []piece{{regionAll, g.IntN(dataBytes/8) * 8, 8}}
		r.off = g.IntN(dataBytes/8) * 8
		r.arg1, r.arg2 = g.Int(), g.Int()
	case kindSend, kindWrite:
		if q.inline > 0 && n <= q.inline && chance(g.Rand, 60) {
			r.flags |= flagInline
			r.pieces = []piece{{regionAll, g.IntN(dataBytes - n), n}}
			break
		}
		r.pieces = pieces(g.Rand, pick(g.Rand, regionAll, regionAll, regionPrivate), n, q.ssge)
		for i, p := range r.pieces {
			if p.mr == regionPrivate {
				r.pieces[i].off /= 2
				r.pieces[i].off = min(p.off, dataBytes/2-p.n)
			}
		}
	case kindRead:
		r.pieces = pieces(g.Rand, regionAll, n, q.ssge)
	default: // what carries an immediate has one piece
		r.pieces = []piece{{regionAll, g.IntN(dataBytes - n), n}}
	}
	if r.kind != kindCAS && r.kind != kindFAA {
		r.off = g.IntN(dataBytes - n)
	}
	r.imm = int(g.Uint32())
	r.flags |= pick(g.Rand, 0, 0, 0, flagFence)
	if takesReceive(r.kind) {
		r.flags |= pick(g.Rand, 0, flagSolicited)
	}
}

// datagram makes a datagram, which gets lost if its Q_Key is wrong or nobody receives.
func (g *generator) datagram(q *scriptQP) (r sendWords) {
	to := g.qps[pick(g.Rand, q.n, q.peer)]
	r.kind = pick(g.Rand, kindSend, kindSend, kindSendImm)
	n := size(g.Rand, 4096)
	r.of, r.arg1, r.arg2 = g.IntN(g.ahs), to.n, qkey
	if chance(g.Rand, 10) {
		r.arg2++
	} else if len(to.recvs) > 0 {
		n = min(n, to.recvs[0]-40)
		to.recvs = to.recvs[1:]
	}
	of, arg1, arg2 := r.of, r.arg1, r.arg2
	g.fill(q, &r, n)
	r.of, r.arg1, r.arg2 = of, arg1, arg2
	return r
}

// only posts one request alone, signaled, and polls for all.
func (g *generator) only(q *scriptQP, r sendWords) {
	if g.room(q, 1) < 1 {
		return
	}
	r.flags |= flagSignaled
	g.post(q, []sendWords{r})
	g.drain(q.scq)
}

// tearDown makes sure that all is equal at the end, and destroys everything.
func (g *generator) tearDown() {
	for i := range g.cqs {
		g.drain(i)
	}
	g.w.line(wordDigest)
	for i := range g.ahs {
		g.destroy(wordAH, i)
	}
	g.destroy(wordMW, g.mw)
	for _, q := range g.live {
		g.destroy(wordQP, q.n)
	}
	g.destroy(wordSRQ, 0)
	for i := range regions {
		g.destroy(wordMR, i)
	}
	// The queue pair by which steps are told goes last.
	g.destroy(wordQP, 0)
	for i := range g.cqs {
		g.destroy(wordCQ, i)
	}
	g.destroy(wordPD, 1)
	g.destroy(wordPD, 0)
}

func (g *generator) destroy(kind byte, n int) {
	g.w.text = append(g.w.text, wordDestroy, kind)
	g.w.add(n)
	g.w.end()
}

// truth is 1 if it is.
func truth(is bool) int {
	if is {
		return 1
	}
	return 0
}
