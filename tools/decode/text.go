package decode

import (
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
)

// Text writes findings for people: each with what it means and what to look at,
// flushes in one line each, long rows of them counted.
type Text struct {
	w     io.Writer
	err   error
	name  string // of the file, where there are several
	width int

	first, flushes, further int
	told                    map[string]bool // errors that were explained in full
	notes                   map[string]int  // how often a note was due
	run                     flushRun
}

// shown is how many of many like ones get a line of their own: flushes of one
// error, notes of one text.
const shown = 3

// flushRun counts flushes that follow one error without anything between.
type flushRun struct {
	of    int
	lines [2]int
	n     int
}

// NewText makes a writer of reports that are width columns wide, 0 for the
// usual width.
func NewText(w io.Writer, width int) *Text {
	if width == 0 {
		width = 80
	}
	return &Text{w: w, width: width, told: make(map[string]bool), notes: make(map[string]int)}
}

// File begins the findings of another file.
func (t *Text) File(name string) {
	t.flushRun()
	t.name = name
}

func (t *Text) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *Text) place(where string) string {
	if t.name == "" {
		return where
	}
	return t.name + ", " + where
}

// Finding writes one finding.
func (t *Text) Finding(f *Finding) error {
	if f.IsFlush() && f.FlushOf != 0 {
		t.flushes++
		if t.run.n == 0 || t.run.of != f.FlushOf {
			t.flushRun()
			t.run = flushRun{of: f.FlushOf, lines: [2]int{f.Line, f.Line}}
		}
		t.run.n++
		t.run.lines[1] = f.LastLine
		if t.run.n <= shown {
			t.printf("  %s: flushed%s, consequence of line %d%s\n", t.place(where(f)), t.what(f), f.FlushOf, probably(f))
			t.run.lines[0] = f.LastLine + 1
		}
		return t.err
	}
	t.flushRun()
	switch {
	case f.IsFlush():
		t.flushes++
	case f.Consequence:
		t.further++
	default:
		t.first++
	}
	t.full(Explain(f))
	return t.err
}

func probably(f *Finding) string {
	if f.SameQP {
		return " (same QP)"
	}
	return " (probably)"
}

func (t *Text) what(f *Finding) (s string) {
	if f.SendOpcode.OK && f.Side.OK && f.SendOpcode.V.Known() {
		s = " " + f.SendOpcode.V.String()
	}
	if f.WQECounter.OK {
		s += fmt.Sprintf(" request %d", f.WQECounter.V)
	}
	if f.QPN.OK {
		s += fmt.Sprintf(" of QP %#x", f.QPN.V)
	}
	if v, ok := mlx5Vendor(f); ok {
		s += fmt.Sprintf(", vendor code 0x%02x", uint8(v))
	}
	return s
}

// flushRun ends a row of flushes.
func (t *Text) flushRun() {
	if n := t.run.n - shown; n > 0 {
		t.printf("  ... and %s more up to line %d\n", plural.Of(n, "flush"), t.run.lines[1])
	}
	t.run = flushRun{}
}

// full writes an explanation.
func (t *Text) full(e Explanation) {
	t.printf("\n%s: %s\n", t.place(e.Where), e.Title)
	if e.Role != "" {
		t.para("  ", e.Role)
	}
	t.meaning(e)
	for _, f := range e.Facts {
		t.fact(f)
	}
	for _, n := range e.Notes {
		t.para("    note         ", n)
	}
}

// meaning writes what an error means, once for all like it.
func (t *Text) meaning(e Explanation) {
	key := e.Means + strings.Join(e.Look, "")
	if t.told[key] {
		t.printf("  What it means and what to look at: as above.\n")
		return
	}
	t.told[key] = true
	t.para("  What it usually means: ", e.Means)
	if len(e.Look) > 0 {
		t.printf("  Look at first:\n")
	}
	for i, l := range e.Look {
		t.para(fmt.Sprintf("    %d. ", i+1), l)
	}
	t.printf("  In detail:\n")
}

func (t *Text) fact(f Fact) {
	const column = 13
	t.para(fmt.Sprintf("    %-*s", column, f.Name), f.Value)
}

// para writes a paragraph, wrapped, with a hanging indent.
func (t *Text) para(lead, text string) {
	indent := len(lead)
	if indent > 18 {
		indent = 4
	}
	line := lead
	fresh := true
	for _, w := range strings.Fields(text) {
		if !fresh && len(line)+1+len(w) > t.width {
			t.printf("%s\n", strings.TrimRight(line, " "))
			line, fresh = strings.Repeat(" ", indent), true
		}
		if !fresh {
			line += " "
		}
		line += w
		fresh = false
	}
	t.printf("%s\n", strings.TrimRight(line, " "))
}

// Note writes a note. Of one that repeats, the first few are shown and the rest
// counted.
func (t *Text) Note(n Note) {
	const kinds = 64
	if _, ok := t.notes[n.Text]; !ok && len(t.notes) == kinds {
		n.Text = "further notes are left out"
	}
	if t.notes[n.Text]++; t.notes[n.Text] > shown {
		return
	}
	t.flushRun()
	t.printf("\n")
	t.para(t.place(fmt.Sprintf("line %d", n.Line))+": ", n.Text)
}

// repeatedNotes counts the notes that were not shown.
func (t *Text) repeatedNotes() {
	more := 0
	for _, n := range t.notes {
		more += max(0, n-shown)
	}
	if more > 0 {
		t.printf("\n%s more like those above.\n", plural.Of(more, "note"))
	}
}

// Close ends the report with a count and returns the first error of writing.
func (t *Text) Close() error {
	t.flushRun()
	t.repeatedNotes()
	if n := t.first + t.flushes + t.further; n > 0 {
		t.printf("\n%s: %d first, %d further on a QP that had failed, %s.\n",
			plural.Of(n, "failed completion"), t.first, t.further, plural.Of(t.flushes, "flush"))
	}
	return t.err
}
