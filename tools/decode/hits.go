package decode

import (
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// A hit is one fact that a line states under a name: "vendor err 129".
type hit struct {
	kind  hitKind
	value uint64
	hex   bool   // the number was written in hexadecimal
	name  string // the words that said so: they make the shape of the line
	at    int    // its first token
	next  int    // the token behind it
	weak  bool   // a phrase that means something only in context
	sure  bool   // a phrase beside its own number: "... error (10)"
}

type hitKind uint8

const (
	hitNone      hitKind = iota
	hitStatus            // a number
	hitPhrase            // the status in words
	hitName              // IBV_WC_...
	hitSyndrome          //
	hitVendor            //
	hitHWSynd            //
	hitHWType            //
	hitSide              //
	hitSendOp            //
	hitQPN               //
	hitCounter           // wqe_counter
	hitIndex             // wqe[n]
	hitCQN               //
	hitCI                //
	hitCQEOpcode         // 12 to 14
	hitEvent             // QP n error: <phrase> (0x.. 0x.. 0x..)
)

// keyed is what a number is behind a word: hitNone where the word says nothing.
func keyed(word string) hitKind {
	switch word {
	case "vend", "vendor_err", "vendor_error", "vendor_syndrome", "vendor_synd", "vendor_err_synd", "vendorerr",
		"vendorerror", "vend_err", "vendor_code", "vendor_error_syndrome", "vendor_error_code", "vendor_err_code",
		"syndrom": // the last is what perftest calls ibv_wc.vendor_err
		return hitVendor
	case "synd", "syndrome", "cqe_syndrome", "err_syndrome", "error_syndrome":
		return hitSyndrome
	case "hw_err_synd", "hw_error_syndrome", "hw_synd", "hw_syndrome":
		return hitHWSynd
	case "hw_synd_type", "hw_syndrome_type":
		return hitHWType
	case "status", "wc_status", "cqe_status":
		return hitStatus
	case "qp", "qpn", "qp_num", "qpnum", "qp_number", "qn", "sqn", "rqn":
		return hitQPN
	case "wqe_counter", "indx":
		return hitCounter
	case "cqn":
		return hitCQN
	case "ci", "cq_ci", "cons_idx":
		return hitCI
	case "s_wqe_opcode":
		return hitSendOp
	}
	return hitNone
}

// largest is the greatest value that makes sense for a fact; greater ones are
// pointers and the like.
func (k hitKind) largest() uint64 {
	switch k {
	case hitStatus, hitHWSynd, hitHWType, hitSendOp:
		return 0xff
	case hitCounter:
		return 0xffff
	case hitQPN, hitCQN, hitIndex:
		return 0xffffff
	case hitVendor, hitSyndrome, hitCI:
		return 0xffffffff
	}
	return 0
}

// operations are the names that UCX gives the opcodes of failed requests.
var operations = sync.OnceValue(func() map[string]mlx5.SendOpcode {
	return map[string]mlx5.SendOpcode{
		"nop": 0x00, "send_inval": 0x01, "rdma_write": 0x08, "rdma_write_imm": 0x09, "send": 0x0a, "send_imm": 0x0b,
		"rdma_read": 0x10, "cswap": 0x11, "compare_swap": 0x11, "fetch_add": 0x12, "masked_cswap": 0x14, "masked_cs": 0x14,
		"masked_fetch_add": 0x15, "masked_fa": 0x15, "umr": 0x25,
	}
})

// readHits finds the facts of a line.
func readHits(t []token) []hit {
	var out []hit
	for i := 0; i < len(t); {
		h := readHit(t, i)
		if h.kind == hitNone {
			i++
			continue
		}
		h.at = i
		out = append(out, h)
		switch h.kind {
		case hitPhrase, hitName:
			// The kernel's NFS: "transport retry counter exceeded (12/0x81)".
			if n := opening(t, h.next); n+5 <= len(t) && t[n+1].value == h.value && t[n+2].text == "/" && t[n+3].hex && t[n+4].text == ")" {
				out[len(out)-1].sure = true
				h.next = n + 5
				out = append(out, hit{kind: hitVendor, value: t[n+3].value, hex: true, name: "(/)", at: n + 3, next: h.next})
			}
		case hitIndex:
			// UCX: "wqe[0]: SEND s--".
			if op, ok := operations()[word(t, h.next+1)]; ok && word(t, h.next) == ":" {
				h.next += 2
				out = append(out, hit{kind: hitSendOp, value: uint64(op), name: "wqe[]:", at: h.next - 1, next: h.next})
			}
		case hitEvent:
			out = append(out, hit{kind: hitQPN, value: t[i+1].value, name: "qp", at: i + 1, next: h.next})
		}
		i = h.next
	}
	return out
}

func word(t []token, i int) string {
	if i < 0 || i >= len(t) {
		return ""
	}
	return t[i].text
}

func readHit(t []token, i int) hit {
	if t[i].kind != tokWord {
		return hit{}
	}
	w := t[i].text
	for _, read := range []func([]token, int, string) hit{readEvent, readPhrase, readKeyed, readSide} {
		if h := read(t, i, w); h.kind != hitNone {
			return h
		}
	}
	return hit{}
}

// number looks for the number that belongs to the name ending before token i:
// behind marks and small words only.
func number(t []token, i int) (n token, next int, ok bool) {
	for steps := 0; i < len(t) && steps < 4; i, steps = i+1, steps+1 {
		switch {
		case t[i].kind == tokNumber:
			return t[i], i + 1, true
		case t[i].kind == tokWord:
			switch t[i].text {
			case "is", "number", "code", "num", "value", "was", "of":
			default:
				return token{}, 0, false
			}
		default:
			switch t[i].text {
			case ":", "=", "(", "#", "-", "\"", "'", "`", "*":
			default:
				return token{}, 0, false
			}
		}
	}
	return token{}, 0, false
}

// readKeyed reads a name and its number.
func readKeyed(t []token, i int, w string) hit {
	kind, name, at := keyed(w), w, i+1
	prev := word(t, i-1)
	switch w {
	case "kiblnd_tx_complete":
		return hit{kind: hitSide, value: uint64(cq.SendSide), name: w, next: i + 1}
	case "kiblnd_rx_complete":
		return hit{kind: hitSide, value: uint64(cq.RecvSide), name: w, next: i + 1}
	case "vendor", "hw":
		switch two := word(t, i+1); two {
		case "err", "error", "syndrome", "synd", "syndrom", "code", "err_synd":
			kind, name, at = hitVendor, w+" "+two, i+2
			if w == "hw" {
				kind = hitHWSynd
			}
		default:
			// "status 12 vendor 0x81", but not the vendor of a PCI device.
			if n, next, ok := number(t, i+1); ok && w == "vendor" && n.value <= 0xff {
				return hit{kind: hitVendor, value: n.value, hex: n.hex, name: w, next: next}
			}
			return hit{}
		}
	case "error", "err":
		// "with error 12", "WC error: 4"; of a CQE it is the opcode that
		// DPDK prints in both radixes.
		if prev != "with" && prev != "wc" && prev != "completion" && prev != "cqe" {
			return hit{}
		}
		kind, name = hitStatus, prev+" "+w
	case "qp":
		if next := word(t, i+1); next == "num" || next == "number" || next == "id" {
			name, at = "qp "+next, i+2
		}
	case "failed":
		// Lustre's o2iblnd: "kiblnd_tx_complete()) Tx -> ... failed 12".
		if !lustre(t[:i]) {
			return hit{}
		}
		kind = hitStatus
	case "wqe":
		return readIndex(t, i)
	case "opcode":
		return readOpcode(t, i)
	case "s_wqe_opcode_qpn":
		return readOpcodeQPN(t, i)
	}
	if kind == hitNone {
		return hit{}
	}
	if kind == hitQPN && (prev == "remote" || prev == "peer" || prev == "dest" || prev == "dst") {
		return hit{}
	}
	n, next, ok := number(t, at)
	if !ok || n.value > kind.largest() {
		return hit{}
	}
	h := hit{kind: kind, value: n.value, hex: n.hex, name: name, next: next}
	if kind == hitQPN && !n.hex && len(n.text) >= 6 && n.text[0] == '0' {
		// A number padded with zeros to the width of a QPN is
		// hexadecimal, as libmlx4 prints it.
		h.value, _ = strconv.ParseUint(n.text, 16, 32)
	}
	if kind == hitHWSynd && word(t, next) == "/" && next+1 < len(t) && t[next+1].kind == tokNumber {
		// UCX prints type and code as one.
		h.name, h.value, h.next = "hw_synd/", n.value&0xff<<8|t[next+1].value&0xff, next+2
	}
	if name == "vend_err" && !n.hex {
		// The iSER target prints it in hexadecimal without saying so.
		h.value, _ = strconv.ParseUint(n.text, 16, 32)
	}
	if name == "cqe error" && n.value >= 0xc && n.value <= 0xe && word(t, next) == "(" {
		h.kind = hitCQEOpcode
	}
	return h
}

// lustre says that a line is one of o2iblnd about a completion.
func lustre(t []token) bool {
	for _, x := range t {
		if x.text == "kiblnd_tx_complete" || x.text == "kiblnd_rx_complete" {
			return true
		}
	}
	return false
}

// readIndex reads wqe[n].
func readIndex(t []token, i int) hit {
	if i+3 < len(t) && t[i+1].text == "[" && t[i+2].kind == tokNumber && t[i+3].text == "]" && !t[i+2].hex {
		return hit{kind: hitIndex, value: t[i+2].value, name: "wqe[]", next: i + 4}
	}
	return hit{}
}

// readOpcode reads the opcode of a CQE, 0xd or 0xe, or the name that UCX gives
// the opcode of a request. Numbers of ibv_wc.opcode are garbage on failures.
func readOpcode(t []token, i int) hit {
	if op, ok := operations()[word(t, i+1)]; ok {
		return hit{kind: hitSendOp, value: uint64(op), name: "opcode", next: i + 2}
	}
	if n, next, ok := number(t, i+1); ok && n.hex && n.value >= 0xc && n.value <= 0xe {
		return hit{kind: hitCQEOpcode, value: n.value, name: "opcode", next: next}
	}
	return hit{}
}

// readOpcodeQPN reads the word of an error CQE that holds both.
func readOpcodeQPN(t []token, i int) hit {
	n, next, ok := number(t, i+1)
	if !ok || n.value > 0xffffffff || !mlx5.SendOpcode(n.value>>24).Known() {
		return hit{}
	}
	return hit{kind: hitSendOp, value: n.value, name: "s_wqe_opcode_qpn", next: next}
}

// readPhrase reads a status in words or as an identifier, with the number that
// may stand before or behind it in parentheses.
func readPhrase(t []token, i int, w string) hit {
	h := hit{}
	for _, p := range phrases()[w] {
		if i+len(p.words) > len(t) || !wordsAt(t, i, p.words) {
			continue
		}
		h = hit{kind: hitPhrase, value: uint64(p.status), name: "phrase", weak: p.weak, next: i + len(p.words)}
		if f := word(t, h.next); p.needs != "" && (len(f) < len("err") || f[:3] != "err") {
			h.weak = true
			if f == "violation" {
				return hit{}
			}
		}
		break
	}
	if h.kind == hitNone {
		s, ok := identifier(w)
		if !ok {
			return hit{}
		}
		h = hit{kind: hitName, value: uint64(s), name: "name", next: i + 1}
	}
	if j := opening(t, h.next); j+2 < len(t) && t[j+1].kind == tokNumber && t[j+2].text == ")" && t[j+1].value == h.value {
		h.sure, h.next = true, j+3
	}
	if i >= 4 && t[i-1].text == ":" && t[i-2].text == ")" && t[i-3].kind == tokNumber && t[i-4].text == "(" {
		h.sure = h.sure || t[i-3].value == h.value
	}
	// "prov_errno: 12 (transport retry counter exceeded)"
	if i >= 2 && t[i-1].text == "(" && t[i-2].kind == tokNumber {
		h.sure = h.sure || t[i-2].value == h.value
	}
	return h
}

// opening finds the parenthesis that follows within a few words, or the end.
func opening(t []token, i int) int {
	for j := i; j < len(t) && j < i+4; j++ {
		if t[j].text == "(" {
			return j
		}
		if t[j].kind != tokWord {
			break
		}
	}
	return len(t)
}

func wordsAt(t []token, i int, words []string) bool {
	for j, w := range words {
		x := t[i+j].text
		// The next line may be glued to the last word.
		if x != w && (j != len(words)-1 || len(w) < 5 || !strings.HasPrefix(x, w)) {
			return false
		}
	}
	return true
}

// readEvent reads the line that mlx5_ib prints for a QP that failed:
//
//	QP 51291 error: local length error (0x8e 0x0 0x0)
//
// Its value packs syndrome, vendor syndrome, type and code of the hardware.
func readEvent(t []token, i int, w string) hit {
	if w != "qp" || i+4 >= len(t) || t[i+1].kind != tokNumber || t[i+2].text != "error" || t[i+3].text != ":" {
		return hit{}
	}
	name := ""
	j := i + 4
	for ; j < len(t) && t[j].kind == tokWord && j < i+10; j++ {
		if name != "" {
			name += " "
		}
		name += t[j].text
	}
	if j+4 >= len(t) || t[j].text != "(" || t[j+4].text != ")" {
		return hit{}
	}
	v := uint64(eventNames()[name])
	for _, n := range t[j+1 : j+4] {
		if !n.hex || n.value > 0xff {
			return hit{}
		}
		v = v<<8 | n.value
	}
	return hit{kind: hitEvent, value: v, name: "qp event", next: j + 5}
}

// sideOf is whose request failed, as a pair of words tells.
func sideOf(word, next string) (side cq.Side, ok bool) {
	switch word + " " + next {
	case "send completion", "requestor error", "requester error", "send for", "memreg for", "local_inv for", "type send":
		return cq.SendSide, true
	case "recv completion", "receive completion", "responder error", "recv for", "type recv", "srq qp":
		return cq.RecvSide, true
	}
	return 0, false
}

func readSide(t []token, i int, w string) hit {
	next := word(t, i+1)
	if next == "=" {
		switch tail := word(t, i+2); {
		case w == "cq_type" && tail == "tx":
			return hit{kind: hitSide, value: uint64(cq.SendSide), name: "side", next: i + 3}
		case w == "cq_type" && tail == "rx":
			return hit{kind: hitSide, value: uint64(cq.RecvSide), name: "side", next: i + 3}
		}
	}
	if s, ok := sideOf(w, next); ok && (next != "for" || word(t, i+2) == "cqe") {
		return hit{kind: hitSide, value: uint64(s), name: "side", next: i + 1}
	}
	return hit{}
}
