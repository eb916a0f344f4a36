package decode

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// Fact is one line of an explanation: what a field is called, and its value with
// its meaning.
type Fact struct {
	Name, Value string
}

// Explanation is a finding in words, for somebody who never saw a CQE.
type Explanation struct {
	// Title is the error in a few words.
	Title string
	// Where says which lines told of it.
	Where string
	// Role tells a first error from what follows it.
	Role string
	// Facts is what the text says, field by field.
	Facts []Fact
	// Means is what such an error usually is.
	Means string
	// Look is what to look at first.
	Look []string
	// Notes is what was odd about the text.
	Notes []string
}

// Explain puts a finding into words.
func Explain(f *Finding) Explanation {
	e := Explanation{Title: title(f), Where: where(f), Role: role(f), Notes: f.Notes}
	e.facts(f)
	if f.Signature != nil {
		e.Means = "The protection information of data (T10-DIF) did not check when it passed the adapter: the data, or its tags, were damaged or belong to another block."
		e.Look = []string{"Compare the expected with the actual tag: a wrong reference tag is a wrong block, a wrong guard is damaged data."}
		return e
	}
	a := adviceFor(f.Status.V)
	e.Means, e.Look = a.means, a.look
	if !f.Status.OK {
		e.Means = "The text gives no status, only the vendor code."
	} else if a.means == "" {
		e.Means = "InfiniBand defines no such status."
	}
	if isODPFault(f) {
		e.Means = "On a shared receive queue this pair is no error: the page of the buffer is being brought in, and the receive stays posted."
		e.Look = []string{"Nothing, unless it repeats without end."}
	}
	if v, ok := mlx5Vendor(f); ok {
		if t := adviceForVendor[v]; t != "" {
			e.Look = append([]string{t}, e.Look...)
		}
	}
	return e
}

func title(f *Finding) string {
	switch {
	case f.Signature != nil:
		return "data protection (signature) error"
	case f.Status.OK:
		return f.Status.V.String() + statusNumber(f.Status.V)
	}
	return "failed completion, vendor code " + both(uint64(f.Vendor.V))
}

func statusNumber(s cq.Status) string { return fmt.Sprintf(" (status %d)", uint32(s)) }

func where(f *Finding) string {
	if f.LastLine > f.Line {
		return fmt.Sprintf("lines %d-%d", f.Line, f.LastLine)
	}
	return fmt.Sprintf("line %d", f.Line)
}

// role says whether the finding is a cause or a consequence.
func role(f *Finding) string {
	switch {
	case f.Signature != nil:
		return ""
	case f.IsFlush() && f.FlushOf == 0:
		return "A flush. The first error is not in this text: look further up, or at the other machine."
	case f.IsFlush() && f.SameQP:
		return fmt.Sprintf("A flush: consequence of the error in line %d on the same QP.", f.FlushOf)
	case f.IsFlush():
		return fmt.Sprintf("A flush: probably a consequence of the error in line %d.", f.FlushOf)
	case f.Consequence:
		return fmt.Sprintf("A further error of a QP that had failed in line %d.", f.FlushOf)
	case f.knownQP():
		return fmt.Sprintf("First error on QP %#x in this text.", f.QPN.V)
	}
	return "First error of its kind here: flushes that follow are its consequence."
}

// mlx5Vendor is the vendor code, if it is one of mlx5.
func mlx5Vendor(f *Finding) (mlx5.VendorSyndrome, bool) {
	if !f.Vendor.OK || f.Vendor.V > 0xff || f.Foreign != "" {
		return 0, false
	}
	return mlx5.VendorSyndrome(f.Vendor.V), true
}

func (e *Explanation) add(name, format string, args ...any) {
	e.Facts = append(e.Facts, Fact{name, fmt.Sprintf(format, args...)})
}

func (e *Explanation) facts(f *Finding) {
	e.side(f)
	if f.Status.OK {
		e.add("status", "%d, %s", uint32(f.Status.V), f.Status.V.String())
	}
	if f.Syndrome.OK {
		e.add("syndrome", "%s, %s", both(uint64(f.Syndrome.V)), known(f.Syndrome.V))
	}
	e.vendor(f)
	if f.HWSyndrome.OK {
		e.add("hardware", "syndrome %s, type %s; known to the vendor only", both(uint64(f.HWSyndrome.V)), both(uint64(f.HWSyndType.V)))
	}
	if f.SendOpcode.OK && f.Side != some(cq.RecvSide) {
		e.add("send opcode", "0x%02x, %s", uint8(f.SendOpcode.V), opcodeName(f.SendOpcode.V))
	}
	if f.knownQP() {
		e.add("QP", "%#x (%d)", f.QPN.V, f.QPN.V)
	}
	if f.WQECounter.OK {
		e.add("WQE counter", "%d (%#x)%s", f.WQECounter.V, f.WQECounter.V, counterUnit(f))
	} else if f.RingIndex.OK {
		e.add("WQE index", "%d in its ring", f.RingIndex.V)
	}
	switch {
	case !f.UserIndex.OK:
	case f.UserIndex.V == 0:
		e.add("user index", "0")
	default:
		e.add("user index", "%#x, the library's number of the QP or shared receive queue", f.UserIndex.V)
	}
	if f.CQN.OK {
		e.add("CQ", "%#x%s", f.CQN.V, f.counter())
	}
	if s := f.Signature; s != nil {
		e.add("wrong", "%s", wrongTags(s))
		e.add("memory key", "%#x, offset %d", s.MKey, s.Offset)
		e.add("tags", "expected %#x, actual %#x; reference expected %#x, actual %#x", s.Expected, s.Actual, s.ExpectedRef, s.ActualRef)
	}
	if f.CQE.OK {
		e.add("signature", "%s", signature(f))
		e.add("bytes", "%s", hex.EncodeToString(f.CQE.V[:]))
	}
}

func (e *Explanation) side(f *Finding) {
	switch {
	case !f.Side.OK && f.Status.OK && requesterOnly(f.Status.V):
		e.add("side", "not in the text; this status ends only requests that this machine sent")
	case !f.Side.OK:
	case f.Side.V == cq.SendSide:
		e.add("side", "requester: a request that this machine sent")
	default:
		e.add("side", "responder: a receive of this machine, or what the peer did to its memory")
	}
}

// requesterOnly says whether a status can end none but send requests.
func requesterOnly(s cq.Status) bool {
	switch s {
	case cq.StatusMWBind, cq.StatusBadResponse, cq.StatusRemoteAccess, cq.StatusRemoteOperation,
		cq.StatusRetryExceeded, cq.StatusRNRRetryExceeded:
		return true
	}
	return false
}

func (e *Explanation) vendor(f *Finding) {
	if !f.Vendor.OK {
		return
	}
	v, ok := mlx5Vendor(f)
	switch {
	case f.Foreign != "":
		e.add("vendor code", "%s, of %s: not mlx5, not explained", both(uint64(f.Vendor.V)), f.Foreign)
	case !ok:
		e.add("vendor code", "%s: not an mlx5 code (those are one byte), not explained", both(uint64(f.Vendor.V)))
	case v != 0 && !v.Known() && v < 0x10:
		e.add("vendor code", "%s: not an mlx5 code; another vendor's device, not explained", both(uint64(v)))
	case !v.Known() && v != 0:
		e.add("vendor code", "%s: not in the published mlx5 table", both(uint64(v)))
	default:
		e.add("vendor code", "%s, %s", both(uint64(v)), v)
	}
}

func (f *Finding) counter() string {
	if !f.Counter.OK {
		return ""
	}
	return fmt.Sprintf(", consumer counter %#x", f.Counter.V)
}

func counterUnit(f *Finding) string {
	switch {
	case !f.Side.OK:
		return ""
	case f.Side.V == cq.SendSide:
		return ", in 64-byte blocks of the send queue"
	}
	return ", in requests of the receive queue"
}

func known(s mlx5.Syndrome) string {
	if !s.Known() {
		return "not in the published table"
	}
	return s.String()
}

func opcodeName(o mlx5.SendOpcode) string {
	if !o.Known() {
		return "unknown: the request may have been damaged"
	}
	return o.String()
}

func wrongTags(s *mlx5.SignatureErrorCQE) string {
	var w []string
	for _, t := range []struct {
		bad  bool
		name string
	}{{s.Guard, "guard"}, {s.AppTag, "application tag"}, {s.RefTag, "reference tag"}} {
		if t.bad {
			w = append(w, t.name)
		}
	}
	if len(w) == 0 {
		return "not said"
	}
	return strings.Join(w, ", ")
}

// signature checks the dump against itself.
func signature(f *Finding) string {
	b := f.CQE.V
	cleared := ""
	if string(b[1:5]) == "seen" {
		// An old DPDK driver marks entries that it has shown.
		copy(b[1:5], "\x00\x00\x00\x00")
		cleared = ` (after the driver's mark "seen" was taken out)`
	}
	if !f.Counter.OK {
		return fmt.Sprintf("not checked: the text does not say the consumer counter. The bytes are intact if those of the counter xor to 0x%02x%s", mlx5.SignatureFold(&b), cleared)
	}
	switch mlx5.CheckSignature(&b, f.Counter.V) {
	case mlx5.SignatureRight:
		return "right: the bytes are intact" + cleared
	case mlx5.SignatureWrapped:
		return "right if the queue has wrapped: logs print the counter modulo its size" + cleared
	}
	return "wrong: bytes were altered, or rows of several dumps were mixed" + cleared
}
