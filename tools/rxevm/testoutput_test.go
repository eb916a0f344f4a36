package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is what a test binary of Go 1.26 prints with -test.v=test2json; V stands for the mark.
const recorded = `V=== RUN   TestA
    ex_test.go:3: hello
printed
V--- PASS: TestA (0.00s)
V=== NAME  
V=== RUN   TestB
V=== RUN   TestB/sub
    ex_test.go:4: x
        y
    ex_test.go:4: needs kernel >= 6.2: foo
V--- SKIP: TestB/sub (0.00s)
V=== NAME  TestB
V=== RUN   TestB/s2
partialV--- PASS: TestB/s2 (0.00s)
V=== NAME  TestB
V--- PASS: TestB (0.00s)
V=== NAME  
V=== RUN   TestC
V=== PAUSE TestC
V=== NAME  
V=== RUN   TestD
V=== PAUSE TestD
V=== NAME  
V=== CONT  TestC
    ex_test.go:5: c1
    ex_test.go:5: just so
V--- SKIP: TestC (0.00s)
V=== CONT  TestD
    ex_test.go:6: bad
        more
V--- FAIL: TestD (0.00s)
V=== NAME   
VFAIL
`

// replay feeds text in pieces of n bytes.
func replay(t *testing.T, text string, mode verbosity, n int) (string, []skip) {
	t.Helper()
	var b strings.Builder
	o := newTestOutput(&b, mode)
	for text := strings.ReplaceAll(text, "V", "\x16"); text != ""; {
		k := min(n, len(text))
		if _, err := o.Write([]byte(text[:k])); err != nil {
			t.Fatal(err)
		}
		text = text[k:]
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), o.skips
}

func TestOutputIsAsTheUserAskedFor(t *testing.T) {
	want := map[verbosity]string{
		quiet: `printed
partial--- FAIL: TestD (0.00s)
    ex_test.go:6: bad
        more
FAIL
`,
		verbose: `=== RUN   TestA
    ex_test.go:3: hello
printed
--- PASS: TestA (0.00s)
=== RUN   TestB
=== RUN   TestB/sub
    ex_test.go:4: x
        y
    ex_test.go:4: needs kernel >= 6.2: foo
--- SKIP: TestB/sub (0.00s)
=== RUN   TestB/s2
partial--- PASS: TestB/s2 (0.00s)
--- PASS: TestB (0.00s)
=== RUN   TestC
=== PAUSE TestC
=== RUN   TestD
=== PAUSE TestD
=== CONT  TestC
    ex_test.go:5: c1
    ex_test.go:5: just so
--- SKIP: TestC (0.00s)
=== CONT  TestD
    ex_test.go:6: bad
        more
--- FAIL: TestD (0.00s)
FAIL
`,
		marked: strings.ReplaceAll(recorded, "V", "\x16"),
	}
	for mode, text := range want {
		for _, n := range []int{1, 2, 7, 64, len(recorded)} {
			got, skips := replay(t, recorded, mode, n)
			if d := cmp.Diff(text, got); d != "" {
				t.Errorf("mode %d in pieces of %d (-want +got):\n%s", mode, n, d)
			}
			wantSkips := []skip{
				{"TestB/sub", "ex_test.go:4: x\n        y\n    ex_test.go:4: needs kernel >= 6.2: foo"},
				{"TestC", "ex_test.go:5: c1\n    ex_test.go:5: just so"},
			}
			if d := cmp.Diff(wantSkips, skips, cmp.AllowUnexported(skip{})); d != "" {
				t.Errorf("skips in mode %d in pieces of %d (-want +got):\n%s", mode, n, d)
			}
		}
	}
}

func TestLogOfATestThatDiedIsShown(t *testing.T) {
	got, _ := replay(t, "V=== RUN   TestX\n    x_test.go:1: last words\npanic: boom", quiet, 5)
	if !strings.Contains(got, "last words") || !strings.Contains(got, "panic: boom") {
		t.Errorf("a panicking test's output is %q", got)
	}
}

func TestWhatATestPrintsIsNoSkip(t *testing.T) {
	_, skips := replay(t, "V=== RUN   TestX\n--- SKIP: TestX (0.00s)\nV--- PASS: TestX (0.00s)\nVPASS\n", quiet, 100)
	if len(skips) != 0 {
		t.Errorf("a printed line was taken for a skip: %v", skips)
	}
}

func TestSkipPolicy(t *testing.T) {
	for _, tt := range []struct {
		reason, series string
		short          bool
		allowed        bool
	}{
		{"x_test.go:1: needs kernel >= 6.2: flush opcode", "6.1", false, true},
		{"x_test.go:1: needs kernel >= 6.2: flush opcode", "6.12", false, false},
		{"x_test.go:1: needs kernel >= 6.1", "6.1", false, false},
		{"x_test.go:1: needs kernel >= 5.11", "5.10", false, true},
		{"x_test.go:1: needs kernel >= 10.0", "6.12", false, true},
		{"x_test.go:1: declared skip: one CPU", "6.1", false, true},
		{"x_test.go:1: declared skip: no device; run in the guest", "6.1", false, false},
		{"x_test.go:1: skipped in short mode", "6.1", true, true},
		{"x_test.go:1: skipped in short mode", "6.1", false, false},
		{"x_test.go:1: needs kernel 6.2", "6.1", false, false},
		{"", "6.1", false, false},
	} {
		why := undeclared(skip{"TestX", tt.reason}, tt.series, tt.short)
		if (why == "") != tt.allowed {
			t.Errorf("%q on %s, short %v: allowed %v, want %v (%s)", tt.reason, tt.series, tt.short, why == "", tt.allowed, why)
		}
		if why != "" && !strings.Contains(why, "TestX") {
			t.Errorf("the refusal does not name the test: %s", why)
		}
	}
}
