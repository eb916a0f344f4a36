package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
)

// Test binaries run with -test.v=test2json in the guest, whatever the user asked for: only then
// does a skip show, and a line that the test framework prints starts with a mark (^V) that tells it
// from what tests print. A testOutput undoes that on the way to the user and judges skips.

// A verbosity is how a user wants test output.
type verbosity int

const (
	quiet   verbosity = iota // no -v: failures and what tests print
	verbose                  // -v
	marked                   // -v=test2json, as go test -json asks for
)

// A skip is a test that did not run.
type skip struct{ test, reason string }

// A testOutput is the writer for a test binary's standard output. Close it at the end.
type testOutput struct {
	w    io.Writer
	mode verbosity

	skips  []skip
	passed []string

	partial []byte
	current string // the test that log lines belong to
	logs    map[string][]string
	inLog   bool
	err     error
}

// newTestOutput makes a testOutput that prints to w.
func newTestOutput(w io.Writer, mode verbosity) *testOutput {
	return &testOutput{w: w, mode: mode, logs: map[string][]string{}}
}

const mark = '\x16'

var (
	controlLine = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME)|--- (PASS|FAIL|SKIP|BENCH):) *(\S*)`)
	logLine     = regexp.MustCompile(`^ {4}\S+\.go:\d+: `)
	benchName   = regexp.MustCompile(`^Benchmark\S*$`)
)

// Write implements io.Writer.
func (t *testOutput) Write(p []byte) (int, error) {
	if t.mode == marked {
		t.print(string(p))
	}
	t.partial = append(t.partial, p...)
	for {
		// A mark in the middle of a line ends what a test printed without a newline.
		i := bytes.IndexByte(t.partial, '\n')
		m := -1
		if len(t.partial) > 0 {
			m = bytes.IndexByte(t.partial[1:], mark) + 1
		}
		switch {
		case m > 0 && (i < 0 || m < i):
			t.line(string(t.partial[:m]), "")
			t.partial = t.partial[m:]
		case i >= 0:
			t.line(string(t.partial[:i]), "\n")
			t.partial = t.partial[i+1:]
		default:
			return len(p), t.err
		}
	}
}

// Close prints what is left: an unfinished line, and the log of tests that did not come to an end.
func (t *testOutput) Close() error {
	if len(t.partial) > 0 {
		t.line(string(t.partial), "")
		t.partial = nil
	}
	if t.mode == quiet {
		for test, lines := range t.logs {
			t.print("--- unfinished: " + test + "\n" + strings.Join(lines, ""))
		}
	}
	return t.err
}

// line handles one line; end is its newline, or "" where it had none.
func (t *testOutput) line(s, end string) {
	control, ok := strings.CutPrefix(s, string(mark))
	m := controlLine.FindStringSubmatch(control)
	switch {
	case ok && m == nil: // The framework's PASS or FAIL.
		t.show(control + end)
	case !ok && logLine.MatchString(s), !ok && t.inLog && strings.HasPrefix(s, "        "):
		t.inLog = true
		t.logs[t.current] = append(t.logs[t.current], s+end)
		if t.mode == verbose {
			t.print(s + end)
		}
		return
	case !ok:
		if t.mode != quiet || !benchName.MatchString(s) {
			t.show(s + end)
		}
	default:
		t.control(control, end, m)
	}
	t.inLog = false
}

// control handles a line of the framework about one test; m is its match.
func (t *testOutput) control(s, end string, m []string) {
	what, result, test := m[2], m[3], m[4]
	if t.mode == verbose && what != "NAME" {
		t.print(s + end)
	}
	if what != "" {
		t.current = test
		return
	}
	log := t.logs[test]
	delete(t.logs, test)
	switch result {
	case "PASS":
		t.passed = append(t.passed, test)
	case "SKIP":
		t.skips = append(t.skips, skip{test, strings.TrimSpace(strings.Join(log, ""))})
	case "FAIL", "BENCH":
		if t.mode == quiet {
			t.print(s + end + strings.Join(log, ""))
		}
	}
}

// show prints text in the modes in which it has not been printed as it came.
func (t *testOutput) show(s string) {
	if t.mode != marked {
		t.print(s)
	}
}

// print prints text and keeps the first error.
func (t *testOutput) print(s string) {
	if t.err == nil {
		_, t.err = io.WriteString(t.w, s)
	}
}
