package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// twin carries out a script of verbs with goverbs, as testdata/differential/differential.c does
// with libibverbs: what one of them does, the other does too.
type twin struct {
	in  *bufio.Reader
	out *bufio.Writer

	dev  *uverbs.Device
	pds  []*uverbs.PD
	mrs  []*uverbs.MR
	offs []int // of the regions
	mws  []*uverbs.MW
	cqs  []*uverbs.CQ
	srqs []*uverbs.SRQ
	qps  []*uverbs.QP
	init []initial
	ahs  []*uverbs.AH

	base  uint64
	data  []byte
	gid   int
	self  uverbs.Endpoint // of the port
	id    uint64
	step  int
	wcs   [mostPolled]uverbs.WC
	spans []uverbs.Span
	err   error // of the script
}

// scriptGroup is the multicast group of scripts.
var scriptGroup = uverbs.GID{0: 0xff, 1: 0x0e, 15: 1}

// initial is what a queue pair has in INIT.
type initial struct {
	access uverbs.Access
	qkey   uint32
}

// runTwin carries out the script in, and writes what the program sees to out.
func runTwin(in io.Reader, out io.Writer) error {
	t := &twin{in: bufio.NewReader(in), out: bufio.NewWriter(out)}
	err := t.run()
	if err != nil {
		err = fmt.Errorf("step %d: %w", t.step, err)
	}
	return errors.Join(err, t.out.Flush())
}

func (t *twin) run() error {
	for {
		c, err := t.in.ReadByte()
		switch {
		case err == io.EOF:
			return t.dev.Close()
		case err != nil:
			return err
		case c == '\n' || c == ' ':
			continue
		}
		if err := t.word(c); err != nil {
			return err
		}
		if t.err != nil {
			return t.err
		}
		if c == wordSend || c == wordArm {
			if _, err := t.qps[0].QueryState(); err != nil {
				return err
			}
			t.step++
		}
	}
}

// num reads the next number of the script.
func (t *twin) num() int { return int(t.num64()) }

func (t *twin) num64() uint64 {
	c, err := t.in.ReadByte()
	for err == nil && c == ' ' {
		c, err = t.in.ReadByte()
	}
	var v uint64
	digits := 0
	for ; err == nil && c >= '0' && c <= '9'; c, err = t.in.ReadByte() {
		v = v*10 + uint64(c-'0')
		digits++
	}
	if err == nil {
		err = t.in.UnreadByte()
	}
	switch {
	case t.err != nil:
	case digits == 0:
		t.err = errors.Join(fmt.Errorf("the script has %q where a number is due", c), err)
	case err != nil && err != io.EOF:
		t.err = err // else the rest of the number would be taken for another
	}
	return v
}

func (t *twin) word(c byte) (err error) {
	switch c {
	case wordBegin:
		return t.begin()
	case wordPD:
		var pd *uverbs.PD
		pd, err = t.dev.NewPD()
		t.pds = append(t.pds, pd)
	case wordMR:
		pd, off, n, access := t.pds[t.num()], t.num(), t.num(), uverbs.Access(t.num())
		var mr *uverbs.MR
		mr, err = pd.Register(t.data[off:off+n:off+n], access)
		t.mrs, t.offs = append(t.mrs, mr), append(t.offs, off)
	case wordMW:
		var mw *uverbs.MW
		mw, err = t.pds[t.num()].NewMW()
		t.mws = append(t.mws, mw)
	case wordCQ:
		depth, events := t.num(), t.num()
		var q *uverbs.CQ
		q, err = t.dev.NewCQ(depth, &uverbs.CQOptions{Events: events != 0})
		t.cqs = append(t.cqs, q)
	case wordSRQ:
		pd := t.pds[t.num()]
		o := uverbs.SRQOptions{Depth: t.num(), SGE: t.num()}
		var s *uverbs.SRQ
		s, err = pd.NewSRQ(&o)
		t.srqs = append(t.srqs, s)
	case wordQP:
		return t.makeQP()
	case wordAH:
		pd := t.pds[t.num()]
		o := uverbs.AHOptions{Source: uverbs.FromGID(1, t.gid), ServiceLevel: uint8(t.num()), TrafficClass: uint8(t.num()), FlowLabel: uint32(t.num())}
		var ah *uverbs.AH
		ah, err = pd.NewAH(t.self, &o)
		t.ahs = append(t.ahs, ah)
	case wordConnect:
		return t.connect()
	case wordInit:
		return t.initQP(t.num())
	case wordState:
		qp := t.qps[t.num()]
		return qp.Modify(uverbs.QPState(t.num()))
	case wordSend:
		return t.send()
	case wordRecv:
		return t.recv(t.qps[t.num()].RecvQueue())
	case wordSharedRecv:
		return t.recv(t.srqs[t.num()].RecvQueue())
	case wordPoll:
		n := t.num()
		return t.poll(n, t.num())
	case wordArm:
		q := t.cqs[t.num()]
		return q.Arm(t.num() != 0)
	case wordEvent:
		n := t.num()
		var has bool
		has, err = t.cqs[n].TakeEvent()
		fmt.Fprintf(t.out, "%d cq %d has %s event\n", t.step, n, map[bool]string{true: "an", false: "no"}[has])
	case wordResize:
		n := t.num()
		if err := t.cqs[n].ResizeOwned(t.num()); err != nil {
			return err
		}
		return t.poll(n, 1)
	case wordLimit:
		s := t.srqs[t.num()]
		return s.SetLimit(t.num())
	case wordModerate:
		q := t.cqs[t.num()]
		return q.Moderate(t.num(), 0)
	case wordGroup:
		qp := t.qps[t.num()]
		if t.num() != 0 {
			return qp.AttachMulticast(scriptGroup)
		}
		return qp.DetachMulticast(scriptGroup)
	case wordRereg:
		mr := t.mrs[t.num()]
		return mr.Reregister(uverbs.ChangePD(mr.PD()), uverbs.ChangeAccess(uverbs.Access(t.num())))
	case wordDestroy:
		return t.destroy()
	case wordDigest:
		h := uint64(14695981039346656037)
		for _, b := range t.data {
			h = (h ^ uint64(b)) * 1099511628211
		}
		fmt.Fprintf(t.out, "%d data %016x\n", t.step, h)
	default:
		return fmt.Errorf("the script has the word %c", c)
	}
	return err
}

func (t *twin) begin() (err error) {
	t.base = t.num64()
	n := t.num()
	t.gid = t.num()
	if t.data, err = mapAt(t.base, n); err != nil {
		return err
	}
	for i := range t.data {
		t.data[i] = byte(i*131 + i>>8)
	}
	all, err := uverbs.Devices()
	if err != nil {
		return err
	}
	if t.dev, err = uverbs.Open(all[0].Name, nil); err != nil {
		return err
	}
	gid, err := t.dev.GID(1, t.gid)
	if err != nil {
		return err
	}
	port, err := t.dev.PortAttr(1)
	t.self = uverbs.Endpoint{GID: gid.GID, LID: port.LID}
	return err
}

func (t *twin) makeQP() error {
	typ := uverbs.QPType(t.num())
	pd := t.pds[t.num()]
	o := uverbs.QPOptions{SendCQ: t.cqs[t.num()], RecvCQ: t.cqs[t.num()], Source: uverbs.FromGID(1, t.gid)}
	if srq := t.num(); srq > 0 {
		o.SRQ = t.srqs[srq-1]
	}
	o.SendDepth, o.RecvDepth, o.SendSGE, o.RecvSGE, o.Inline = t.num(), t.num(), t.num(), t.num(), t.num()
	o.PeerAccess, o.QKey = uverbs.Access(t.num()), uint32(t.num())
	t.init = append(t.init, initial{o.PeerAccess, o.QKey})
	if o.PeerAccess == 0 {
		o.PeerAccess = uverbs.NoAccess
	}
	qp, err := pd.NewQP(typ, &o)
	t.qps = append(t.qps, qp)
	return err
}

// initQP takes a queue pair from RESET to where NewQP left it.
func (t *twin) initQP(n int) error {
	qp := t.qps[n]
	if qp.Type() != uverbs.UD {
		return qp.Modify(uverbs.StateInit, uverbs.AttrAccess(t.init[n].access), uverbs.AttrPKeyIndex(0), uverbs.AttrPort(1))
	}
	return errors.Join(
		qp.Modify(uverbs.StateInit, uverbs.AttrQKey(t.init[n].qkey), uverbs.AttrPKeyIndex(0), uverbs.AttrPort(1)),
		qp.Modify(uverbs.StateRTR),
		qp.Modify(uverbs.StateRTS, uverbs.AttrSendPSN(0)),
	)
}

func (t *twin) connect() error {
	qp, peer := t.qps[t.num()], t.qps[t.num()]
	psn, peerPSN, mtu := t.num(), t.num(), t.num()
	if err := qp.SetPSN(uint32(psn)); err != nil {
		return err
	}
	to := t.self
	to.QPN, to.PSN = peer.QPN(), uint32(peerPSN)
	return qp.Connect(context.Background(), to, &uverbs.ConnectOptions{MTU: 128 << mtu, RNRRetries: uverbs.NoRetry, ReadDepth: 16})
}

// pieces reads a list of data.
func (t *twin) pieces() []uverbs.Span {
	t.spans = t.spans[:0]
	for range t.num() {
		mr := t.num()
		off, n := t.num(), t.num()
		t.spans = append(t.spans, t.mrs[mr].Span(off-t.offs[mr], n))
	}
	return t.spans
}

func (t *twin) recv(q *uverbs.RecvQueue) error {
	for range t.num() {
		q.RecvV(t.id, t.pieces())
		t.id++
	}
	return q.Flush()
}

func (t *twin) send() error {
	qp := t.qps[t.num()]
	for range t.num() {
		if err := t.stage(qp); err != nil {
			return err
		}
		t.id++
	}
	return qp.SendQueue().Flush()
}

// stage reads a request and stages it.
func (t *twin) stage(qp *uverbs.QP) error {
	q, id := qp.SendQueue(), t.id
	kind, bits := t.num(), t.num()
	var inline []byte
	var flags uverbs.SendFlags
	if bits&flagSignaled == 0 {
		flags |= cq.Unsignaled
	}
	if bits&flagFence != 0 {
		flags |= cq.Fence
	}
	if bits&flagSolicited != 0 {
		flags |= cq.Solicited
	}
	var spans []uverbs.Span
	if bits&flagInline != 0 {
		inline = t.inline()
	} else {
		spans = t.pieces()
	}
	one := uverbs.Span{}
	if len(spans) == 1 {
		one = spans[0]
	}
	imm, from, of, off, arg1, arg2 := t.num(), t.num(), t.num(), t.num64(), t.num64(), t.num64()
	if qp.Type() == uverbs.UD {
		to := uverbs.Dest{AH: t.ahs[of], QPN: t.qps[arg1].QPN(), QKey: uint32(arg2)}
		switch {
		case kind == kindSendImm:
			q.SendToImm(id, uint32(imm), to, one, flags)
		case inline != nil:
			q.SendToInline(id, to, inline, flags)
		default:
			q.SendToV(id, to, spans, flags)
		}
		return nil
	}
	all := uverbs.Remote{Addr: t.base, Length: uint64(len(t.data))}
	switch from {
	case keyRegion:
		all.RKey = t.mrs[of].RKey()
	case keyWindow:
		all.RKey = t.mws[of].RKey()
	default:
		all.RKey = t.mrs[of].RKey() ^ 0xff00
	}
	remote := all.At(off)
	switch {
	case kind == kindSend && inline != nil:
		q.SendInline(id, inline, flags)
	case kind == kindSend:
		q.SendV(id, spans, flags)
	case kind == kindSendImm:
		q.SendImm(id, uint32(imm), one, flags)
	case kind == kindWrite && inline != nil:
		q.WriteInline(id, remote, inline, flags)
	case kind == kindWrite:
		q.WriteV(id, remote, spans, flags)
	case kind == kindWriteImm:
		q.WriteImm(id, uint32(imm), remote, one, flags)
	case kind == kindRead:
		q.ReadV(id, spans, remote, flags)
	case kind == kindCAS:
		q.CompareSwap(id, one, remote, arg1, arg2, flags)
	case kind == kindFAA:
		q.FetchAdd(id, one, remote, arg1, flags)
	case kind == kindSendInv:
		q.SendInvalidate(id, all.RKey, one, flags)
	case kind == kindLocalInv:
		q.LocalInvalidate(id, t.mws[of], flags)
	case kind == kindBind:
		q.BindMW(id, t.mws[of], t.mrs[arg1].Span(int(off)-t.offs[arg1], imm), uverbs.Access(arg2), flags)
	default:
		return fmt.Errorf("the script has a request of kind %d", kind)
	}
	return nil
}

// inline reads a list of one piece of data, for a request that carries it.
func (t *twin) inline() []byte {
	if n := t.num(); n != 1 {
		t.err = fmt.Errorf("the script has %d pieces of inline data", n)
		return nil
	}
	t.num()
	off, n := t.num(), t.num()
	return t.data[off : off+n]
}

// verbsOpcode is enum ibv_wc_opcode.
var verbsOpcode = map[uverbs.Opcode]int{
	cq.OpSend: 0, cq.OpSendImm: 0, cq.OpSendInvalidate: 0, cq.OpWrite: 1, cq.OpWriteImm: 1, cq.OpRead: 2,
	cq.OpCompareSwap: 3, cq.OpFetchAdd: 4, cq.OpBindMW: 5, cq.OpLocalInvalidate: 6, cq.OpRecv: 128, cq.OpRecvWriteImm: 129,
}

func (t *twin) poll(n, most int) error {
	got, err := t.cqs[n].Poll(t.wcs[:most])
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%d cq %d has %d\n", t.step, n, got)
	for i := range t.wcs[:got] {
		t.show(n, &t.wcs[i])
	}
	return nil
}

// show prints what verbs say of a completion, and nothing that they leave open.
func (t *twin) show(n int, w *uverbs.WC) {
	number, typ := -1, uverbs.QPType(0)
	for i, qp := range t.qps {
		if qp != nil && qp.QPN() == w.QPN {
			number, typ = i, qp.Type()
		}
	}
	fmt.Fprintf(t.out, "%d cq %d: id %d qp %d status %d", t.step, n, w.ID, number, uint32(w.Status))
	if w.Status != cq.StatusSuccess {
		fmt.Fprintf(t.out, " vendor 0x%x", w.VendorErr)
	} else {
		fmt.Fprintf(t.out, " opcode %d", verbsOpcode[w.Opcode])
		switch w.Opcode {
		case cq.OpRecv, cq.OpRecvWriteImm, cq.OpRead, cq.OpCompareSwap, cq.OpFetchAdd:
			fmt.Fprintf(t.out, " bytes %d", w.Bytes)
		}
		if imm, ok := w.Imm(); ok && w.Side == cq.RecvSide {
			fmt.Fprintf(t.out, " imm %#x", imm)
		}
		if key, ok := w.InvalidatedRKey(); ok {
			fmt.Fprintf(t.out, " invalidated %#x", key)
		}
		if typ == uverbs.UD && w.Side == cq.RecvSide {
			fmt.Fprintf(t.out, " from %d lid %d grh %d", w.SrcQPN, w.SLID, truth(w.Flags&cq.FlagGRH != 0))
			if w.SLID != 0 {
				fmt.Fprintf(t.out, " sl %d", w.SL)
			}
		}
	}
	fmt.Fprintln(t.out)
}

func (t *twin) destroy() error {
	kind, err := t.in.ReadByte()
	if err != nil {
		return err
	}
	n := t.num()
	switch kind {
	case wordQP:
		err = t.qps[n].Close()
		t.qps[n] = nil
	case wordCQ:
		err = t.cqs[n].Close()
	case wordSRQ:
		err = t.srqs[n].Close()
	case wordAH:
		err = t.ahs[n].Close()
	case wordMW:
		err = t.mws[n].Close()
	case wordMR:
		err = t.mrs[n].Close()
	case wordPD:
		err = t.pds[n].Close()
	default:
		return fmt.Errorf("the script destroys a %c", kind)
	}
	return err
}
