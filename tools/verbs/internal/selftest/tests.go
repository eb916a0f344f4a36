package selftest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs"
)

// A test is one row of the table.
type test struct {
	group, name string
	// limit is how long it may take; 0 is a minute.
	limit time.Duration
	// claims says whether the device says that it can do what is tested; then that it
	// is not supported is a failure. Nil: devices do not say.
	claims func(*Device) bool
	// run returns nil if all is as it should be, an error that wraps
	// [uverbs.ErrNotSupported] where device, kernel or library cannot do it.
	run func(ctx context.Context, t *bench) error
}

// tests are all of them, in the order in which they run: what others rest on first.
var tests = sync.OnceValue(func() []test {
	return slices.Concat(messages(), memoryTests(), ringTests(), completionTests(), errorTests(), lifeTests())
})

func claimsAtomics(d *Device) bool { return d.Atomic != uverbs.AtomicNone }
func claimsSRQ(d *Device) bool     { return d.MaxSRQ > 0 }
func claimsGroups(d *Device) bool  { return d.MaxGroups > 0 }

// claimsCap says whether the device has a capability bit.
func claimsCap(c uverbs.DeviceCaps) func(*Device) bool {
	return func(d *Device) bool { return d.Caps&c != 0 }
}

// messages are the operations that move data.
func messages() (list []test) {
	gathered := []int{1, 30, 64, 200}
	long := []int{1<<18 + 5}
	for _, typ := range []uverbs.QPType{uverbs.RC, uverbs.UC, uverbs.UD} {
		add := func(name string, m message) {
			m.typ = typ
			list = append(list, test{group: typ.String(), name: name, run: m.run})
		}
		add("send", message{op: cq.OpSend, lengths: []int{100}})
		add("send with immediate data", message{op: cq.OpSendImm, lengths: []int{100}})
		add("send inline", message{op: cq.OpSend, inline: true, lengths: []int{60}})
		add("send of no bytes", message{op: cq.OpSendImm, lengths: []int{0}})
		add("send gathered and scattered", message{op: cq.OpSend, lengths: gathered})
		if typ == uverbs.UD {
			list = append(list, datagramTests()...)
			continue
		}
		add("long send", message{op: cq.OpSend, lengths: long})
		add("write", message{op: cq.OpWrite, lengths: []int{100}})
		add("write with immediate data", message{op: cq.OpWriteImm, lengths: []int{100}})
		add("write inline", message{op: cq.OpWrite, inline: true, lengths: []int{60}})
		add("write gathered", message{op: cq.OpWrite, lengths: gathered})
		add("long write", message{op: cq.OpWrite, lengths: long})
		if typ == uverbs.RC {
			add("read", message{op: cq.OpRead, lengths: []int{100}})
			add("read scattered", message{op: cq.OpRead, lengths: gathered})
			add("long read", message{op: cq.OpRead, lengths: long})
		}
	}
	return list
}

// message is a test of one operation that moves data.
type message struct {
	typ     uverbs.QPType
	op      cq.Opcode
	inline  bool
	lengths []int // of the pieces
}

// Where pieces lie, at which distance, and where they go to.
const (
	piecesAt  = 0
	pieceStep = 4096
	targetAt  = 512 << 10
	someImm   = 0x8badf00d
)

func (m message) run(ctx context.Context, t *bench) error {
	spec := usual(m.typ)
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	total, grh := 0, 0
	if m.typ == uverbs.UD {
		grh = uverbs.GRHLen
	}
	work := Work{Op: m.op, ID: 7, Inline: m.inline, To: targetAt}
	into := Work{Op: cq.OpRecv, ID: 8}
	for i, n := range m.lengths {
		off := piecesAt + i*pieceStep
		work.Pieces = append(work.Pieces, Piece{off, n})
		at := targetAt + i*pieceStep
		if i == 0 {
			n += grh
		}
		into.Pieces = append(into.Pieces, Piece{at, n})
		total += m.lengths[i]
	}
	sent := Done{ID: 7, Op: m.op, Bytes: uint32(total)}
	var received []Done
	recv := Done{ID: 8, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: uint32(total + grh)}
	imm := uint32(someImm)
	switch m.op {
	case cq.OpSendImm:
		work.Imm, recv.Imm = imm, &imm
		fallthrough
	case cq.OpSend:
		received = []Done{recv}
	case cq.OpWriteImm:
		into.Pieces = nil
		work.Imm, recv.Imm, recv.Op = imm, &imm, cq.OpRecvWriteImm
		received = []Done{recv}
	}
	if m.typ == uverbs.UD {
		received[0].SrcQPN = t.made[0].Endpoint.QPN
	}
	if err := m.patterns(ctx, t, into.Pieces, grh, false); err != nil {
		return err
	}
	if len(received) > 0 {
		if err := t.post(ctx, t.b, into); err != nil {
			return err
		}
	}
	if err := t.post(ctx, t.a, work); err != nil {
		return err
	}
	if err := t.expect(ctx, t.a, sent); err != nil {
		return err
	}
	if err := t.expect(ctx, t.b, received...); err != nil {
		return err
	}
	return m.patterns(ctx, t, into.Pieces, grh, true)
}

// patterns fills what is to be moved, or checks it where it went to.
func (m message) patterns(ctx context.Context, t *bench, into []Piece, grh int, check bool) error {
	from, to := side(t.a), t.b
	if m.op == cq.OpRead {
		from, to = t.b, t.a
	}
	at := 0
	for i, n := range m.lengths {
		piece, row := piecesAt+i*pieceStep, targetAt+at // apart, or one after another
		source, goal := piece, row
		switch {
		case m.op == cq.OpRead:
			source, goal = row, piece
		case m.op == cq.OpSend || m.op == cq.OpSendImm:
			if goal = into[i].Off; i == 0 {
				goal += grh
			}
		}
		at += n
		var err error
		if check {
			err = t.check(ctx, to, "what arrived", goal, n, uint64(100+i))
		} else {
			err = t.fill(ctx, from, source, n, uint64(100+i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// datagramTests are those that only datagrams have.
func datagramTests() []test {
	return []test{
		{group: "UD", name: "wrong Q_Key is dropped", run: testWrongQKey},
		{group: "UD", name: "full packet", run: testFullPacket},
		{group: "UD", name: "multicast", run: testMulticast},
		{group: "UD", name: "numbered datagrams", limit: 2 * time.Minute, run: func(ctx context.Context, t *bench) error {
			return stream(ctx, t, usual(uverbs.UD), usual(uverbs.UD), Stream{Messages: t.rounds(5000, 500), Bytes: 128, Credit: 8})
		}},
	}
}

// testWrongQKey: the datagram is lost and its send succeeds; the receive is there for the
// next one.
func testWrongQKey(ctx context.Context, t *bench) error {
	if err := t.meet(ctx, usual(uverbs.UD), usual(uverbs.UD), nil); err != nil {
		return err
	}
	if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{targetAt, 1000}}}); err != nil {
		return err
	}
	good := Work{Op: cq.OpSendImm, ID: 2, Imm: 2, Pieces: []Piece{{0, 4}}}
	bad := Work{Op: cq.OpSendImm, ID: 1, Imm: 1, Pieces: []Piece{{0, 4}}, WrongQKey: true}
	if err := t.post(ctx, t.a, bad, good); err != nil {
		return err
	}
	if err := t.expect(ctx, t.a, Done{ID: 1, Op: cq.OpSendImm, Bytes: 4}, Done{ID: 2, Op: cq.OpSendImm, Bytes: 4}); err != nil {
		return err
	}
	imm := uint32(2)
	return t.expect(ctx, t.b, Done{ID: 8, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: 4 + uverbs.GRHLen, Imm: &imm})
}

func testFullPacket(ctx context.Context, t *bench) error {
	if err := t.meet(ctx, usual(uverbs.UD), usual(uverbs.UD), nil); err != nil {
		return err
	}
	n := min(t.made[0].Device.Datagram, t.made[1].Device.Datagram)
	t.notef("%s", plural.Of(n, "byte"))
	if err := t.fill(ctx, t.a, 0, n, 5); err != nil {
		return err
	}
	if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{targetAt, n + uverbs.GRHLen}}}); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 7, Pieces: []Piece{{0, n}}}); err != nil {
		return err
	}
	if err := t.expect(ctx, t.a, Done{ID: 7, Op: cq.OpSend, Bytes: uint32(n)}); err != nil {
		return err
	}
	if err := t.expect(ctx, t.b, Done{ID: 8, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: uint32(n + uverbs.GRHLen)}); err != nil {
		return err
	}
	return t.check(ctx, t.b, "what arrived", targetAt+uverbs.GRHLen, n, 5)
}

// Groups that nobody has: of those for documentation (RFC 6676).
const (
	testGroup   = "233.252.0.17"
	testGroupV6 = "ff02::db8:0:11"
)

// groupFor is a group that a device can send to. The addresses of a RoCE packet are of one version
// of IP, and a port may have none of IPv4.
func groupFor(made *Answer) string {
	if a, ok := made.Endpoint.GID.Addr(); made.Device.Roce && ok && !a.Is4() {
		return testGroupV6
	}
	return testGroup
}

func testMulticast(ctx context.Context, t *bench) error {
	if err := t.meet(ctx, usual(uverbs.UD), usual(uverbs.UD), nil); err != nil {
		return err
	}
	t.claims = claimsGroups // from here on: that there are datagrams is another matter
	group := groupFor(t.made[0])
	for _, s := range []side{t.a, t.b} {
		if _, err := t.order(ctx, s, Order{Do: doJoin, Group: group}); err != nil {
			return err
		}
		if err := t.post(ctx, s, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{targetAt, 1000}}}); err != nil {
			return err
		}
	}
	if err := t.fill(ctx, t.a, 0, 100, 6); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 7, Group: true, Pieces: []Piece{{0, 100}}}); err != nil {
		return err
	}
	recv := Done{ID: 8, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: 100 + uverbs.GRHLen}
	if err := t.expect(ctx, t.b, recv); err != nil {
		return err
	}
	if err := t.check(ctx, t.b, "what arrived", targetAt+uverbs.GRHLen, 100, 6); err != nil {
		return err
	}
	// The sender is a member too and hears itself.
	return t.expect(ctx, t.a, Done{ID: 7, Op: cq.OpSend, Bytes: 100}, recv)
}

// slowTime is how long that which is done often may take on a slow device, such as one under
// emulation: a loop ends then, and a stream has as many messages as those before it lead to
// expect, neither with too few.
const (
	slowTime    = 12 * time.Second
	fewMessages = 2000
	fewRounds   = 200
)

// enough tells whether a loop that has made some rounds has taken its time.
func enough(begin time.Time, rounds int) bool {
	return rounds >= fewRounds && time.Since(begin) > slowTime
}

// bounded is how many messages a stream of so many has: on a slow device fewer.
func (r *run) bounded(messages int) int {
	if most := int(r.rate.Load()) * int(slowTime.Seconds()); most > 0 && most < messages {
		return min(messages, max(most, fewMessages))
	}
	return messages
}

// ofThese says how many were done, if they were not all, with the reason.
func ofThese(done, all int, what string) string {
	if done < all {
		return fmt.Sprintf("%d %s, and not %d, as the device is slow", done, what, all)
	}
	return fmt.Sprintf("%d %s", done, what)
}

// stream runs a stream from A to B.
func stream(ctx context.Context, t *bench, a, b Spec, s Stream) error {
	if err := t.meet(ctx, a, b, &Options{RNRRetries: uverbs.RetryForever}); err != nil {
		return err
	}
	return streamAgain(ctx, t, s)
}

// streamAgain is stream between ends that are connected.
func streamAgain(ctx context.Context, t *bench, s Stream) error {
	all := s.Messages
	s.Messages, s.Stall = t.run.bounded(all), t.patience.Seconds()
	send, recv := s, s
	send.Send = true
	if _, err := t.order(ctx, t.b, Order{Do: doReady, Stream: &recv}); err != nil {
		return err
	}
	if _, err := t.order(ctx, t.a, Order{Do: doReady, Stream: &send}); err != nil {
		return err
	}
	const whole = 120
	begin := time.Now()
	err := t.both(ctx, Order{Do: doStream, Stream: &send, Patience: whole}, Order{Do: doStream, Stream: &recv, Patience: whole})
	if err == nil {
		t.notef("%s", ofThese(s.Messages, all, "messages"))
		if took := time.Since(begin).Seconds(); took > 0.1 { // less says nothing
			t.run.rate.Store(int64(float64(s.Messages) / took))
		}
	}
	return err
}
