package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// File is where the table is, in the module.
const File = "testdata/conformance.md"

// A Place is where tests run: a column of the table.
type Place string

// The places. On the first two and the third run tests of ours, on the last rdma-core's,
// on the model.
const (
	Linux61  Place = "6.1"  // soft-RoCE of a kernel of this series
	Linux612 Place = "6.12" // and of this one
	Model    Place = "model"
	Pyverbs  Place = "pyverbs"
)

// Places are all, in the order of their columns.
var Places = []Place{Linux61, Linux612, Model, Pyverbs}

// A Status says what comes of a row's tests on a place.
type Status string

// The statuses. The table itself says what they mean, to its readers.
const (
	Pass    Status = "pass"
	Refused Status = "refused"
	Skip    Status = "skip"
	None    Status = "n/a"
)

// statuses are all, in the order of the totals' columns.
var statuses = []Status{Pass, Refused, Skip, None}

// A Row is one test of rdma-core's suite.
type Row struct {
	Line     int    // of the file, from 1
	Upstream string // module.Class.method
	// Tests are ours: folder of the package, dot, function, and subtest after a slash.
	Tests  []string
	Status map[Place]Status
	Reason string
}

// Module is the module of the suite that the row's test is in.
func (r *Row) Module() string {
	module, _, _ := strings.Cut(r.Upstream, ".")
	return module
}

// Split takes the name of a test of ours apart. The test is as the go command prints it,
// with its subtest.
func Split(name string) (folder, test string) {
	folder, rest, ok := strings.Cut(name, ".Test")
	if !ok {
		return "", name
	}
	return folder, "Test" + rest
}

// head is the first line of each module's table.
var head = []string{"upstream test", "Go tests", "6.1", "6.12", "model", "pyverbs", "reason"}

// totalsHead is that of the totals.
var totalsHead = []string{"place", "pass", "refused", "skip", "n/a"}

// Parse reads the table. It fails with all that is wrong with it by itself: rows with other
// cells, unknown words, a place without a reason or with one too many, names twice, totals
// that are not the rows'.
func Parse(text string) ([]Row, error) {
	p := &reader{seen: make(map[string]int), totals: make(map[Place][]string)}
	for line := range strings.Lines(text) {
		p.line++
		if cells, ok := cellsOf(line); ok {
			p.cells(cells)
		} else {
			p.table = nil
		}
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			p.title = title
		}
	}
	p.checkTotals()
	if len(p.wrong) > 0 {
		return nil, fmt.Errorf("%s:\n%s", File, strings.Join(p.wrong, "\n"))
	}
	return p.rows, nil
}

type reader struct {
	line   int
	title  string   // of the section
	table  []string // the head of the table that we are in
	rows   []Row
	seen   map[string]int
	totals map[Place][]string
	wrong  []string
}

func (p *reader) complain(format string, args ...any) {
	p.wrong = append(p.wrong, fmt.Sprintf("line %d: ", p.line)+fmt.Sprintf(format, args...))
}

// cellsOf takes a line of a table apart.
func cellsOf(line string) ([]string, bool) {
	line, begins := strings.CutPrefix(strings.TrimSpace(line), "|")
	line, ends := strings.CutSuffix(line, "|")
	if !begins || !ends {
		return nil, false
	}
	cells := strings.Split(line, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells, true
}

func (p *reader) cells(cells []string) {
	switch {
	case p.table == nil:
		p.table = cells
	case strings.Trim(strings.Join(cells, ""), "-") == "":
	case slices.Equal(p.table, totalsHead) && len(cells) == len(totalsHead):
		p.totals[Place(cells[0])] = cells[1:]
	case slices.Equal(p.table, head):
		p.row(cells)
	case len(cells) >= len(totalsHead): // A table of something else is smaller.
		p.complain("%q is below %q, want %q or %q", cells, p.table, head, totalsHead)
	}
}

// row takes in a line about one test.
func (p *reader) row(cells []string) {
	if len(cells) != len(head) {
		p.complain("%d cells, want %d", len(cells), len(head))
		return
	}
	r := Row{Line: p.line, Upstream: cells[0], Status: make(map[Place]Status), Reason: cells[len(cells)-1]}
	if strings.Count(r.Upstream, ".") != 2 || r.Module() != p.title {
		p.complain("%q is not module.Class.method of module %q", r.Upstream, p.title)
	}
	if before := p.seen[r.Upstream]; before != 0 {
		p.complain("%s is in line %d, too", r.Upstream, before)
	}
	p.seen[r.Upstream] = p.line
	if cells[1] != "-" {
		r.Tests = strings.Split(cells[1], "<br>")
	}
	for i, place := range Places {
		s := Status(cells[2+i])
		r.Status[place] = s
		if !slices.Contains(statuses, s) || place == Pyverbs && s != Pass && s != Skip {
			p.complain("%s: %q is no status", place, s)
		}
		if s != Pass && r.Reason == "" {
			p.complain("%s: %s without a reason", place, s)
		}
	}
	ours := []Status{r.Status[Linux61], r.Status[Linux612], r.Status[Model]}
	if untested := !slices.ContainsFunc(ours, func(s Status) bool { return s != None }); untested != (len(r.Tests) == 0) {
		p.complain("statuses %q with tests %q", ours, r.Tests)
	}
	for i, place := range Places[:2] {
		if guests := slices.ContainsFunc(r.Tests, inGuest); guests != (ours[i] != None) {
			p.complain("%s: %s with tests %q, of which those named TestGuest run there", place, ours[i], r.Tests)
		}
	}
	p.rows = append(p.rows, r)
}

// inGuest says whether a test of ours runs on soft-RoCE.
func inGuest(name string) bool {
	_, test := Split(name)
	return strings.HasPrefix(test, "TestGuest")
}

// checkTotals compares the totals to the rows.
func (p *reader) checkTotals() {
	if len(p.totals) != len(Places) {
		p.complain("totals of %q, want %q", slices.Sorted(maps.Keys(p.totals)), Places)
	}
	for _, place := range Places {
		var want []string
		for _, s := range statuses {
			n := 0
			for _, r := range p.rows {
				if r.Status[place] == s {
					n++
				}
			}
			want = append(want, fmt.Sprint(n))
		}
		if got := p.totals[place]; !slices.Equal(got, want) {
			p.complain("totals of %s are %q, the rows have %q", place, got, want)
		}
	}
}
