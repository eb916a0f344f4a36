package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// mostDifferences is how many differences there may be.
const mostDifferences = 10

// A difference is one that is allowed, because both sides are right.
type difference struct {
	name, reason string
	// extra says of a record that one side may have it and the other not.
	extra func(r *record) bool
	// fields are those in which the sides may differ.
	fields []fieldRule
}

// fieldRule is fields of records of a kind; of and name are patterns.
type fieldRule struct {
	kind     recordKind
	of, name string
	with     string // if not empty, some field of the record is so: its name, a blank and its value
}

// differences are all that are allowed.
var differences = []difference{
	{
		name:   "DevX",
		reason: "libmlx5 asks for a context that may send commands to the firmware, which goverbs never does",
		fields: []fieldRule{{kind: recordIoctl, of: `DEVICE\.GET_CONTEXT`, name: `UHW_IN\+8`}},
	},
	{
		name:   "queries",
		reason: "each asks at other times what the device is and can do, from which nothing follows",
		extra:  func(r *record) bool { return r.kind == recordIoctl && queries.MatchString(r.of) },
	},
	{
		name:   "state after events",
		reason: "goverbs asks for the state of a queue pair of which an event says that it failed: the event may be late, and the queue pair a new one",
		extra:  func(r *record) bool { return r.kind == recordIoctl && r.of == queryQP },
	},
	{
		name:   "response pointer",
		reason: "write commands begin with the address of their response, at which the kernel does not look when they come in an ioctl, where the response is an attribute: libmlx5 fills it in all the same",
		fields: []fieldRule{{kind: recordIoctl, of: `DEVICE\.INVOKE_WRITE (ALLOC_PD|CREATE_COMP_CHANNEL|REG_MR|REREG_MR|ALLOC_MW|CREATE_AH|RESIZE_CQ|QUERY_QP)`, name: `CORE_IN\+0`}},
	},
	{
		name:   "what fits",
		reason: "libibverbs tells the kernel what a queue turned out to have room for, inline bytes of a QP and pointers of an SRQ, goverbs what the program asked for: the driver of ConnectX uses neither",
		fields: []fieldRule{{kind: recordIoctl, of: `QP\.QP_CREATE`, name: `CREATE_QP_CAP\+16`}, {kind: recordIoctl, of: `SRQ\.SRQ_CREATE`, name: `CREATE_SRQ_MAX_SGE\+0`}},
	},
	{
		name:   "registers",
		reason: "how many pages of combining registers there are, and which of them a QP has, is each library's choice",
		extra:  combiningPage,
		fields: []fieldRule{{kind: recordIoctl, of: `QP\.QP_CREATE`, name: `UHW_IN\+36`}, {kind: recordDoorbell, of: `QP .*`, name: "register"}},
	},
	{
		name:   "PSN of datagrams",
		reason: "goverbs begins to number the packets of a UD queue pair at random, and a program in C where it likes: nobody is told the number",
		fields: []fieldRule{{recordIoctl, `DEVICE\.INVOKE_WRITE MODIFY_QP`, `CORE_IN\+80`, `CORE_IN\+64 QP \d+ \(UD\)`}},
	},
	{
		name:   "unused bytes of requests",
		reason: "an addition compares nothing, inline data ends before its segment does, and a bind says by a mask which fields of a window it sets: goverbs writes 0 where nobody looks, libmlx5 leaves there what an older request wrote",
		fields: []fieldRule{{kind: recordWQE, of: `SQ .*`, name: ".*, unused"}},
	},
	{
		name:   "AH on InfiniBand",
		reason: "libmlx5 makes the addresses of datagrams by itself there, and goverbs has the kernel look at them too",
		extra: func(r *record) bool {
			return r.kind == recordIoctl && (r.of == invoke+"CREATE_AH" || r.of == "AH.AH_DESTROY")
		},
	},
}

var queries = regexp.MustCompile(`^DEVICE\.(INVOKE_WRITE (EX_CMD_)?QUERY_DEVICE|QUERY_PORT|QUERY_GID)|^DEVX\.`)

// combiningPage says whether a record makes a page of combining registers, or destroys a page.
func combiningPage(r *record) bool {
	switch {
	case r.kind != recordIoctl:
	case r.of == "UAR.UAR_OBJ_DESTROY":
		return true
	case r.of == allocUAR:
		return slices.Contains(r.parts, field{"UAR_OBJ_ALLOC_TYPE+0", "00000000"})
	}
	return false
}

// side is what one program did.
type side struct {
	name    string
	records []record
}

// mismatch says how the sides differ, in words.
type mismatch struct {
	step int
	text string
}

func (m *mismatch) Error() string { return fmt.Sprintf("step %d: %s", m.step, m.text) }

// compare compares what both sides did, step by step, and counts allowed differences by name.
func compare(c, g side, seen map[string]int) error {
	left, right := without(c.records, g.records, seen)
	for i := range max(len(left), len(right)) {
		a, b := at(left, i), at(right, i)
		if a == nil || b == nil || a.step != b.step || a.kind != b.kind || a.of != b.of {
			return missing(c.name, g.name, a, b)
		}
		if err := same(c.name, g.name, a, b, seen); err != nil {
			return err
		}
	}
	return nil
}

// without leaves out what one side may have and the other not, unless they are alike in it.
func without(a, b []record, seen map[string]int) (left, right []record) {
	left, right = a, b
	for i := range differences {
		d := &differences[i]
		if d.extra == nil {
			continue
		}
		l, inLeft := divide(left, d.extra)
		r, inRight := divide(right, d.extra)
		if !slices.EqualFunc(inLeft, inRight, func(a, b record) bool { return a.step == b.step && a.of == b.of }) {
			left, right = l, r
			seen[d.name] += max(len(inLeft), len(inRight))
		}
	}
	return left, right
}

// divide divides records.
func divide(all []record, out func(*record) bool) (rest, taken []record) {
	for i := range all {
		if out(&all[i]) {
			taken = append(taken, all[i])
		} else {
			rest = append(rest, all[i])
		}
	}
	return rest, taken
}

func at(l []record, i int) *record {
	if i < len(l) {
		return &l[i]
	}
	return nil
}

// missing is a record that is not there on the other side.
func missing(cName, gName string, a, b *record) error {
	step := 0
	switch {
	case a != nil && b != nil:
		step = min(a.step, b.step)
	case a != nil:
		step = a.step
	default:
		step = b.step
	}
	return &mismatch{step, fmt.Sprintf("the next thing is\n  %s: %s\n  %s: %s", cName, a.describe(), gName, b.describe())}
}

// describe says what a record is, in words and bytes.
func (r *record) describe() string {
	if r == nil {
		return "nothing more"
	}
	s := fmt.Sprintf("step %d, %s %s", r.step, recordNames[r.kind], r.of)
	if r.event != nil {
		s += " (" + r.event.String() + ")"
	}
	if r.parts != nil {
		var l []string
		for _, p := range r.parts {
			l = append(l, p.name+" "+p.value)
		}
		return s + "\n    " + strings.Join(l, "\n    ")
	}
	if r.kind == recordOutput || r.kind == recordEvent {
		return s + ": " + string(r.bytes)
	}
	return s + fmt.Sprintf("\n    % x", r.bytes)
}

// same compares two records, field by field if they differ.
func same(cName, gName string, a, b *record, seen map[string]int) error {
	if a.parts == nil && bytes.Equal(a.bytes, b.bytes) || a.parts != nil && slices.Equal(a.parts, b.parts) {
		return nil
	}
	var wrong []string
	left, right := a.fields(), b.fields()
	for k := range max(len(left), len(right)) {
		var l, r field
		if k < len(left) {
			l = left[k]
		}
		if k < len(right) {
			r = right[k]
		}
		if l == r || allowedField(a, l, r, seen) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("  %s: %s: %s\n  %s: %s: %s", cName, l.name, l.value, gName, r.name, r.value))
	}
	if len(wrong) == 0 {
		return nil
	}
	return &mismatch{a.step, fmt.Sprintf("%s %s differs in\n%s\nall of it:\n  %s: %s\n  %s: %s", recordNames[a.kind], a.of, strings.Join(wrong, "\n"), cName, a.describe(), gName, b.describe())}
}

// allowedField says whether the sides may differ in a field, and by which name.
func allowedField(r *record, l, g field, seen map[string]int) bool {
	if l.name != g.name {
		return false
	}
	for i := range differences {
		for j := range differences[i].fields {
			if differences[i].fields[j].matches(r, l.name) {
				seen[differences[i].name]++
				return true
			}
		}
	}
	return false
}

func (p *fieldRule) matches(r *record, name string) bool {
	return p.kind == r.kind && matches(p.of, r.of) && matches(p.name, name) &&
		(p.with == "" || slices.ContainsFunc(r.fields(), func(f field) bool { return matches(p.with, f.name+" "+f.value) }))
}

// matches says whether a whole string has a pattern.
func matches(pattern, s string) bool {
	re, ok := patterns[pattern]
	if !ok {
		re = regexp.MustCompile("^(" + pattern + ")$")
		patterns[pattern] = re
	}
	return re.MatchString(s)
}

// patterns are those that were used. One goroutine compares.
var patterns = make(map[string]*regexp.Regexp)

// fields are the parts of a record by name.
func (r *record) fields() []field {
	if r.parts != nil {
		return r.parts
	}
	switch r.kind {
	case recordWQE:
		return wqeFields(r.bytes, strings.Contains(r.of, "(UD)"))
	case recordReceive:
		l := []field{}
		b := r.bytes
		if len(b)%16 == 0 && strings.HasPrefix(r.of, "SRQ") && len(b) >= 16 {
			l = append(l, field{"next segment", fmt.Sprintf("%x", b[:16])})
			b = b[16:]
		}
		return append(l, pointerFields(b)...)
	case recordCQE:
		return cqeFields(r.bytes)
	}
	return []field{{recordNames[r.kind], string(r.bytes)}}
}

// cut takes named pieces off bytes.
func cut(b []byte, names ...any) (l []field, rest []byte) {
	for i := 0; i+1 < len(names); i += 2 {
		n := min(names[i+1].(int), len(b))
		l = append(l, field{names[i].(string), fmt.Sprintf("%x", b[:n])})
		b = b[n:]
	}
	return l, b
}

func pointerFields(b []byte) (l []field) {
	for i := 0; len(b) >= 16; i++ {
		var f []field
		f, b = cut(b, fmt.Sprintf("data pointer %d: bytes", i), 4, fmt.Sprintf("data pointer %d: key", i), 4, fmt.Sprintf("data pointer %d: address", i), 8)
		l = append(l, f...)
	}
	if len(b) > 0 {
		l = append(l, field{"rest", fmt.Sprintf("%x", b)})
	}
	return l
}

// unused ends the names of fields of a request at which no device looks.
const unused = ", unused"

// wqeFields are the fields of a request, by rules of its own: no table of another package's has a
// say here.
func wqeFields(b []byte, datagram bool) []field {
	l, rest := cut(b, "op_mod, index, opcode", 4, "QPN, DS", 4, "signature", 1, "stream", 2, "fence, completion, solicited", 1, "immediate", 4)
	if len(b) < 16 {
		return l
	}
	opcode := b[3]
	add := func(names ...any) {
		var f []field
		f, rest = cut(rest, names...)
		l = append(l, f...)
	}
	switch opcode {
	case 0x08, 0x09, 0x10, 0x11, 0x12: // writes, read and atomics
		add("remote address", 8, "remote key", 4, "reserved behind the remote key", 4)
	case 0x25: // UMR
		for i := 0; i < 48 && len(rest) > 0; i += 4 {
			add(fmt.Sprintf("UMR+%d", i), 4)
		}
		mask := uint64(0) // enum of MLX5_WQE_UMR_CTRL_MKEY_MASK bits in infiniband/mlx5dv.h
		if len(b) >= 32 {
			mask = binary.BigEndian.Uint64(b[24:])
		}
		set := func(name string, bits uint64) string {
			if mask&bits == 0 {
				name += unused
			}
			return "mkey: " + name
		}
		add(set("free", 1<<29), 1, set("reserved 1", 0), 1, set("access", 0xf<<18), 1, set("SF", 0), 1, set("QPN, key", 3<<13), 4, set("reserved 8", 0), 4, set("flags, PD", 0), 4,
			set("start", 1<<6), 8, set("bytes", 1), 8, set("BSF", 0), 4, set("reserved 36", 0), 16, set("translations", 0), 4, set("reserved 56", 0), 3,
			set("page size", 1<<1), 1, set("reserved 60", 0), 4)
		for i := 0; len(rest) > 0; i += 4 {
			add(fmt.Sprintf("translation+%d", i), 4)
		}
		return l
	}
	if opcode == 0x11 || opcode == 0x12 {
		compare := "compare"
		if opcode == 0x12 {
			compare += unused
		}
		add("swap or add", 8, compare, 8)
	}
	if datagram {
		add("Q_Key", 4, "reserved behind the Q_Key", 4, "extended, destination QPN", 4, "static rate, SL", 1, "path bits", 1, "LID or UDP port", 2, "reserved before the MAC", 4, "MAC", 6,
			"traffic class", 1, "hop limit", 1, "flow label, source index", 4, "GID", 16)
	}
	if len(rest) >= 4 && binary.BigEndian.Uint32(rest)&(1<<31) != 0 {
		n := int(binary.BigEndian.Uint32(rest) &^ (1 << 31))
		add("inline bytes", 4, "inline data", n)
		return append(l, field{"padding behind inline data" + unused, fmt.Sprintf("%x", rest)})
	}
	return append(l, pointerFields(rest)...)
}

func cqeFields(b []byte) []field {
	before := b[:len(b)-64]
	l, _ := cut(b[len(before):], "head", 17, "path", 1, "reserved", 4, "SLID", 2, "flags, source QPN", 4, "reserved", 4, "user index", 4, "immediate", 4, "reserved", 4, "byte count", 4,
		"time", 8, "send opcode, QPN", 4, "counter", 2, "signature", 1, "opcode, format, owner", 1)
	if len(before) > 0 {
		l = append(l, field{"before", fmt.Sprintf("%x", before)})
	}
	return l
}

// errDiffers is that programs differ in what is not allowed.
var errDiffers = errors.New("the programs differ")
