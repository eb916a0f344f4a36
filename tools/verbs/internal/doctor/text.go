package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/printable"
)

// WriteText prints the report for a person: the findings, the worst first, and a line that
// counts. With verbose it also lists every check and what it saw, and what was held back.
func (r *Report) WriteText(w io.Writer, verbose bool) error {
	var b strings.Builder
	for _, f := range r.Findings {
		f.write(&b)
	}
	if verbose {
		for _, h := range r.HeldBack {
			fmt.Fprintf(&b, "held back, as it follows from what %s has found: %s\n", h.Because, printable.Line(h.title()))
		}
		for _, c := range r.Checks {
			r.writeCheck(&b, c)
		}
	}
	fmt.Fprintln(&b, r.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// title is the finding with its object.
func (f *Finding) title() string {
	if f.Object == "" {
		return f.What
	}
	return f.Object + ": " + f.What
}

func (f *Finding) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", f.Severity, printable.Line(f.title()))
	for _, part := range []struct{ name, text string }{{"seen", f.Seen}, {"mend", f.Mend}} {
		name := part.name
		for line := range strings.Lines(part.text) {
			fmt.Fprintf(b, "    %-4s  %s\n", name, printable.Line(strings.TrimSuffix(line, "\n")))
			name = ""
		}
	}
	b.WriteByte('\n')
}

// writeCheck says what a check did.
func (r *Report) writeCheck(b *strings.Builder, c Made) {
	fmt.Fprintf(b, "%-12s %s\n", c.Name, c.About)
	for _, line := range c.Saw {
		fmt.Fprintf(b, "    %s\n", printable.Line(line))
	}
	for _, n := range r.NotLooked {
		if n.Check == c.Name {
			fmt.Fprintf(b, "    could not look: %s\n", printable.Line(n.text()))
		}
	}
}

// text is the reason with its object, which it may name already.
func (n *NotLooked) text() string {
	if n.Object == "" || strings.Contains(n.Why, n.Object) {
		return n.Why
	}
	return n.Object + ": " + n.Why
}

// summary counts.
func (r *Report) summary() string {
	var b strings.Builder
	if len(r.Findings) == 0 {
		b.WriteString("nothing found")
	} else {
		var n [len(severities)]int
		for _, f := range r.Findings {
			n[f.Severity]++
		}
		for s := Fault; s >= Note; s-- {
			if n[s] == 0 {
				continue
			}
			if b.Len() > 0 {
				b.WriteString(", ")
			}
			b.WriteString(plural.Of(n[s], s.String()))
		}
	}
	fmt.Fprintf(&b, "; %s", plural.Of(len(r.Checks), "check"))
	var not []string
	checks := make(map[string]bool)
	for _, l := range r.NotLooked {
		checks[l.Check] = true
		not = append(not, l.Check+": "+printable.Line(l.text()))
	}
	if len(not) > 0 {
		fmt.Fprintf(&b, ", %d could not be made, or not wholly: %s", len(checks), strings.Join(not, "; "))
	}
	return b.String()
}
