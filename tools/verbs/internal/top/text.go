package top

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
)

// A Page is where a look is laid out. The zero value is paper without end: all
// tables with all rows.
type Page struct {
	// Width is how many characters a line has, 0 any number of them. Columns
	// that matter less are left out where it is too small.
	Width int

	// Height is how many lines there are, 0 any number of them. Then tables
	// show the rows where most happens, and the tables of what just exists
	// (contexts, protection domains, regions) are left out: processes have
	// their numbers.
	Height int
}

// WriteText writes a look as text, without control characters.
func WriteText(w io.Writer, l *Look, p Page) error {
	_, err := io.WriteString(w, strings.Join(Lines(l, p), "\n")+"\n")
	return err
}

// Lines lays a look out.
func Lines(l *Look, p Page) []string {
	all := header(l, p.Width)
	tables := tables(l, p.Height == 0)
	if p.Height == 0 {
		for _, t := range tables {
			all = append(all, "")
			all = append(all, t.lines(p.Width, t.n)...)
			all = append(all, t.below(p.Width)...)
		}
		return all
	}
	rest := p.Height - len(all)
	for i, t := range tables {
		need := 2 + len(t.below(p.Width)) // an empty line and the head
		if rest < need+1 {
			tables = tables[:i]
			break
		}
		rest -= need
	}
	rows := share(tables, rest)
	for i, t := range tables {
		all = append(all, "")
		all = append(all, t.lines(p.Width, rows[i])...)
		all = append(all, t.below(p.Width)...)
	}
	return all[:min(len(all), p.Height)]
}

// below are the table's sentences, on lines.
func (t *table) below(width int) (all []string) {
	for _, n := range t.notes {
		all = append(all, wrap(n, width)...)
	}
	return all
}

// header says when, what in all, which levels are live and why others are not.
func header(l *Look, width int) []string {
	var ctx, pds, cqs, qps, mrs int
	for _, d := range l.Devices {
		ctx, pds, cqs, qps, mrs = ctx+len(d.Contexts), pds+len(d.PDs), cqs+len(d.CQs), qps+len(d.QPs), mrs+len(d.MRs)
	}
	when := "first look, no rates yet"
	if l.Seconds > 0 {
		when = fmt.Sprintf("rates over %.2f s", l.Seconds)
	}
	all := wrap(fmt.Sprintf("verbs top %s, %s: %s, %s, %s, %s, %s, %s", l.Time.Format("15:04:05"), when, plural.Of(len(l.Devices), "device"),
		plural.Of(ctx, "context"), plural.Of(pds, "PD"), plural.Of(cqs, "CQ"), plural.Of(qps, "QP"), plural.Of(mrs, "MR")), width)
	var live []string
	why := make(map[string][]string)
	var reasons []string // in the order of the levels
	for _, v := range l.Levels {
		if v.Live {
			live = append(live, v.Name)
			continue
		}
		if why[v.Why] == nil {
			reasons = append(reasons, v.Why)
		}
		why[v.Why] = append(why[v.Why], v.Name)
	}
	all = append(all, wrap("live: "+strings.Join(live, ", "), width)...)
	for _, r := range reasons {
		all = append(all, wrap("not live: "+strings.Join(why[r], ", ")+": "+r, width)...)
	}
	for _, n := range l.Notes {
		all = append(all, wrap(n, width)...)
	}
	for _, d := range l.Devices {
		for _, m := range d.Missing {
			all = append(all, wrap(d.Name+": "+m, width)...)
		}
	}
	return all
}

// An on is an object on a device.
type on[T any] struct {
	*Device
	x T
}

// gather is a kind of objects of all devices, those of which less is more
// interesting first.
func gather[T any](l *Look, of func(*Device) []T, less func(a, b T) int) []on[T] {
	var all []on[T]
	for _, d := range l.Devices {
		for _, x := range of(d) {
			all = append(all, on[T]{d, x})
		}
	}
	slices.SortStableFunc(all, func(a, b on[T]) int { return less(a.x, b.x) })
	return all
}

// levelColumns are what each level fills of the table of completion queues.
var levelColumns = []struct{ level, columns string }{
	{trace.LevelPull, "EV/s, PEND, VEC"}, {trace.LevelRing, "OCC, %, HIGH, ARMED, CQE/s"}, {trace.LevelErrors, "ERR"}, {trace.LevelEvents, "WAKE, P99"},
}

// cqNotes say why there is nothing in columns.
func cqNotes(l *Look, queues []on[*CQ]) (notes []string) {
	if len(queues) == 0 {
		return nil
	}
	live := make(map[string]bool)
	for _, v := range l.Levels {
		live[v.Name] = v.Live
	}
	for _, c := range levelColumns {
		if !live[c.level] {
			notes = append(notes, fmt.Sprintf("- in %s: the level %q is not live, see above", c.columns, c.level))
		}
	}
	if !live[trace.LevelRing] {
		return notes
	}
	var strange, sampled bool
	for _, q := range queues {
		strange = strange || q.x.Occupied == nil
		sampled = sampled || !live[trace.LevelEveryCQE] && q.x.Exact != nil && !*q.x.Exact
	}
	if strange {
		notes = append(notes, "- in OCC, %, HIGH, ARMED, CQE/s of some: only soft-RoCE has its rings where the kernel sees them")
	}
	if sampled {
		notes = append(notes, "HIGH is the most at the moments of looks and > in CQE/s a lower limit: -cqe counts each completion")
	}
	return notes
}
