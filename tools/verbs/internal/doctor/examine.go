package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
)

// Options are the choices of Examine. The zero value, and nil, are fine.
type Options struct {
	// Patience is how long all checks may take, 30 seconds if 0.
	Patience time.Duration
}

// defaultPatience is long for a check, which takes milliseconds, and short for a person.
const defaultPatience = 30 * time.Second

// A Report is what an examination came to.
type Report struct {
	// Kernel is the release of the kernel, as uname -r prints it.
	Kernel string `json:"kernel"`
	// Findings are in order: the worst first, and among equals as the table
	// of checks has them.
	Findings []Finding `json:"findings"`
	// HeldBack are findings that follow from others.
	HeldBack []HeldBack `json:"held_back"`
	// NotLooked is what checks could not look at.
	NotLooked []NotLooked `json:"not_looked"`
	// Checks are all checks, in the order of the table.
	Checks []Made `json:"checks"`
}

// HeldBack is a finding that follows from another.
type HeldBack struct {
	Finding
	// Because is the check that has found the cause.
	Because string `json:"because"`
}

// NotLooked is something that a check could not look at.
type NotLooked struct {
	Check  string `json:"check"`
	Object string `json:"object"`
	Why    string `json:"why"`
}

// Made says what a check did.
type Made struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Saw are the things that the check looked at, with their values.
	Saw []string `json:"saw"`
}

// Worst is the severity of the worst finding; ok tells whether there is any.
func (r *Report) Worst() (worst Severity, ok bool) {
	if len(r.Findings) == 0 {
		return 0, false
	}
	return r.Findings[0].Severity, true
}

// The exit statuses of verbs doctor. 2 is for wrong flags, as in all commands.
const (
	StatusHealthy = 0 // nothing worse than notes
	StatusWarning = 1
	StatusFault   = 3
)

// Status is the exit status that fits the worst finding.
func (r *Report) Status() int {
	switch worst, _ := r.Worst(); worst {
	case Fault:
		return StatusFault
	case Warning:
		return StatusWarning
	}
	return StatusHealthy
}

// outcome is what a check returned.
type outcome struct {
	findings []Finding
	err      error
}

// Examine makes the checks.
func Examine(ctx context.Context, n *Node, checks []Check, opts *Options) *Report {
	patience := defaultPatience
	if opts != nil && opts.Patience > 0 {
		patience = opts.Patience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	n = n.begin()
	notes := make([]*notebook, len(checks))
	results := make([]chan outcome, len(checks))
	for i, c := range checks {
		notes[i] = new(notebook)
		results[i] = make(chan outcome, 1)
		go func() { results[i] <- run(ctx, c, n.with(notes[i])) }()
	}
	r := &Report{Kernel: n.Release, Findings: []Finding{}, HeldBack: []HeldBack{}, NotLooked: []NotLooked{}, Checks: []Made{}}
	for i, c := range checks {
		var o outcome
		select {
		case o = <-results[i]:
		case <-ctx.Done():
			select {
			case o = <-results[i]: // it was in time
			default:
				o.err = context.Cause(ctx)
			}
		}
		r.Checks = append(r.Checks, Made{Name: c.Name, About: c.About, Saw: notes[i].lines()})
		for _, f := range o.findings {
			f.Check = c.Name
			r.Findings = append(r.Findings, f)
		}
		for _, err := range each(o.err) {
			not := NotLooked{Check: c.Name, Why: printable.Error(err)}
			if about := (*unseenError)(nil); errors.As(err, &about) {
				not.Object = about.object
			}
			if !slices.Contains(r.NotLooked, not) {
				r.NotLooked = append(r.NotLooked, not)
			}
		}
	}
	r.holdBack(checks)
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return int(b.Severity - a.Severity) })
	return r
}

// run makes one check.
func run(ctx context.Context, c Check, n *Node) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{err: fmt.Errorf("a fault of verbs doctor itself, which is worth a report: %v", p)}
		}
	}()
	o.findings, o.err = c.Run(ctx, n)
	return o
}

// each takes joined errors apart.
func each(err error) []error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var flat []error
		for _, e := range all.Unwrap() {
			flat = append(flat, each(e)...)
		}
		return flat
	}
	return []error{err}
}

// holdBack moves what follows from other findings out of the way. A note is no cause of
// anything worse. Causes stand before their
// consequences, so one pass is enough; what was held back is a cause as well.
func (r *Report) holdBack(checks []Check) {
	after := make(map[string][]string, len(checks))
	for _, c := range checks {
		after[c.Name] = c.After
	}
	cause := func(check, object string, s Severity) (string, bool) {
		for _, f := range r.Findings {
			if f.Severity >= min(s, Warning) && covers(f.Object, object) && follows(after, check, f.Check) {
				return f.Check, true
			}
		}
		return "", false
	}
	var kept []Finding
	for _, f := range r.Findings {
		if because, ok := cause(f.Check, f.Object, f.Severity); ok {
			r.HeldBack = append(r.HeldBack, HeldBack{f, because})
		} else {
			kept = append(kept, f)
		}
	}
	var not []NotLooked
	for _, l := range r.NotLooked {
		if _, ok := cause(l.Check, l.Object, Warning); !ok {
			not = append(not, l)
		}
	}
	r.Findings, r.NotLooked = append([]Finding{}, kept...), append([]NotLooked{}, not...)
}

// covers tells whether what is wrong with one object may be the cause of what is wrong with
// the other.
func covers(object, other string) bool {
	return object == "" || object == other || strings.HasPrefix(other, object+"/")
}

// follows tells whether a check comes after another, or after one that does.
func follows(after map[string][]string, check, other string) bool {
	seen := map[string]bool{check: true}
	for todo := []string{check}; len(todo) > 0; todo = todo[1:] {
		for _, a := range after[todo[0]] {
			if a == other {
				return true
			}
			if !seen[a] {
				seen[a] = true
				todo = append(todo, a)
			}
		}
	}
	return false
}
