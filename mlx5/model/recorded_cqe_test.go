package model

import (
	"bytes"
	"strings"
	"testing"
)

// verbsOps are the send opcodes by the numbers of enum ibv_wr_opcode.
var verbsOps = []uint8{wqeWrite, wqeWriteImm, wqeSend, wqeSendImm, wqeRead, wqeCompSwap, wqeFetchAdd, wqeUMR, wqeUMR, wqeSendInv}

// From what libmlx5 made of a CQE the model's writer makes the same CQE, in all bytes
// that say something.
func TestWritesRecordedCQEs(t *testing.T) {
	var queue map[string]string
	n := 0
	for _, c := range recorded(t, "cqe.txt") {
		if q := c.one("queue"); q != "" {
			queue = fields(q)
			continue
		}
		posted, wc := fields(c.one("posted")), fields(c.one("wc"))
		if c.one("poll") != "1" || c.one("posted") == "" || wc["status"] == "" || strings.Contains(c.name, "unknown") || strings.Contains(c.name, "tso") || strings.Contains(c.name, "masked") ||
			strings.Contains(c.name, "nop") || strings.Contains(c.name, "too-long") {
			continue // not what the model writes
		}
		n++
		want := recordedBytes(t, c.one("cqe"))
		e := expectedCompletion(t, &c, queue, posted, wc, want)
		version := uint8(1)
		if strings.HasPrefix(c.name, "v0-") {
			version, e.uidx, e.srqn = 0, 0xabcdef, 0
		}
		got := make([]byte, len(want))
		before, b := got[:len(got)-cqeBytes], got[len(got)-cqeBytes:]
		e.encode(b, version)
		e.encodeInline(before, b)
		q := &cq{entries: uint32(num(t, queue["cq_entries"]))}
		b[63] |= q.owner(uint32(num(t, c.one("ci"))))
		compareCQE(t, c.name, e, got, want)
	}
	if n < 50 {
		t.Errorf("only %d CQEs", n)
	}
}

// expectedCompletion is what the device meant, by what the program got.
func expectedCompletion(t *testing.T, c *recordedCase, queue, posted, wc map[string]string, cqe []byte) *completion {
	t.Helper()
	side, _, _ := strings.Cut(c.one("posted"), " ")
	e := &completion{
		qpn: uint32(num(t, wc["qp_num"])), uidx: uint32(num(t, queue["uidx"])), counter: uint16(num(t, posted["index"])), bytes: uint32(num(t, wc["byte_len"])),
		slid: uint16(num(t, wc["slid"])), path: uint8(num(t, wc["dlid_path_bits"])), imm: uint32(num(t, wc["imm_or_rkey"])),
		source: uint32(num(t, wc["src_qp"])) | uint32(num(t, wc["sl"]))<<sourceSLShift, solicited: strings.Contains(c.name, "solicited"),
	}
	if side == "send" {
		e.opcode, e.sendOp = opRequester, verbsOps[num(t, posted["op"])]
	} else {
		e.opcode = opSend
		switch flags := num(t, wc["flags"]); {
		case wc["opcode"] == "129":
			e.opcode = opWriteImm
		case flags&2 != 0:
			e.opcode = opSendImm
		case flags&8 != 0:
			e.opcode = opSendInv
		}
	}
	for g, name := range []string{"", "grh-1", "grh-2", "grh-3"} {
		if g > 0 && strings.Contains(c.name, name) {
			e.source |= uint32(g) << 28
		}
	}
	if wc["status"] != "0" {
		e.syndrome, e.vendor = cqe[len(cqe)-9], uint8(num(t, wc["vendor_err"]))
		if e.opcode == opRequester {
			e.opcode = opReqErr
		} else {
			e.opcode = opRespErr
		}
		return e
	}
	if inline := strings.Contains(c.name, "inline"); inline {
		// The payload is what landed, in the order of the buffers.
		var payload string
		for _, l := range c.keys["landed"] {
			_, data, _ := strings.Cut(l, ":")
			payload += data
		}
		e.inline = recordedBytes(t, payload)
		if side == "send" {
			e.bytes = uint32(len(e.inline))
		}
	}
	return e
}

// compareCQE compares the fields of a CQE that mean something.
func compareCQE(t *testing.T, name string, e *completion, got, want []byte) {
	t.Helper()
	base := len(got) - cqeBytes
	check := func(what string, from, to int) {
		t.Helper()
		if !bytes.Equal(got[base+from:base+to], want[base+from:base+to]) {
			t.Errorf("%s: %s is %x, recorded %x", name, what, got[base+from:base+to], want[base+from:base+to])
		}
	}
	if !strings.HasPrefix(name, "v0-send") {
		check("srqn or user index", 33, 36) // nobody reads it there
	}
	check("QPN", 57, 60)
	check("counter", 60, 62)
	if e.inline != nil && strings.Contains(name, "128") && strings.HasSuffix(name, "inline32") {
		// A device may put 32 bytes into either place of a big CQE; the model uses the
		// one in front.
		got[base+63] ^= formatInline32 | formatInline64
	}
	check("op_own", 63, 64)
	if e.failed() {
		check("syndromes", 54, 56)
		return
	}
	if e.opcode == opRequester {
		check("opcode of the request", 56, 57)
	}
	switch n := len(e.inline); {
	case n == 0 && e.inline == nil:
		if e.opcode != opRequester {
			// Junk stands in the bits that mean nothing.
			const reservedPath, reservedSource = 0x80, 0xc0
			got[base+17] |= reservedPath & want[base+17]
			got[base+24] |= reservedSource & want[base+24]
			check("path", 17, 18)
			check("slid", 22, 24)
			check("source", 24, 28)
		}
	case base == 0:
		check("payload", 0, n)
	case strings.HasSuffix(name, "inline32"):
		if !bytes.Equal(got[:n], want[base:][:n]) {
			t.Errorf("%s: payload %x, recorded %x", name, got[:n], want[base:][:n])
		}
	default:
		check("payload", -base, n-base)
	}
	if e.opcode == opWriteImm || e.opcode == opSendImm || e.opcode == opSendInv {
		check("immediate", 36, 40)
	}
	if e.opcode != opRequester || e.sendOp == wqeRead {
		check("byte count", 44, 48)
	}
}
