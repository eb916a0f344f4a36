package decode

import (
	"hash/fnv"
	"strings"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// lineText is what a line of text, joined with its wrapped rest, says.
type lineText struct {
	findings []*Finding
	headers  []header // dumps that it announces
	notes    []Note
	rest     []byte // what must be read again with the next piece of the line
}

// span is where in the file a text stands.
type span struct{ line, last int }

// readText reads a cleaned line. more says that the line goes on: then its end is
// not read yet but handed back.
func readText(text []byte, at span, more bool) lineText {
	var out lineText
	parts := split(text)
	for i, part := range parts {
		if t := tokenize(part); len(t) > 0 {
			readPart(&out, t, part, at, more && i == len(parts)-1)
		}
	}
	return out
}

// readPart reads a part of a line that one printer wrote.
func readPart(out *lineText, t []token, text []byte, at span, more bool) {
	key := keyOf(text)
	runs := divide(readHits(t))
	if more {
		runs = hold(out, t, text, runs)
	}
	if len(runs) == 0 {
		readContext(t).tell(out, at, key, t, nil)
		return
	}
	for i, run := range runs {
		// The words that belong to a completion stand between the
		// facts of the one before it and those of the one behind it.
		const near = 64
		from, to := max(0, run[0].at-near), min(len(t), run[len(run)-1].next+near)
		if i > 0 {
			from = max(from, runs[i-1][len(runs[i-1])-1].next)
		}
		if i+1 < len(runs) {
			to = min(to, runs[i+1][0].at)
		}
		c := readContext(t[from:to])
		var f *Finding
		if !c.command && !c.mthca && !c.event {
			f = makeFinding(run, c)
		}
		if f != nil {
			f.Line, f.LastLine, f.key, f.Foreign = at.line, at.last, key, c.foreign
			f.shapes = []uint64{shape(run)}
			out.findings = append(out.findings, f)
		}
		c.tell(out, at, key, t[from:to], f)
	}
}

// hold takes the last facts of an unfinished line out, if more of them may
// follow, and hands the text back from where they begin.
func hold(out *lineText, t []token, text []byte, runs [][]hit) [][]hit {
	const before, behind = 160, 1 << 10
	from := len(text) - before
	if n := len(runs); n > 0 {
		last := runs[n-1]
		if end := last[len(last)-1].next; end >= len(t) || len(text)-t[end].at < behind {
			from = t[last[0].at].at - before
			runs = runs[:n-1]
		}
	}
	if n := len(runs); n > 0 {
		last := runs[n-1]
		if end := last[len(last)-1].next; end < len(t) {
			from = max(from, t[end].at)
		}
	}
	from = max(from, 0, len(text)-4*behind)
	out.rest = text[from:]
	return runs
}

// tell passes on what the words say beside the facts.
func (c context) tell(out *lineText, at span, key string, t []token, f *Finding) {
	if c.workDump > 0 {
		out.headers = append(out.headers, header{at.line, key, true, c.workDump})
	}
	if c.announces && !c.mthca {
		out.headers = append(out.headers, header{at.line, key, false, 0})
	}
	switch {
	case c.command && c.syndrome:
		out.notes = append(out.notes, Note{Line: at.line, Refused: true,
			Text: "a firmware command failed; its 32-bit syndrome is none of a completion and is refused here"})
	case c.event:
		out.notes = append(out.notes, Note{Line: at.line, Refused: true, Text: "a completion queue failed itself" + leftover(t) +
			", most often by overflow: it is not as deep as its queues need. Its syndrome is of an event, not of a completion, and is refused here"})
	case c.mthca:
		out.notes = append(out.notes, Note{Line: at.line, Refused: true,
			Text: "a completion error of an old device (mthca, or mlx4): not mlx5, refused"})
	case c.elided && (f == nil || !f.decoded()):
		out.notes = append(out.notes, Note{Line: at.line, Text: "an error CQE is announced" + leftover(t) +
			", but neither its reason nor a dump is in the text: the line was cut"})
	}
}

// context is what the words of a line say about what it is.
type context struct {
	completion bool // the line is about a completion
	failing    bool // it says that something failed
	cqe        bool
	wqe        bool // it goes on about a failed work request, as UCX does
	code       bool // it is source code
	command    bool // a firmware command
	event      bool // a completion queue that failed itself
	syndrome   bool // the word
	mthca      bool // an mthca device, or a dump as it and mlx4 print them
	announces  bool // a dump of an error CQE follows
	elided     bool // the line is the head of an error CQE of mlx5e
	workDump   int64
	foreign    string
}

func readContext(t []token) (c context) {
	for i, x := range t {
		if x.kind == tokMark {
			if two := word(t, i+1); two == "=" && (x.text == "=" || x.text == "!") {
				c.code = true
			}
			continue
		}
		next := word(t, i+1)
		switch w := x.text; w {
		case "completion", "completions", "wc", "wr_id", "wrid", "prov_err", "dto", "ibv_poll_cq", "ib_wc", "ibv_wc",
			"kiblnd_tx_complete", "kiblnd_rx_complete", "ib_srp":
			c.completion = true
		case "cqe", "cqes":
			c.completion, c.cqe = true, true
			if prev := word(t, i-1); prev == "error" && (word(t, i-2) == "dump" || next == "on" || next == ":") || prev == "dump" {
				c.announces = true
				// mlx5_ib ends the line there and goes on in the next.
				c.elided = next == "on" && t[len(t)-1].text != ":"
			}
			// So mthca and mlx4 head their dumps of 32 bytes.
			c.mthca = c.mthca || next == "contents"
		case "cq":
			p := word(t, i-1)
			c.event = c.event || next == "error" && word(t, i+2) == "on" && word(t, i+3) == "cqn"
			c.completion = c.completion || next == "error" || p == "on" || p == "polling" || p == "hp" || p == "lp" || p == "poll"
		case "polling", "poll":
			c.completion = c.completion || next == "cq"
		case "err", "error", "errors", "failed", "failure", "fatal", "bad", "warn", "failing", "died":
			c.failing = true
			if w == "error" && next == ":" && word(t, i-1) == "with" && word(t, i-2) == "completion" && word(t, i-3) == "got" {
				c.announces = true
			}
		case "syndrome":
			c.syndrome = true
		case "dump_cqe", "cqe_dump":
			c.completion, c.cqe = true, true
		case "case", "return", "define", "enum", "const", "static", "if", "switch":
			c.code = c.code || i == 0 || word(t, i-1) == "#"
		case "mlx5_cmd_check", "mlx5_cmd_out_err", "op_mod", "cmd_work_handler":
			c.command = true
		case "wqe":
			c.wqe = c.wqe || next == "["
			c.mthca = c.mthca || next == "@"
			if next == "index" && word(t, i-1) == "," {
				c.foreign = foreignDevice("mlx4")
			}
			if next == "dump" {
				c.workDump = workLength(t[i:])
			}
		default:
			name := foreignDevice(w)
			if name == "" {
				continue
			}
			c.foreign = name
			c.mthca = c.mthca || strings.Contains(w, "mthca")
		}
	}
	return c
}

// workLength is the size of the dump that the line of a WQE dump promises.
func workLength(t []token) int64 {
	for i, x := range t {
		if x.text == "len" {
			if n, _, ok := number(t, i+1); ok && n.value > 0 && n.value <= 1024 {
				return int64(n.value)
			}
		}
	}
	return 64
}

// leftover repeats what a cut line still says.
func leftover(t []token) (s string) {
	for _, h := range readHits(t) {
		switch h.kind {
		case hitCQN:
			s += " on CQ " + hexNumber(h.value)
		case hitCI:
			s += ", consumer counter " + hexNumber(h.value)
		case hitQPN:
			s += ", QP " + hexNumber(h.value)
		}
	}
	return s
}

// divide cuts the facts of a line where a second completion begins: where a
// fact is stated again.
func divide(hits []hit) (runs [][]hit) {
	var have [hitEvent + 1]bool
	start := 0
	for i, h := range hits {
		// A status may be said as number, in words and by name.
		again := have[h.kind] && h.kind != hitSide && h.kind != hitSendOp && h.kind != hitCQEOpcode
		if h.kind == hitQPN && again {
			again = hits[i-1].kind != hitQPN
		}
		if again {
			runs = append(runs, hits[start:i])
			start = i
			have = [hitEvent + 1]bool{}
		}
		have[h.kind] = true
	}
	if start < len(hits) {
		runs = append(runs, hits[start:])
	}
	return runs
}

// makeFinding makes one completion of the facts of a line, or nil if they do not
// make one.
func makeFinding(hits []hit, c context) *Finding {
	f := &Finding{}
	var number, named, sure, weak, hexStatus bool
	qpOnly := true
	for _, h := range hits {
		switch h.kind {
		case hitQPN, hitSide, hitIndex, hitSendOp, hitCQN, hitCI:
		default:
			qpOnly = false
		}
		switch h.kind {
		case hitStatus:
			if h.value == 0 || h.value > 23 && !h.hex {
				return nil // a success, or the status of something else
			}
			number, hexStatus = true, h.hex
			f.Status.learn(some(cq.Status(h.value)))
		case hitPhrase, hitName:
			if f.Status.OK && !number && f.Status.V != cq.Status(h.value) {
				continue
			}
			sure = sure || h.sure
			named = named || !h.weak
			weak = weak || h.weak
			f.Status.learn(some(cq.Status(h.value)))
		case hitSyndrome:
			if h.value > 0xff {
				return nil
			}
			f.Syndrome.learn(some(mlx5.Syndrome(h.value)))
		case hitVendor:
			f.Vendor.learn(some(uint32(h.value)))
		case hitEvent:
			f.fromEvent(h.value)
			c.completion, named = true, true
		default:
			f.learnPlace(h)
		}
	}
	f.settle(number && hexStatus, c)
	explicit := f.Syndrome.OK && f.Vendor.OK || number && f.Vendor.OK || sure
	switch {
	case c.code && !explicit:
		return nil
	case explicit:
	case f.Syndrome.OK && f.Syndrome.V.Known() && c.completion:
	case f.Vendor.OK && (named || weak || c.completion && c.failing):
	case number && c.completion && (c.failing || c.cqe || named):
	case named && (c.completion || c.failing || f.QPN.OK):
	case weak && c.completion && c.failing:
	case qpOnly && (c.wqe || c.cqe && c.failing) && (f.QPN.OK || f.Side.OK || f.RingIndex.OK):
		f.Status = Opt[cq.Status]{}
	default:
		return nil
	}
	return f
}

// fromEvent takes over the packed value of a hitEvent.
func (f *Finding) fromEvent(v uint64) {
	if s := mlx5.Syndrome(v >> 24); s != 0 {
		f.Syndrome = some(s)
	}
	f.Vendor = some(uint32(v >> 16 & 0xff))
	f.HWSyndType = some(uint8(v >> 8))
	f.HWSyndrome = some(uint8(v))
	if f.Syndrome.V > 6 {
		f.Notes = append(f.Notes, "the kernel takes the words of this line from the wrong table; the device's code behind them is read instead")
	}
}

// learnPlace takes over a fact that does not say why.
func (f *Finding) learnPlace(h hit) {
	switch h.kind {
	case hitHWSynd:
		f.HWSyndrome.learn(some(uint8(h.value)))
		if h.name == "hw_synd/" {
			f.HWSyndType.learn(some(uint8(h.value >> 8)))
		}
	case hitHWType:
		f.HWSyndType.learn(some(uint8(h.value)))
	case hitSide:
		f.Side.learn(some(cq.Side(h.value)))
	case hitCQEOpcode:
		switch h.value {
		case 0xd:
			f.Side.learn(some(cq.SendSide))
		case 0xe:
			f.Side.learn(some(cq.RecvSide))
		}
	case hitSendOp:
		if h.name == "s_wqe_opcode_qpn" {
			f.SendOpcode.learn(some(mlx5.SendOpcode(h.value >> 24)))
			f.QPN.learn(some(uint32(h.value & 0xffffff)))
			return
		}
		f.SendOpcode.learn(some(mlx5.SendOpcode(h.value)))
		f.Side.learn(some(cq.SendSide))
	case hitQPN:
		f.QPN.learn(some(uint32(h.value)))
		switch h.name {
		case "sqn":
			f.Side.learn(some(cq.SendSide))
		case "rqn":
			f.Side.learn(some(cq.RecvSide))
		}
	case hitCounter:
		f.WQECounter.learn(some(uint16(h.value)))
	case hitIndex:
		f.RingIndex.learn(some(uint32(h.value)))
	case hitCQN:
		f.CQN.learn(some(uint32(h.value)))
	case hitCI:
		f.Counter.learn(some(uint32(h.value)))
	}
}

// settle makes status and syndrome fit each other. Programs print both numbers
// under both names.
func (f *Finding) settle(hexStatus bool, c context) {
	// "CQE ERR ... status 0x13": devices' syndromes are written in
	// hexadecimal and begin anew at 0x10; statuses end there.
	if hexStatus && !f.Syndrome.OK && f.Status.V >= 0x10 && mlx5.Syndrome(f.Status.V).Known() {
		f.Syndrome = some(mlx5.Syndrome(f.Status.V))
		f.Status = Opt[cq.Status]{}
	}
	if f.Syndrome.OK && !f.Vendor.OK && !f.Syndrome.V.Known() {
		// "remote access error syndrome 0x88": that is the vendor's.
		f.Vendor = some(uint32(f.Syndrome.V))
		f.Syndrome = Opt[mlx5.Syndrome]{}
	}
	if f.Syndrome.OK {
		s := f.Syndrome.V.Status()
		if f.Status.OK && f.Status.V != s && f.Status.V <= cq.StatusGeneral && s != cq.StatusGeneral {
			f.Notes = append(f.Notes, "the line also says "+f.Status.V.String()+"; the syndrome decides")
		}
		f.Status = some(s)
	}
	if f.Vendor.OK && f.Vendor.V > 0xff && f.Foreign == "" {
		f.Notes = append(f.Notes, "the vendor code does not fit a byte: this is no mlx5 device")
	}
}

// shape identifies the kind of a line: the names of its facts, not their values.
func shape(hits []hit) uint64 {
	h := fnv.New64a()
	for _, x := range hits {
		h.Write([]byte(x.name))
		h.Write([]byte{0})
	}
	return h.Sum64()
}
