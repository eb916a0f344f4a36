package waitreport

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/goverbs/goverbs/tools/internal/svg"
)

// A LoopReport is how fast loops ran in one case, in proportion to another.
type LoopReport struct {
	Machine
	With        string    `json:"with"`    // the case that is measured
	Without     string    `json:"without"` // what it is compared with
	Slice       float64   `json:"slice_usec"`
	Interrupted bool      `json:"interrupted"`
	Rows        []LoopRow `json:"rows"`
	Stands      []Stand   `json:"stands,omitempty"`
	Signal      *Estimate `json:"signal_usec,omitempty"` // what a SIGURG costs the thread that gets it
	Notes       []string  `json:"notes,omitempty"`
}

// A LoopRow is one loop.
type LoopRow struct {
	Loop    string   `json:"loop"`
	What    string   `json:"what"`
	With    Estimate `json:"with_per_second"`
	Without Estimate `json:"without_per_second"`
	// Ratio is With to Without. ToFirst is that in proportion to the ratio of the first row.
	Ratio   *Comparison `json:"ratio,omitempty"`
	ToFirst *Comparison `json:"to_first,omitempty"`
	// Verdict is on the target of the design; "" where it has none.
	Verdict string `json:"verdict,omitempty"`

	// Model is that the time of the model is in it: the target says nothing of that.
	Model bool `json:"model,omitempty"`

	ratios []float64
}

// A Stand is how often and how long a loop stood still that looks at the clock.
type Stand struct {
	Thread    string   `json:"thread"` // locked or unlocked
	Signals   string   `json:"signals"`
	PerSecond Estimate `json:"per_second"`
	Lost      Estimate `json:"lost_usec_per_second"`
	Median    Estimate `json:"median_usec"`
}

// NewLoops is an empty report of this machine.
func NewLoops(with, without string, slice float64) *LoopReport {
	return &LoopReport{Machine: ThisMachine(), With: with, Without: without, Slice: slice}
}

// Add adds what a loop did in a second, in each round, if there was any; model is LoopRow.Model.
func (r *LoopReport) Add(name, what string, model bool, with, without []float64) {
	if len(with) == 0 {
		return
	}
	row := LoopRow{Loop: name, What: what, Model: model, With: EstimateOf(with), Without: EstimateOf(without)}
	for i := range with {
		row.ratios = append(row.ratios, with[i]/without[i])
	}
	if c, ok := Compare(name+", "+r.With+" to "+r.Without, with, without); ok {
		row.Ratio = &c
	}
	if len(r.Rows) > 0 {
		if c, ok := Compare(name+", ratio to that of "+r.Rows[0].Loop, row.ratios, r.Rows[0].ratios); ok {
			row.ToFirst = &c
		}
	}
	r.Rows = append(r.Rows, row)
}

// Note adds a sentence.
func (r *LoopReport) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// The design's target of loops that poll beside the garbage collector: on many processors to
// without it, on less in proportion to an empty loop, which lacks the processors as well.
const (
	targetGC     = 0.95
	targetGCCPUs = 4
)

// Judge judges the loops besides the first by that target.
func (r *LoopReport) Judge() {
	for i := range r.Rows {
		row := &r.Rows[i]
		c := row.ToFirst
		if c == nil || row.Model {
			continue
		}
		if r.CPUs >= targetGCCPUs {
			c = row.Ratio
		}
		switch {
		case c.Low >= targetGC:
			row.Verdict = "met"
		case c.High < targetGC:
			row.Verdict = "missed"
		default:
			row.Verdict = "undecided"
		}
	}
	if r.CPUs >= targetGCCPUs {
		r.Note("Target: %.2f or more of %s.", targetGC, r.Without)
	} else {
		r.Note("Target on less than %d processors: the ratio is %.2f or more of that of the first row.", targetGCCPUs, targetGC)
	}
}

// WriteJSON writes the report as one object.
func (r *LoopReport) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteText writes the report as tables.
func (r *LoopReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%v.\n", r.Machine)
	if r.Interrupted {
		b.WriteString("INTERRUPTED: these are the rounds until then.\n")
	}
	fmt.Fprintf(&b, "\nHow often a second each loop does what it does, by turns %s and %s, %s at a time.\nMedians of the rounds; ratios are means over the rounds, with their 90%% interval.\n\n", r.With, r.Without, duration(r.Slice))
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	first := ""
	if len(r.Rows) > 0 {
		first = r.Rows[0].Loop
	}
	fmt.Fprintf(tw, "  loop\t%s\t%s\tratio\tto that of %s\t\tn\n", r.Without, r.With, first)
	for _, row := range r.Rows {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\t%s\t%d\n", row.Loop, svg.Short(row.Without.Median), svg.Short(row.With.Median), interval(row.Ratio), interval(row.ToFirst), row.Verdict, row.With.N)
	}
	tw.Flush()
	b.WriteString("\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "  %-9s %s\n", row.Loop, row.What)
	}
	if len(r.Stands) > 0 {
		b.WriteString("\nA loop that looks at the clock stands still for more than 1 us:\n\n")
		fmt.Fprint(tw, "  thread\t\ta second\tus lost of a second\tmedian, us\n")
		for _, s := range r.Stands {
			fmt.Fprintf(tw, "  %s\t%s\t%v\t%v\t%v\n", s.Thread, s.Signals, s.PerSecond, s.Lost, s.Median)
		}
		tw.Flush()
	}
	if r.Signal != nil {
		fmt.Fprintf(&b, "\nA SIGURG costs the thread that gets it %v us, if the runtime does not want it to stop; it sends 100 a second.\n", *r.Signal)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// interval is a ratio and its interval, or "".
func interval(c *Comparison) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", c.Mean, c.Low, c.High)
}
