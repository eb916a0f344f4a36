package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestBenchFlags(t *testing.T) {
	for _, tt := range []struct {
		args, wrong string
		rounds      int
	}{
		{"", "", 15},
		{"-quick", "", 5},
		{"-quick -n 3 -json", "", 3},
		{"-md -run poll/", "", 15},
		{"-json -md", "choose one", 0},
		{"-n 1", "want 2 or more", 0},
		{"-n -2", "want 2 or more", 0},
		{"-run (", "-run:", 0},
		{"fast", `"fast" is no flag`, 0},
		{"-slow", "there is no flag -slow", 0},
	} {
		o, err := parseBench(strings.Fields(tt.args), new(bytes.Buffer))
		switch {
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
			t.Errorf("%q: %v, want %q", tt.args, err, tt.wrong)
		case tt.wrong == "" && err != nil:
			t.Errorf("%q: %v", tt.args, err)
		case tt.wrong == "" && o.rounds != tt.rounds:
			t.Errorf("%q: %d rounds, want %d", tt.args, o.rounds, tt.rounds)
		}
	}
	var help bytes.Buffer
	if _, err := parseBench([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-quick") {
		t.Errorf("-h: %v, %s", err, help.Bytes())
	}
}

// Every row has a name of its own, and can be filled and taken apart into whole batches and blocks.
func TestBenchRows(t *testing.T) {
	seen := map[string]bool{}
	targets := 0
	for _, g := range benchRows() {
		n := g.qps * g.depth()
		p := portionOf(n)
		if n > g.ring || n&(n-1) != 0 || p.lead+p.rest != n || p.rest%p.block != 0 {
			t.Errorf("%d QPs on a ring of %d: %d requests as %+v", g.qps, g.ring, n, p)
		}
		for _, r := range g.rows {
			if seen[r.String()] {
				t.Errorf("two rows are called %v", &r)
			}
			seen[r.String()] = true
			if r.QPs != g.qps || r.Ring != g.ring || p.lead%r.Batch != 0 || p.block%r.Batch != 0 {
				t.Errorf("%v: in the group of %d QPs and a ring of %d, %+v", &r, g.qps, g.ring, p)
			}
			if r.plain > 0 || r.fastest > 0 {
				targets++
			}
		}
	}
	if len(seen) < 60 || targets != 9 {
		t.Errorf("%d rows, %d with targets", len(seen), targets)
	}
	only := chooseRows(benchRows(), func(r *benchRow) bool { return r.What == "post" })
	if len(only) != 1 || len(only[0].rows) != 2 {
		t.Errorf("posts are %+v", only)
	}
}

// A program that loses completions, or makes them up, is found out.
func TestCheckPolled(t *testing.T) {
	for _, tt := range []struct {
		got   []uint64
		flush bool
		good  bool
	}{
		{[]uint64{900, 36, 0, 0}, false, true},
		{[]uint64{900, 36, 8, 1}, true, true},
		{[]uint64{900, 35, 0, 0}, false, false},
		{[]uint64{900, 36, 1, 1}, false, false},
		{[]uint64{900, 36, 7, 1}, true, false},
		{[]uint64{900, 36, 8, 0}, true, false},
	} {
		if err := checkPolled(tt.got, 8, 36, tt.flush); (err == nil) != tt.good {
			t.Errorf("%v, flush %v: %v", tt.got, tt.flush, err)
		}
	}
	c := &contender{next: 1}
	if sum := c.posted(8); sum != 36 || c.next != 9 || c.posted(2) != 19 {
		t.Errorf("the ids 1 to 8 add up to %d, next is %d", sum, c.next)
	}
}

// What is printed of known times.
func TestBenchTable(t *testing.T) {
	row := benchRow{What: "poll", Batch: 32, QPs: 64, Ring: 256, plain: 0.25, fastest: 0.4}
	r, err := newBenchResult(row, [][]float64{{20, 22, 24}, {16, 16, 16}, {18, 18, 18}, {5, 5.5, 6}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Form != "single" || r.Nanoseconds != [4]float64{22, 16, 18, 5.5} || math.Abs(r.Plain.Mean-0.25) > 1e-9 ||
		r.Plain.Verdict != "met" || r.Fastest.N != 3 || math.Abs(r.Fastest.Min-5.0/16) > 1e-9 {
		t.Errorf("%+v", r)
	}
	bare, err := newBenchResult(benchRow{What: "post", Batch: 1}, [][]float64{{2, 2}, {2, 2}, {1, 1}, {3, 3}})
	if err != nil || bare.verdict() != "" || bare.Form != "ex" {
		t.Errorf("without targets: %+v, %v", bare, err)
	}
	var text, md bytes.Buffer
	if err := errors.Join(printBench(&text, []benchResult{r, bare}), printBenchMarkdown(&md, []benchResult{r, bare})); err != nil {
		t.Fatal(err)
	}
	const want = "poll/batch=32/qps=64/ring=256/warm 22.0 16.0 18.0 5.5 0.25 (0.25 to 0.25) 0.34 (0.29 to 0.40) single 3 plain <= 0.25 met, fastest <= 0.40 met"
	lines := strings.Split(text.String(), "\n")
	if len(lines) != 4 || strings.Join(strings.Fields(lines[1]), " ") != want {
		t.Errorf("text:\n%s", text.Bytes())
	}
	lines = strings.Split(md.String(), "\n")
	if len(lines) != 5 || lines[1] != strings.Repeat("| --- ", len(benchColumns))+"|" || !strings.HasPrefix(lines[3], "| post/batch=1 | 2.0 | 2.0 | 1.0 | 3.0 |") {
		t.Errorf("Markdown:\n%s", md.Bytes())
	}
	b, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(b, &back); err != nil || back["name"] != row.String() || back["batch"] != 32.0 || back["fastest"] != "single" {
		t.Errorf("JSON: %v, %s", err, b)
	}
	if _, err := newBenchResult(row, [][]float64{{1, 1}, {1, 1}, {1, 1}, {1, 0}}); err == nil {
		t.Error("a program that takes no time gives a ratio")
	}
	if !slices.Contains(benchColumns, contenderForms[len(contenderForms)-1].name) {
		t.Errorf("columns %v", benchColumns)
	}
}
