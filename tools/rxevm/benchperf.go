//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/tools/internal/paired"
	"github.com/goverbs/goverbs/tools/internal/plural"
)

// perfBench is rxevm bench -perf: verbs perf and perftest by turns in one guest, and how long
// programs in Go and in C take to have a queue pair in RTS.
type perfBench struct {
	host  *host
	guest guestConfig
	out   io.Writer
	json  bool
	quick bool
	// instructions has the guest's clock count instructions: benchperfinstructions.go.
	instructions bool
	pairs        int // of each row
	iters        int // round trips of a latency
	only         *regexp.Regexp
}

// A perfCase is one measurement that both programs make.
type perfCase struct {
	verb     string // send, write or read
	latency  bool   // or else the message rate
	events   bool
	bytes    int
	postList int
	iters    int
	// instructions is that they run on a clock that counts these.
	instructions bool
}

// What both programs are told besides; perftest's own choices but for signalEvery, which it makes
// the post list where there is one.
const (
	perfSendDepth   = 128
	perfRecvDepth   = 512
	perfSignalEvery = 32
	// perfTimeout is 1.07 s. Both have 67 ms by themselves, within which an emulated guest on a
	// busy machine does not always get to answer: then packets are sent again, and the pauses
	// until then are what is measured.
	perfTimeout = 18
)

// cases are all measurements, or what -quick leaves of them.
func (b *perfBench) cases() (all []perfCase) {
	small, large := 16000, 6400
	if b.quick {
		small, large = 4800, 1600
	}
	for _, verb := range []string{"send", "write", "read"} {
		for _, bytes := range []int{64, 4096} {
			for _, list := range []int{1, perfSignalEvery} {
				iters := small
				if bytes > gameMTU {
					iters = large
				}
				all = append(all, perfCase{verb: verb, bytes: bytes, postList: list, iters: iters})
			}
		}
	}
	for _, c := range []perfCase{{verb: "send"}, {verb: "send", events: true}, {verb: "write"}, {verb: "read"}, {verb: "read", events: true}} {
		if b.quick && c.verb != "send" {
			continue
		}
		for _, bytes := range []int{64, 4096} {
			c.latency, c.bytes, c.iters = true, bytes, b.iters
			all = append(all, c)
		}
	}
	if b.instructions {
		return byInstructions(all)
	}
	return all
}

// test is the name of the test, as verbs perf has it; perftest's programs are called so with ib_.
func (c perfCase) test() string {
	if c.latency {
		return c.verb + "_lat"
	}
	return c.verb + "_bw"
}

// wait is how the programs wait.
func (c perfCase) wait() string {
	if c.events {
		return "event"
	}
	return "busy"
}

// String names the case; -run matches it.
func (c perfCase) String() string {
	if c.latency {
		return fmt.Sprintf("%s %s %d bytes", c.test(), c.wait(), c.bytes)
	}
	return fmt.Sprintf("%s %d bytes, post list %d", c.test(), c.bytes, c.postList)
}

// args are the flags that both programs take. Nothing goes inline: perftest does not on
// soft-RoCE.
func (c perfCase) args(port uint16) []string {
	a := []string{"-d", "rxe0", "-x", "1", "-p", strconv.Itoa(int(port)), "-s", strconv.Itoa(c.bytes), "-n", strconv.Itoa(c.iters), "-u", strconv.Itoa(perfTimeout)}
	if c.events {
		a = append(a, "-e")
	}
	if c.verb != "read" {
		a = append(a, "-I", "0")
	}
	if c.verb == "send" {
		a = append(a, "-r", strconv.Itoa(perfRecvDepth))
	}
	if !c.latency {
		a = append(a, "-t", strconv.Itoa(perfSendDepth), "-Q", strconv.Itoa(perfSignalEvery), "-l", strconv.Itoa(c.postList))
	}
	return a
}

// command is a program's command: 0 is verbs perf, without its warm-up, which perftest does not
// have, and 1 perftest.
func (c perfCase) command(program int, port uint16) []string {
	if program == 0 {
		return append([]string{"verbs", "perf", c.test(), "-json", "-warmup", "0"}, c.args(port)...)
	}
	own := []string{"ib_" + c.test(), "-F"}
	if c.latency {
		own = append(own, "-U") // for the average of all
	}
	return append(own, c.args(port)...)
}

// A perfFigure is what one run of a program gave.
type perfFigure struct {
	rate             float64 // messages a second
	typical, average float64 // usec
	cpu              float64 // nsec of both processes, per message of the client
}

// perfTries is how often a run is made whose clock perftest does not understand.
const perfTries = 5

// perfPatience is how long a run may take.
const perfPatience = 5 * time.Minute

// measure makes one run.
func (c perfCase) measure(ctx context.Context, v *vm, program int, port *uint16) (f perfFigure, err error) {
	for range perfTries {
		*port++
		command := c.command(program, *port)
		server := job{Args: command, Env: v.environ()}
		client := job{Args: append(command[:len(command):len(command)], guestAddr), Env: v.environ(), Listen: *port}
		d, derr := v.duet(ctx, server, client, perfPatience)
		if derr == nil {
			f, derr = c.figure(program, d[1].stdout.String())
		}
		if derr == nil {
			f.cpu = float64(d[0].exit.CPU+d[1].exit.CPU) / float64(c.iters)
			return f, nil
		}
		err = fmt.Errorf("%q: %w%s%s", command, derr, indented(d[0].stderr.String()), indented(d[1].stdout.String()+d[1].stderr.String()))
		if !errors.Is(derr, errPerftestClock) {
			break
		}
	}
	return f, err
}

// A perfReport is what of verbs perf's JSON is needed.
type perfReport struct {
	Bytes          int     `json:"bytes"`
	Iterations     int64   `json:"iterations"`
	Partial        bool    `json:"partial"`
	MessagesPerSec float64 `json:"messages_per_s"`
	Latency        *struct {
		Typical float64 `json:"typical"`
		Avg     float64 `json:"avg"`
	} `json:"latency_usec"`
}

// figure reads what the client has printed.
func (c perfCase) figure(program int, out string) (f perfFigure, err error) {
	var iters int64
	bytes := 0
	if program == 0 {
		var r perfReport
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			return f, fmt.Errorf("verbs perf printed no report: %w", err)
		}
		if r.Partial {
			return f, errors.New("verbs perf was interrupted")
		}
		f.rate, iters, bytes = r.MessagesPerSec, r.Iterations, r.Bytes
		if r.Latency != nil {
			f.typical, f.average = r.Latency.Typical, r.Latency.Avg
		}
	} else {
		rows, err := parsePerftest(out)
		if err != nil {
			return f, err
		}
		r := rows[0]
		f.rate, f.typical, f.average, iters, bytes = r.MessagesPerSec, r.Typical, r.OfAll, r.Iterations, r.Bytes
	}
	switch {
	case bytes != c.bytes || iters != int64(c.iters):
		return f, fmt.Errorf("it measured %d messages of %d bytes, not %d of %d", iters, bytes, c.iters, c.bytes)
	case c.latency && !(f.typical > 0 && f.average > 0), !c.latency && !(f.rate > 0):
		return f, errors.New("it measured nothing")
	}
	return f, nil
}

// run measures everything and prints each line as soon as it is there.
func (b *perfBench) run(ctx context.Context) error {
	cases := b.cases()
	cases = slices.DeleteFunc(cases, func(c perfCase) bool { return !b.only.MatchString(c.String()) })
	starts := !b.instructions && b.only.MatchString(startsName)
	if len(cases) == 0 && b.instructions {
		return exitError{exitUsage, fmt.Errorf("-run %q: no row has such a name; with -instructions there are write_bw and read_bw", b.only)}
	}
	if len(cases) == 0 && !starts {
		return exitError{exitUsage, fmt.Errorf("-run %q: no row has such a name; -run %s is how long programs take to begin", b.only, startsName)}
	}
	s := startsBench{turns: b.starts()}
	if starts {
		defer s.remove()
		if err := s.build(ctx, b.host, &b.guest); err != nil {
			return err
		}
	}
	v, err := b.host.boot(ctx, b.guest)
	if err != nil {
		return err
	}
	err = b.head(v)
	port := uint16(18600)
	for _, c := range cases {
		if err == nil {
			err = b.one(ctx, v, c, &port)
		}
	}
	if err == nil && starts {
		err = b.measureStarts(ctx, v, &s)
	}
	if err != nil {
		err = exitError{exitBroken, err}
	}
	return errors.Join(err, v.close(ctx))
}

// one measures one case by turns, and prints its lines. Which program begins a pair alternates, too.
func (b *perfBench) one(ctx context.Context, v *vm, c perfCase, port *uint16) error {
	var got [2][]perfFigure
	for i := range b.warmup() + b.pairs {
		for k := range 2 {
			p := (i + k) % 2
			f, err := c.measure(ctx, v, p, port)
			if err != nil {
				return err
			}
			if i >= b.warmup() {
				got[p] = append(got[p], f)
			}
		}
	}
	for _, l := range c.lines(got) {
		l.Kernel, l.Emulated = v.release, !v.machine.kvm
		if err := b.print(l); err != nil {
			return err
		}
	}
	return nil
}

// lines compares the figures of a case.
func (c perfCase) lines(got [2][]perfFigure) (all []perfLine) {
	add := func(what, unit string, of func(perfFigure) float64, target float64, atLeast bool) {
		l := perfLine{What: what, Unit: unit, Test: c.test(), Wait: c.wait(), Bytes: c.bytes, PostList: c.postList, Iters: c.iters, Instructions: c.instructions}
		l.compare(column(got[0], of), column(got[1], of), target, atLeast)
		all = append(all, l)
	}
	if c.latency {
		target := targetBusy
		if c.events {
			target = targetEvent
		}
		add("typical latency", "usec", func(f perfFigure) float64 { return f.typical }, target, false)
		add("average latency", "usec", func(f perfFigure) float64 { return f.average }, target, false)
	} else {
		add("message rate", "1/s", func(f perfFigure) float64 { return f.rate }, targetRate, true)
	}
	if c.instructions {
		add("instructions", "per message", perfFigure.instructions, 0, false)
	} else {
		add("CPU time per message", "nsec", func(f perfFigure) float64 { return f.cpu }, 0, false)
	}
	return all
}

func column(all []perfFigure, of func(perfFigure) float64) (x []float64) {
	for _, f := range all {
		x = append(x, of(f))
	}
	return x
}

// Targets of the design besides those of bench.go.
const (
	targetRate = 1.0
	targetExec = 0.5
	targetOpen = 1.0
)

// A perfLine is one comparison; as JSON it is a line. Where there is no ratio, NotMeasured says why.
type perfLine struct {
	What     string `json:"what"`
	Unit     string `json:"unit"`
	Test     string `json:"test"`
	Wait     string `json:"wait,omitempty"`
	Bytes    int    `json:"bytes,omitempty"`
	PostList int    `json:"post_list,omitempty"`
	Iters    int    `json:"iterations,omitempty"`
	// Instructions is that they were measured on a clock that counts these, 1 ns each.
	Instructions bool `json:"instructions,omitempty"`
	// Verbs and Other are medians, Other of perftest, or of the program in C.
	Verbs float64 `json:"verbs"`
	Other float64 `json:"other"`
	paired.Ratio
	Verdict     string `json:"verdict,omitempty"`
	NotMeasured string `json:"not_measured,omitempty"`
	Kernel      string `json:"kernel"`
	Emulated    bool   `json:"emulated"`
}

// compare fills in the ratio.
func (l *perfLine) compare(ours, theirs []float64, target float64, atLeast bool) {
	judge := paired.New
	if atLeast {
		judge = paired.NewAtLeast
	}
	r, err := judge(ours, theirs, target)
	if err != nil {
		l.NotMeasured = err.Error()
		return
	}
	l.Verbs, l.Other, l.Ratio, l.Verdict = paired.Median(ours), paired.Median(theirs), r, r.Verdict()
}

// name is what the line is about.
func (l *perfLine) name() string {
	switch {
	case l.Bytes == 0:
		return l.Test
	case l.PostList == 0:
		return fmt.Sprintf("%s %s %d bytes", l.Test, l.Wait, l.Bytes)
	}
	return fmt.Sprintf("%s %d bytes, post list %d", l.Test, l.Bytes, l.PostList)
}

// print prints a line.
func (b *perfBench) print(l perfLine) (err error) {
	switch {
	case b.json:
		return json.NewEncoder(b.out).Encode(l)
	case l.NotMeasured != "":
		_, err = fmt.Fprintf(b.out, "%-30s %-20s not measured: %s\n", l.name(), l.What, l.NotMeasured)
	default:
		other := "perftest"
		if l.Bytes == 0 {
			other = "C"
		}
		_, err = fmt.Fprintf(b.out, "%-30s %-20s verbs %.5g %s, %s %.5g %s, ratio %v\n", l.name(), l.What, l.Verbs, l.Unit, other, l.Other, l.Unit, l.Ratio)
	}
	return err
}

// head says what is measured.
func (b *perfBench) head(v *vm) error {
	if b.json {
		return nil
	}
	if b.instructions {
		return b.instructionsHead(v)
	}
	_, err := fmt.Fprintf(b.out, `verbs perf and perftest by turns, each against itself, in one guest: Linux %s, %s, %s.
Both: -t %d -r %d -Q %d -u %d, no inline data, no warm-up. CPU time is that of both processes from exec to exit, by wait4.
Ratios are verbs / perftest.
`, v, plural.Of(v.machine.cpus, "CPU"), v.accel(), perfSendDepth, perfRecvDepth, perfSignalEvery, perfTimeout)
	if err == nil && !v.machine.kvm {
		_, err = fmt.Fprintln(b.out, "EMULATED TIMING: absolute times say nothing about hardware.")
	}
	return err
}
