package decode

import (
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// Opt is a value that a text may or may not say.
type Opt[T comparable] struct {
	V  T    // the value, if OK
	OK bool // the text says it
}

func some[T comparable](v T) Opt[T] { return Opt[T]{v, true} }

// learn takes over a value where none is known yet.
func (o *Opt[T]) learn(from Opt[T]) {
	if !o.OK {
		*o = from
	}
}

// agrees is true unless both are known and differ.
func (o Opt[T]) agrees(with Opt[T]) bool {
	return !o.OK || !with.OK || o.V == with.V
}

// Finding is one failed completion, told by a dump, by a line of text, or by
// several of them that speak of the same one.
type Finding struct {
	// Line and LastLine are the first and last line that tell of it,
	// counted from 1.
	Line, LastLine int
	// Status, Syndrome and Vendor say why. Where the syndrome is known,
	// Status is what the drivers make of it.
	Status   Opt[cq.Status]
	Syndrome Opt[mlx5.Syndrome]
	// Vendor is the vendor code as the text gives it; it is a
	// [mlx5.VendorSyndrome] only where Foreign is empty and it fits a byte.
	Vendor Opt[uint32]
	// Side tells whose request failed.
	Side Opt[cq.Side]
	// SendOpcode is the device's opcode of the failed send request.
	SendOpcode Opt[mlx5.SendOpcode]
	// QPN is the local queue pair. On the dump of a raw receive queue it
	// is not one.
	QPN Opt[uint32]
	// UserIndex is the library's number of the QP or shared receive queue.
	UserIndex Opt[uint32]
	// WQECounter is the number of the request in its queue.
	WQECounter Opt[uint16]
	// RingIndex is that number modulo the size of the queue.
	RingIndex Opt[uint32]
	// HWSyndrome and HWSyndType are codes that only the vendor knows.
	HWSyndrome, HWSyndType Opt[uint8]
	// CQN is the completion queue, Counter its consumer counter, modulo the
	// size of the queue.
	CQN, Counter Opt[uint32]
	// CQE is the entry itself, where a dump has all of it.
	CQE Opt[[64]byte]
	// Signature is set for a data-protection error.
	Signature *mlx5.SignatureErrorCQE
	// Foreign is the other device family that the text names, "" if none.
	Foreign string
	// Notes is what was odd about the text.
	Notes []string
	// FlushOf is the line of the first error that a flush or a further
	// error follows; 0 if the text has none. SameQP says that both name
	// the same QP.
	FlushOf int
	SameQP  bool
	// Consequence: a flush, or a further error of a QP that had failed.
	Consequence bool

	dump   *dump
	key    string
	shapes []uint64
	dead   bool
}

// retract takes back what was found in a dump that turned out to be longer than
// one CQE, unless a line of text confirmed it.
func (f *Finding) retract() {
	f.dead = len(f.shapes) == 0
}

// IsFlush says that the request was not tried because its QP had failed before.
func (f *Finding) IsFlush() bool {
	return f.Status.OK && f.Status.V == cq.StatusFlushed
}

// decoded says that the finding is worth telling: it has a reason.
func (f *Finding) decoded() bool {
	return f.Status.OK || f.Vendor.OK || f.Signature != nil
}

// fromCQE fills a finding from the 64 bytes of an error CQE.
func (f *Finding) fromCQE(b *[64]byte) error {
	e, err := mlx5.ParseErrorCQE(b)
	if err != nil {
		return err
	}
	f.fromError(e)
	f.UserIndex = some(e.UserIndex)
	f.CQE = some(*b)
	return nil
}

// fromError fills in what the last 16 bytes of an error CQE say.
func (f *Finding) fromError(e mlx5.ErrorCQE) {
	f.Side = some(e.Side)
	f.Syndrome = some(e.Syndrome)
	f.Status = some(e.Syndrome.Status())
	f.Vendor = some(uint32(e.Vendor))
	f.SendOpcode = some(e.SendOpcode)
	f.QPN = some(e.QPN)
	f.WQECounter = some(e.WQECounter)
	f.HWSyndrome = some(e.HWSyndrome)
	f.HWSyndType = some(e.HWSyndromeType)
}

// agrees says whether two findings may be the same completion. A status that a
// text names only roughly (21, "general error") agrees with none but itself.
func (f *Finding) agrees(g *Finding) bool {
	return f.Status.agrees(g.Status) && f.Syndrome.agrees(g.Syndrome) &&
		f.Vendor.agrees(g.Vendor) && f.Side.agrees(g.Side) &&
		(f.QPN.agrees(g.QPN) || f.rawReceive() || g.rawReceive()) &&
		f.WQECounter.agrees(g.WQECounter) && sameOperation(f.SendOpcode, g.SendOpcode) &&
		f.CQN.agrees(g.CQN) && f.Counter.agrees(g.Counter) &&
		f.RingIndex.agrees(g.RingIndex) &&
		f.HWSyndrome.agrees(g.HWSyndrome) && f.HWSyndType.agrees(g.HWSyndType) &&
		(f.Foreign == "" || g.Foreign == "" && !g.CQE.OK || f.Foreign == g.Foreign) &&
		(g.Foreign == "" || !f.CQE.OK)
}

// rawReceive says that the dump is one of a raw receive queue: those hold
// something else in the place of the QPN.
func (f *Finding) rawReceive() bool {
	return f.CQE.OK && f.Side == some(cq.RecvSide) && f.QPN == some(uint32(0))
}

// knownQP says that the finding names its QP.
func (f *Finding) knownQP() bool { return f.QPN.OK && !f.rawReceive() }

// sameOperation says whether two opcodes may be of one request: programs print
// the same name for the variants of an operation.
func sameOperation(a, b Opt[mlx5.SendOpcode]) bool {
	plain := func(o mlx5.SendOpcode) mlx5.SendOpcode {
		switch o {
		case 0x09:
			return 0x08
		case 0x01, 0x0b:
			return 0x0a
		}
		return o
	}
	return !a.OK || !b.OK || plain(a.V) == plain(b.V)
}

// absorb adds what another telling of the same completion knows.
func (f *Finding) absorb(g *Finding) {
	f.Line = min(f.Line, g.Line)
	f.LastLine = max(f.LastLine, g.LastLine)
	if f.rawReceive() && g.QPN.OK && g.QPN.V != 0 {
		f.Notes = append(f.Notes, "the text says queue "+hexNumber(uint64(g.QPN.V))+"; entries of raw receive queues hold no number")
	}
	f.Status.learn(g.Status)
	f.Syndrome.learn(g.Syndrome)
	f.Vendor.learn(g.Vendor)
	f.Side.learn(g.Side)
	f.SendOpcode.learn(g.SendOpcode)
	f.QPN.learn(g.QPN)
	f.UserIndex.learn(g.UserIndex)
	f.WQECounter.learn(g.WQECounter)
	f.HWSyndrome.learn(g.HWSyndrome)
	f.HWSyndType.learn(g.HWSyndType)
	f.CQN.learn(g.CQN)
	f.Counter.learn(g.Counter)
	f.RingIndex.learn(g.RingIndex)
	f.CQE.learn(g.CQE)
	if f.dump == nil {
		f.dump = g.dump
	}
	if f.Signature == nil {
		f.Signature = g.Signature
	}
	if f.Foreign == "" {
		f.Foreign = g.Foreign
	}
	if f.key == "" {
		f.key = g.key
	}
	f.Notes = append(f.Notes, g.Notes...)
	f.shapes = append(f.shapes, g.shapes...)
}
