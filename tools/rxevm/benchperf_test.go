//go:build linux

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// All rows have names of their own, by which -run finds them, and both programs get the same flags.
func TestPerfCases(t *testing.T) {
	b := &perfBench{iters: 1000}
	all := b.cases()
	names := map[string]bool{}
	for _, c := range all {
		names[c.String()] = true
		ours, theirs := c.command(0, 18600), c.command(1, 18600)
		if ours[0] != "verbs" || ours[2] != c.test() || theirs[0] != "ib_"+c.test() || !slices.Equal(ours[6:], theirs[len(theirs)-len(ours)+6:]) {
			t.Errorf("%v: %q and %q", c, ours, theirs)
		}
		if c.iters%c.lists() != 0 {
			t.Errorf("%v: %d iterations in lists of %d, which perftest refuses", c, c.iters, c.postList)
		}
	}
	if len(names) != len(all) || len(all) != 12+10 {
		t.Errorf("%d names of %d rows", len(names), len(all))
	}
	want := "ib_send_bw -F -d rxe0 -x 1 -p 18600 -s 4096 -n 6400 -u 18 -I 0 -r 512 -t 128 -Q 32 -l 32"
	i := slices.IndexFunc(all, func(c perfCase) bool { return c.String() == "send_bw 4096 bytes, post list 32" })
	if i < 0 || strings.Join(all[i].command(1, 18600), " ") != want {
		t.Errorf("no row of %q", want)
	}
	i = slices.IndexFunc(all, func(c perfCase) bool { return c.String() == "read_lat event 64 bytes" })
	if want := "ib_read_lat -F -U -d rxe0 -x 1 -p 18600 -s 64 -n 1000 -u 18 -e"; i < 0 || strings.Join(all[i].command(1, 18600), " ") != want {
		t.Errorf("no row of %q", want)
	}
	if want := "verbs perf read_lat -json -warmup 0 -d rxe0 -x 1 -p 18600 -s 64 -n 1000 -u 18 -e"; i < 0 || strings.Join(all[i].command(0, 18600), " ") != want {
		t.Errorf("no row of %q", want)
	}
	b.quick = true
	for _, c := range b.cases() {
		if !names[c.String()] {
			t.Errorf("-quick has a row of its own: %v", c)
		}
		if c.iters%c.lists() != 0 {
			t.Errorf("%v: %d iterations in lists of %d", c, c.iters, c.postList)
		}
	}
}

// On a clock that counts instructions there are rates of write and read.
func TestPerfCasesByInstructions(t *testing.T) {
	b := &perfBench{iters: 1000, instructions: true}
	names := []string{}
	for _, c := range b.cases() {
		names = append(names, c.String())
		if !c.instructions || c.iters%c.lists() != 0 {
			t.Errorf("%+v", c)
		}
	}
	want := []string{"write_bw 64 bytes, post list 1", "write_bw 64 bytes, post list 32", "write_bw 4096 bytes, post list 1", "write_bw 4096 bytes, post list 32",
		"read_bw 64 bytes, post list 1", "read_bw 64 bytes, post list 32", "read_bw 4096 bytes, post list 1", "read_bw 4096 bytes, post list 32"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

func (c perfCase) lists() int { return max(c.postList, 1) }

// What a client prints becomes figures, if it is of what was asked for.
func TestPerfFigure(t *testing.T) {
	bw := perfCase{verb: "send", bytes: 64, postList: 1, iters: 2000}
	lat := perfCase{verb: "send", latency: true, bytes: 64, iters: 1000}
	for _, tt := range []struct {
		c       perfCase
		program int
		out     string
		want    perfFigure
		says    string
	}{
		{bw, 1, perftestOutput(t, "send_bw"), perfFigure{rate: 23127}, ""},
		{perfCase{verb: "write", latency: true, bytes: 64, iters: 20}, 1, perftestOutput(t, "write_lat_unsorted"), perfFigure{typical: 16.44, average: 3284.1041 / 19}, ""},
		{lat, 1, perftestOutput(t, "send_lat"), perfFigure{}, "measured nothing"}, // without its list
		{bw, 0, `{"bytes":64,"iterations":2000,"messages_per_s":5000}`, perfFigure{rate: 5000}, ""},
		{lat, 0, `{"bytes":64,"iterations":1000,"messages_per_s":5000,"latency_usec":{"typical":5,"avg":6}}`, perfFigure{rate: 5000, typical: 5, average: 6}, ""},
		{lat, 1, perftestOutput(t, "send_bw"), perfFigure{}, "2000 messages of 64 bytes, not 1000 of 64"},
		{lat, 0, `{"bytes":64,"iterations":1000,"messages_per_s":5000}`, perfFigure{}, "measured nothing"},
		{bw, 0, `{"bytes":64,"iterations":2000}`, perfFigure{}, "measured nothing"},
		{bw, 0, `{"bytes":65,"iterations":2000,"messages_per_s":5000}`, perfFigure{}, "of 65 bytes"},
		{bw, 0, `{"bytes":64,"iterations":2000,"partial":true}`, perfFigure{}, "interrupted"},
		{bw, 0, "verbs: oh", perfFigure{}, "no report"},
		{bw, 1, "oh", perfFigure{}, "no table"},
	} {
		got, err := tt.c.figure(tt.program, tt.out)
		if tt.says == "" && (err != nil || got != tt.want) || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%v of %q: %+v, %v; want %+v, %q", tt.c, tt.out, got, err, tt.want, tt.says)
		}
	}
}

// A rate shall be high and a latency low; processor time is not judged.
func TestPerfLines(t *testing.T) {
	got := [2][]perfFigure{}
	for i := range 4 {
		x := 1 + float64(i)/1000
		got[0] = append(got[0], perfFigure{rate: 900 * x, typical: 104 / x, average: 120 * x, cpu: 70})
		got[1] = append(got[1], perfFigure{rate: 1000, typical: 100, average: 100, cpu: 100})
	}
	verdicts := func(c perfCase) (all []string) {
		for _, l := range c.lines(got) {
			all = append(all, l.What+": "+l.Verdict)
		}
		return all
	}
	if v := verdicts(perfCase{verb: "send", bytes: 64, postList: 1}); !slices.Equal(v, []string{"message rate: missed", "CPU time per message: "}) {
		t.Errorf("%q", v)
	}
	if v := verdicts(perfCase{verb: "send", bytes: 64, latency: true}); !slices.Equal(v, []string{"typical latency: met", "average latency: missed", "CPU time per message: "}) {
		t.Errorf("%q", v)
	}
	// 900,000 messages a second of 1e9 instructions are 1,111 each.
	counted := [2][]perfFigure{{{rate: 9e5}, {rate: 9e5}}, {{rate: 1e6}, {rate: 1e6}}}
	l := perfCase{verb: "read", bytes: 64, postList: 1, instructions: true}.lines(counted)
	if len(l) != 2 || l[0].Verdict != "missed" || l[0].Mean > 0.901 || l[1].Verdict != "" || math.Abs(l[1].Verbs-1e9/9e5) > 1e-6 || l[1].Other != 1000 || !l[0].Instructions || !l[1].Instructions {
		t.Errorf("%+v", l)
	}
	got[1][0].cpu = math.NaN()
	lines := perfCase{verb: "send", bytes: 64, postList: 1}.lines(got)
	if lines[1].NotMeasured == "" || lines[0].NotMeasured != "" {
		t.Errorf("%+v", lines)
	}
	for _, asJSON := range []bool{true, false} {
		var b strings.Builder
		p := perfBench{out: &b, json: asJSON}
		for _, l := range lines {
			if err := p.print(l); err != nil {
				t.Fatal(err)
			}
		}
		text := b.String()
		if asJSON {
			d := json.NewDecoder(strings.NewReader(text))
			for _, want := range lines {
				var l perfLine
				if err := d.Decode(&l); err != nil || l != want {
					t.Errorf("%+v, %v; want %+v", l, err, want)
				}
			}
			continue
		}
		for _, want := range []string{"send_bw 64 bytes, post list 1  message rate         verbs 901.35 1/s, perftest 1000 1/s, ratio 0.901", "target >= 1.00: missed", "not measured: pair 1"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
	}
}

// The starts of two programs are compared by turns; one that is missing is said to be.
func TestStarts(t *testing.T) {
	times, err := readStarts(strings.NewReader(`{"program":0,"exec_ns":2000000,"open_ns":1000000}
{"program":1,"exec_ns":6000000,"open_ns":1200000}
{"program":1,"exec_ns":5000000,"open_ns":1100000}
{"program":0,"exec_ns":2100000,"open_ns":1000000}`))
	if err != nil {
		t.Fatal(err)
	}
	l := startLines(times)
	if len(l) != 3 || l[0].N != 2 || l[0].Verbs != 2.05 || l[0].Other != 5.5 || l[0].Verdict != "undecided" || l[1].Verbs != 1 || math.Abs(l[1].Other-1.15) > 1e-9 ||
		math.Abs(l[2].Verbs-1.05) > 1e-9 || math.Abs(l[2].Other-4.35) > 1e-9 || l[2].Verdict != "" {
		t.Errorf("%+v", l)
	}
	for _, l := range startLines([2][]start{}) {
		if l.NotMeasured == "" {
			t.Errorf("of nothing: %+v", l)
		}
	}
	for text, says := range map[string]string{"oh": "invalid", `{"program":2}`: "of which there are two", `{"program":-1}`: "of which there are two"} {
		if _, err := readStarts(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for line, good := range map[string]bool{"110 150\n": true, "90 150\n": false, "110 110\n": false, "110\n": false, "": false, "a b\n": false} {
		s, err := readStart(append(binary.NativeEndian.AppendUint64(nil, 100), line...))
		if (err == nil) != good || good && (s.Exec != 50 || s.Open != 40) {
			t.Errorf("%q: %+v, %v", line, s, err)
		}
	}
	if _, err := readStart([]byte("110 150")); err == nil || !strings.Contains(err.Error(), "the launcher") {
		t.Errorf("without a time of the launcher: %v", err)
	}
	for _, args := range [][]string{nil, {"3", "rxe0", "always", "/l"}, {"0", "rxe0", "always", "/l", "/x"}, {"many", "rxe0", "always", "/l", "/x"}} {
		var e exitError
		if err := cmdStarts(args, nil); !errors.As(err, &e) || e.code != exitUsage {
			t.Errorf("starts %q: %v", args, err)
		}
	}
}

// A name that no row has ends before a guest is booted.
func TestPerfRunOfNothing(t *testing.T) {
	b := &perfBench{only: regexp.MustCompile("no such row"), iters: 10}
	var e exitError
	if err := b.run(t.Context()); !errors.As(err, &e) || e.code != exitUsage {
		t.Errorf("%v", err)
	}
}

// What a job cost travels with how it ended.
func TestExitReportHasTheCost(t *testing.T) {
	b, err := json.Marshal(exitReport{Code: 1, CPU: time.Second})
	var got exitReport
	if err != nil || json.Unmarshal(b, &got) != nil || got.CPU != time.Second {
		t.Errorf("%s, %+v, %v", b, got, err)
	}
}
