package selftest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// Place says what was tested.
type Place struct {
	Tool     string `json:"tool"` // its version
	Device   string `json:"device"`
	Driver   string `json:"driver"`
	Firmware string `json:"firmware,omitempty"`
	Board    string `json:"board,omitempty"`
	Kernel   string `json:"kernel"`
	Link     string `json:"link,omitempty"`
	Peer     string `json:"peer,omitempty"` // empty: both ends are on the device
	Quick    bool   `json:"quick,omitempty"`
	Proves   string `json:"proves"`
}

// Report is what verbs selftest -json writes. Its keys stay.
type Report struct {
	Place
	Rows        []Row `json:"rows"`
	Passed      int   `json:"passed"`
	Failed      int   `json:"failed"` // those that hung among them
	Unsupported int   `json:"not_supported"`
	NotRun      int   `json:"not_run"`
	Interrupted bool  `json:"interrupted,omitempty"`
	OK          bool  `json:"ok"` // nothing failed, and all ran
}

// Report sums a result up.
func (r *Result) Report(p Place) *Report {
	o := &Report{Place: p, Rows: r.Rows, Passed: r.count(Passed), Failed: r.count(Failed) + r.count(Hung), Unsupported: r.count(Unsupported), NotRun: r.count(NotRun), Interrupted: r.Interrupted}
	o.OK = o.Failed == 0 && o.NotRun == 0 && o.Passed > 0
	return o
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Title is the first line of a table.
func (p *Place) Title() string {
	s := fmt.Sprintf("verbs selftest %s: %s (%s", p.Tool, p.Device, p.Driver)
	if p.Firmware != "" {
		s += ", firmware " + p.Firmware
	}
	if p.Link != "" {
		s += ", " + p.Link
	}
	s += "), kernel " + p.Kernel
	if p.Peer != "" {
		s += ", with the other end at " + p.Peer
	} else {
		s += ", both ends on the device"
	}
	return s + ".\nSuccess proves " + p.Proves + "."
}

// Line is the row as a line of the table.
func (r *Row) Line() string {
	name := r.Group + ": " + r.Test
	pad := strings.Repeat(" ", max(0, nameWidth()-utf8.RuneCountInString(name)))
	s := fmt.Sprintf("%-13s  %s%s  %6.2f s  %s", r.Outcome, name, pad, r.Seconds, r.Detail)
	return strings.TrimRight(s, " ")
}

// nameWidth is the length of the longest name of a test.
var nameWidth = sync.OnceValue(func() (n int) {
	for _, name := range Names() {
		n = max(n, utf8.RuneCountInString(name))
	}
	return n
})

// Summary is the last line of a table.
func (r *Report) Summary() string {
	s := fmt.Sprintf("%d passed, %d failed, %d not supported", r.Passed, r.Failed, r.Unsupported)
	if r.NotRun > 0 {
		s += fmt.Sprintf(", %d not run", r.NotRun)
	}
	if r.Interrupted {
		s += " (interrupted)"
	}
	return s
}
