package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// report prints results as they come and counts them. Several goroutines may use it.
type report struct {
	json bool
	out  io.Writer

	mu             sync.Mutex
	passed, failed int
}

// A row is a mutation in JSON.
type row struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Package string   `json:"package"`
	Test    string   `json:"test"`
	Env     []string `json:"env,omitempty"`
	Hang    bool     `json:"hang,omitempty"`

	// Of a result.
	Verdict verdict `json:"verdict,omitempty"`
	Passed  *bool   `json:"passed,omitempty"`
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

func newRow(m *mutation) row {
	return row{Name: m.name, What: m.what, Package: m.pkg, Test: m.test, Env: m.env, Hang: m.hang}
}

func (r *report) object(v any) {
	e := json.NewEncoder(r.out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // as with fmt, who reads nothing gets nothing
}

// listed prints a mutation.
func (r *report) listed(m *mutation) {
	if r.json {
		r.object(newRow(m))
		return
	}
	fmt.Fprintf(r.out, "%s: %s\n\t%s %s", m.name, m.what, m.pkg, m.test)
	for _, v := range m.env {
		fmt.Fprintf(r.out, " %s", v)
	}
	if m.hang {
		fmt.Fprint(r.out, " (hangs)")
	}
	fmt.Fprintln(r.out)
}

// result prints what came of a mutation: one line, and what explains a failure.
func (r *report) result(m *mutation, res result, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := res.verdict == caught
	state := "ok"
	if passed {
		r.passed++
	} else {
		r.failed++
		state = "FAILED"
	}
	if r.json {
		o := newRow(m)
		o.Verdict, o.Passed, o.Detail, o.Seconds = res.verdict, &passed, res.detail, took.Seconds()
		r.object(o)
		return
	}
	first, rest, more := strings.Cut(res.detail, "\n")
	fmt.Fprintf(r.out, "%-6s %s (%.1f s): %s: %s\n", state, m.name, took.Seconds(), res.verdict, first)
	if !passed && more {
		fmt.Fprintf(r.out, "\t%s\n", strings.ReplaceAll(rest, "\n", "\n\t"))
	}
}

// end prints the closing line.
func (r *report) end() {
	if r.json {
		r.object(struct {
			Passed int `json:"passed"`
			Failed int `json:"failed"`
		}{r.passed, r.failed})
		return
	}
	fmt.Fprintf(r.out, "%d passed, %d failed\n", r.passed, r.failed)
}
