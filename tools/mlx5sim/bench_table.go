package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/goverbs/goverbs/tools/internal/paired"
)

// benchResult is what was measured of a row.
type benchResult struct {
	Name string `json:"name"`
	benchRow
	// Nanoseconds are medians of the rounds: of the plain form of libibverbs, the
	// single-threaded one, the extended one and goverbs.
	Nanoseconds [4]float64 `json:"ns"`
	// Plain is the ratio of goverbs to the plain form, Fastest that to the form that Form names.
	Plain   benchRatio `json:"to_plain"`
	Fastest benchRatio `json:"to_fastest"`
	Form    string     `json:"fastest"`
}

// benchRatio is a ratio, and what becomes of its target.
type benchRatio struct {
	paired.Ratio
	Verdict string `json:"verdict,omitempty"` // none without a target
}

func newBenchRatio(ours, theirs []float64, target float64) (benchRatio, error) {
	r, err := paired.New(ours, theirs, target)
	b := benchRatio{Ratio: r}
	if target > 0 {
		b.Verdict = r.Verdict()
	}
	return b, err
}

// newBenchResult judges the times of the programs, by program and round.
func newBenchResult(row benchRow, times [][]float64) (r benchResult, err error) {
	r = benchResult{Name: row.String(), benchRow: row}
	fastest := 0
	for i, t := range times {
		r.Nanoseconds[i] = paired.Median(t)
		if i < len(times)-1 && r.Nanoseconds[i] < r.Nanoseconds[fastest] {
			fastest = i
		}
	}
	ours := times[len(times)-1]
	r.Form = contenderForms[fastest].form
	if r.Plain, err = newBenchRatio(ours, times[0], row.plain); err != nil {
		return r, err
	}
	r.Fastest, err = newBenchRatio(ours, times[fastest], row.fastest)
	return r, err
}

// cells are the columns of a row.
func (r *benchResult) cells() []string {
	c := []string{r.Name}
	for _, ns := range r.Nanoseconds {
		c = append(c, fmt.Sprintf("%.1f", ns))
	}
	return append(c, r.Plain.cell(), r.Fastest.cell()+" "+r.Form, fmt.Sprint(r.Plain.N), r.verdict())
}

// cell is the ratio with its interval.
func (r *benchRatio) cell() string { return fmt.Sprintf("%.2f (%.2f to %.2f)", r.Mean, r.Low, r.High) }

// verdict says what became of the targets.
func (r *benchResult) verdict() string {
	var s []string
	for _, t := range []struct {
		name string
		*benchRatio
	}{{"plain", &r.Plain}, {"fastest", &r.Fastest}} {
		if t.Verdict != "" {
			s = append(s, fmt.Sprintf("%s <= %.2f %s", t.name, t.Target, t.Verdict))
		}
	}
	return strings.Join(s, ", ")
}

var benchColumns = []string{"", "plain", "single", "ex", "goverbs", "to plain", "to fastest", "n", "target"}

// printBench prints a table.
func printBench(w io.Writer, results []benchResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range append([][]string{benchColumns}, cellsOf(results)...) {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(c, "\t"), "\t "))
	}
	return t.Flush()
}

// printBenchMarkdown prints a table of Markdown.
func printBenchMarkdown(w io.Writer, results []benchResult) error {
	lines := [][]string{benchColumns, {"---"}}
	for range benchColumns[1:] {
		lines[1] = append(lines[1], "---")
	}
	for _, c := range append(lines, cellsOf(results)...) {
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(c, " | ")); err != nil {
			return err
		}
	}
	return nil
}

func cellsOf(results []benchResult) (all [][]string) {
	for i := range results {
		all = append(all, results[i].cells())
	}
	return all
}
