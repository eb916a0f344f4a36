package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/abi/request"
)

// ParseScript reads faults from text, one a line:
//
//	# the third SEND of a queue pair is lost, and every repetition of it
//	request 3 times=forever device=sim0 qp=0x100 op=send: drop
//	request: delay 5ms
//	request 2: behind 3 at-most=10ms
//	request: not-ready timer=12
//	request 4: fail syndrome=0x13 vendor=0x88
//	completion 2 cq=0x400: hold 10ms
//	completion: overrun
//	completion 3: lose
//	event 1: lose
//	event 2: duplicate
//	async type=10: delay 3ms
//	ioctl method=IB_USER_VERBS_CMD_REG_MR: refuse ENOMEM
//	ioctl 5: slow 1s
//	time 10ms device=sim0: port 1 down
//	time 10ms device=sim0: gid 1 2 fe80::1 roce2
//	time 1s device=sim0: fatal
//
// Before the colon stands where, and which of those that match: the n-th, by default
// the first. Behind it stands what happens. A hold without a time lasts until
// [Model.Release]. Numbers are decimal or 0x. Empty lines and lines that begin with #
// say nothing. Each key stands once in a line, and a time has a device. What could never
// happen is an error, which names the line.
func ParseScript(text string) ([]Fault, error) {
	lines, err := parseScript(text)
	if err != nil {
		return nil, err
	}
	var all []Fault
	for _, l := range lines {
		all = append(all, l.Fault)
	}
	return all, nil
}

// scriptLine is a fault of a script and where it stands.
type scriptLine struct {
	Fault
	n int
}

func (l *scriptLine) wrong(err error) error {
	return fmt.Errorf("model: line %d of the script: %w", l.n, err)
}

func parseScript(text string) (all []scriptLine, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		l := scriptLine{n: n}
		if l.Fault, err = parseFault(line); err != nil {
			return nil, l.wrong(err)
		}
		all = append(all, l)
	}
	return all, nil
}

// Script injects the faults of a script, all or, where one is wrong, none. The error
// names the line.
func (m *Model) Script(text string) error {
	lines, err := parseScript(text)
	if err != nil {
		return err
	}
	m.enter()
	defer m.leave()
	for i := range lines {
		if err := m.check(&lines[i].Fault); err != nil {
			return lines[i].wrong(err)
		}
	}
	for i := range lines {
		m.inject(lines[i].Fault)
	}
	return nil
}

var points = map[string]Point{
	"request": AtRequest, "completion": AtCompletion, "event": AtEvent, "async": AtAsync, "ioctl": AtIoctl, "time": AtTime,
}

var opcodes = map[string]uint8{
	"nop": wqeNop, "send-inv": wqeSendInv, "write": wqeWrite, "write-imm": wqeWriteImm, "send": wqeSend, "send-imm": wqeSendImm,
	"read": wqeRead, "cas": wqeCompSwap, "faa": wqeFetchAdd, "umr": wqeUMR,
}

func parseFault(line string) (f Fault, err error) {
	where, what, ok := strings.Cut(line, ": ")
	if !ok {
		return f, fmt.Errorf("%q has no colon and space: before it stands where, behind it what happens", line)
	}
	words := strings.Fields(where)
	if len(words) == 0 {
		return f, fmt.Errorf("nothing says where %q happens: request, completion, event, async, ioctl or time", what)
	}
	if f.At, ok = points[words[0]]; !ok {
		return f, fmt.Errorf("%q is no place for a fault: request, completion, event, async, ioctl or time", words[0])
	}
	seen := make(map[string]bool)
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case !ok:
			key, err = "", f.position(w)
		case value == "":
			err = fmt.Errorf("%q has nothing behind it", w)
		default:
			err = f.narrow(key, value)
		}
		if err != nil {
			return f, err
		}
		if seen[key] {
			return f, fmt.Errorf("%q says again what stands before it: each may be said once", w)
		}
		seen[key] = true
	}
	if f.Do, err = parseAction(strings.Fields(what)); err != nil {
		return f, err
	}
	if !slices.Contains(actionPoints(f.Do), f.At) {
		return f, fmt.Errorf("%q cannot happen at %q", what, words[0])
	}
	return f, f.check()
}

// position reads the word without a key behind the point: a time, or which of those
// that match.
func (f *Fault) position(w string) (err error) {
	if f.At == AtTime {
		f.After, err = parseTime(w)
		return err
	}
	f.Nth, err = parseCount(w)
	return err
}

// narrow reads a word with a key behind the point.
func (f *Fault) narrow(key, value string) (err error) {
	switch {
	case key == "device":
		f.Device = value
	case key == "times" && value == "forever":
		f.Times = Forever
	case key == "times":
		f.Times, err = parseCount(value)
	case key == "qp" && f.At == AtRequest, key == "cq" && (f.At == AtCompletion || f.At == AtEvent):
		n, e := parseNumber(value, psnMask)
		if e == nil && n == 0 {
			e = fmt.Errorf("%s=0 is no number of a queue: leave it out for all", key)
		}
		f.Number, err = uint32(n), e
	case key == "type" && f.At == AtAsync:
		n, e := parseNumber(value, 1<<16)
		f.Number, err = uint32(n)+1, e
	case key == "op" && f.At == AtRequest:
		if f.Opcode, f.HasOpcode = opcodes[value]; !f.HasOpcode {
			return fmt.Errorf("%q is no opcode: nop, send, send-imm, send-inv, write, write-imm, read, cas, faa or umr", value)
		}
	case key == "method" && f.At == AtIoctl:
		f.Method = value
	default:
		return fmt.Errorf("%q does not narrow down this kind of fault: device and times do all, qp and op a request, cq a completion or event, type an async, method an ioctl", key)
	}
	return err
}

// parseCount reads a number that counts from 1.
func parseCount(s string) (int, error) {
	n, err := parseNumber(s, maxCount)
	if err == nil && n == 0 {
		err = fmt.Errorf("they are counted from 1, not 0")
	}
	return int(n), err
}

func parseNumber(s string, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%q is no number up to %d", s, most)
	}
	return n, nil
}

func parseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no time, such as 10ms", s)
	}
	return d, nil
}

// arguments are the words of an action, each of which is to be read once.
type arguments struct {
	words []string
	err   error
}

func (a *arguments) next() string {
	if len(a.words) == 0 {
		a.fail(fmt.Errorf("something is missing at the end"))
		return ""
	}
	w := a.words[0]
	a.words = a.words[1:]
	return w
}

func (a *arguments) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *arguments) number(most uint64) uint64 {
	n, err := parseNumber(a.next(), most)
	a.fail(err)
	return n
}

func (a *arguments) time() time.Duration {
	d, err := parseTime(a.next())
	a.fail(err)
	return d
}

// named reads key=value, by default nothing.
func (a *arguments) named(key string) (value string, ok bool) {
	for i, w := range a.words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			a.words = append(a.words[:i:i], a.words[i+1:]...)
			return v, true
		}
	}
	return "", false
}

func (a *arguments) namedNumber(key string, most uint64) uint64 {
	v, ok := a.named(key)
	if !ok {
		return 0
	}
	n, err := parseNumber(v, most)
	a.fail(err)
	return n
}

func parseAction(words []string) (Action, error) {
	a := &arguments{words: words}
	var act Action
	switch verb := a.next(); verb {
	case "drop":
		act = Drop{}
	case "delay":
		act = Delay{a.time()}
	case "behind":
		b := Behind{}
		if v, ok := a.named("at-most"); ok {
			d, err := parseTime(v)
			a.fail(err)
			b.AtMost = d
		}
		b.Requests = int(a.number(maxBehind))
		act = b
	case "not-ready":
		act = NotReady{uint8(a.namedNumber("timer", 31))}
	case "fail":
		act = Fail{uint8(a.namedNumber("syndrome", 255)), uint8(a.namedNumber("vendor", 255))}
	case "hold":
		h := Hold{}
		if len(a.words) > 0 {
			h.For = a.time()
		}
		act = h
	case "overrun":
		act = Overrun{}
	case "lose":
		act = Lose{}
	case "duplicate":
		act = Duplicate{}
	case "slow":
		act = Slow{a.time()}
	case "refuse":
		act = Refuse{a.errno()}
	case "port":
		p := Port{Number: int(a.number(2))}
		switch state := a.next(); state {
		case "up", "down":
			p.Up = state == "up"
		default:
			a.fail(fmt.Errorf("a port goes up or down, not %q", state))
		}
		act = p
	case "gid":
		act = a.gid()
	case "fatal":
		act = Fatal{}
	default:
		a.fail(fmt.Errorf("%q is nothing that can happen", verb))
	}
	if a.err == nil && len(a.words) > 0 {
		a.fail(fmt.Errorf("%q is too much", strings.Join(a.words, " ")))
	}
	return act, a.err
}

// errno reads a name or number.
func (a *arguments) errno() request.Errno {
	w := a.next()
	for e := request.Errno(1); e < 134; e++ {
		if e.String() == w {
			return e
		}
	}
	n, err := parseNumber(w, maxErrno)
	if err != nil || n == 0 {
		a.fail(fmt.Errorf("%q is no errno that the ioctl returns: a name such as ENOMEM, or a number", w))
	}
	return request.Errno(n)
}

var gidTypes = map[string]GIDType{"ib": GIDInfiniBand, "roce1": GIDRoCE1, "roce2": GIDRoCE2}

// gid reads a port, an index, and an address with its type, or "none".
func (a *arguments) gid() Action {
	g := ChangeGID{Port: int(a.number(2)), Index: int(a.number(gidTableLength - 1))}
	w := a.next()
	if w == "none" {
		return g
	}
	addr, err := netip.ParseAddr(w)
	if err != nil || addr.Zone() != "" || addr.As16() == [16]byte{} {
		a.fail(fmt.Errorf("%q is no GID, such as fe80::1 or 10.0.0.1, or none", w))
		return g
	}
	var ok bool
	t := a.next()
	if g.GID.Type, ok = gidTypes[t]; !ok {
		a.fail(fmt.Errorf("%q is no type of GID: ib, roce1 or roce2", t))
	}
	g.GID.Addr = addr.As16()
	return g
}
