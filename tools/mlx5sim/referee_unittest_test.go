package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	thickRule = "======================================================================\n"
	thinRule  = "----------------------------------------------------------------------\n"
)

func TestReadUnittest(t *testing.T) {
	for _, c := range []struct {
		name       string
		o          outcome
		tests      []string // name verdict reason
		complaints []string // parts of them
	}{
		{"all forms", outcome{err: "test_a (tests.test_cq.CQTest.test_a) ... ok\n" +
			"test_b (tests.test_cq.CQTest.test_b)\nWords about ok things ... ok\n" +
			"test_c (tests.test_cq.CQTest) ... skipped 'Device memory is not supported'\n" +
			"test_d (tests.test_cq.CQTest.test_d) ... skipped \"it isn't there\"\n" +
			"test_e (tests.test_cq.CQTest.test_e) ... a warning\nok\n" +
			"setUpClass (tests.test_cq.Other) ... skipped 'not today'\n" +
			"test_f (tests.test_cq.CQTest.test_f) ... expected failure\n\n" +
			thinRule + "Ran 6 tests in 3.166s\n\nOK (skipped=3)\nTraceback at the end\n"},
			[]string{"CQTest.test_a ok ", "CQTest.test_b ok ", "CQTest.test_c skip Device memory is not supported",
				"CQTest.test_d skip it isn't there", "CQTest.test_e ok ", "Other.setUpClass skip not today", "CQTest.test_f ok fails, as it is to"}, nil},
		{"failures", outcome{code: 1, err: "test_a (t.A.test_a) ... FAIL\ntest_b (t.A.test_b) ... ERROR\ntest_c (t.A.test_c) ... unexpected success\n\n" +
			thickRule + "FAIL: test_a (t.A.test_a)\n" + thinRule + "Traceback\ntest_x (t.A.test_x) ... ok\n" + thinRule + "Ran 3 tests in 1s\n\nFAILED (failures=1, errors=1)\n"},
			[]string{"A.test_a FAIL ", "A.test_b ERROR ", "A.test_c FAIL passes, and is not to"}, nil},
		{"a class that cannot begin", outcome{code: 1, err: "setUpClass (t.A) ... ERROR\n\n" + thickRule + thinRule + "Ran 0 tests in 1s\n"},
			[]string{"A.setUpClass ERROR "}, nil},
		{"a crash", outcome{code: 139, err: "test_a (t.A.test_a) ... ok\ntest_b (t.A.test_b) ... "},
			[]string{"A.test_a ok ", "A.test_b ERROR the module ended in it, exit status 139"}, nil},
		{"a hang", outcome{code: -1, hung: true, err: "test_a (t.A.test_a) ... ok\ntest_b (t.A.test_b)\nWords ... "},
			[]string{"A.test_a ok ", "A.test_b HANG ended after 5m0s"}, nil},
		{"a hang at the end", outcome{code: -1, hung: true, err: "test_a (t.A.test_a) ... ok\n\n" + thinRule + "Ran 1 test in 1s\n"},
			[]string{"A.test_a ok "}, []string{"hangs: ended after 5m0s"}},
		{"no verdict", outcome{err: "test_a (t.A.test_a) ... \ntest_b (t.A.test_b) ... ok\n" + thinRule + "Ran 2 tests in 1s\n"},
			[]string{"A.test_a ERROR without a verdict", "A.test_b ok "}, nil},
		{"lost tests", outcome{err: "test_a (t.A.test_a) ... ok\n" + thinRule + "Ran 2 tests in 1s\n"},
			[]string{"A.test_a ok "}, []string{"ran 2 tests, of which 1 are in its report"}},
		{"nothing", outcome{code: 1, err: "ModuleNotFoundError: No module named 'pyverbs'\n"}, nil, []string{"prints no total, exit status 1"}},
		{"status", outcome{code: 139, err: "test_a (t.A.test_a) ... ok\n" + thinRule + "Ran 1 test in 1s\n\nOK\n"},
			[]string{"A.test_a ok "}, []string{"exit status 139, and no test fails"}},
		{"a rule", outcome{code: 1, err: "test_a (t.A.test_a) ... ok\n" + thinRule + "Ran 1 test in 1s\n\nOK\n" + violation + "rings twice\n"},
			[]string{"A.test_a ok "}, []string{"breaks a rule: rings twice"}},
	} {
		tests, complaints := readUnittest(c.o)
		var got []string
		for _, u := range tests {
			got = append(got, fmt.Sprintf("%s %s %s", u.name, u.verdict, u.reason))
		}
		if !slices.Equal(got, c.tests) || !slices.EqualFunc(complaints, c.complaints, strings.Contains) {
			t.Errorf("%s: %q and %q, want %q and %q", c.name, got, complaints, c.tests, c.complaints)
		}
	}
}

// report is what a module of n tests prints, all of them with that verdict.
func report(n int, verdict string) outcome {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "test_%d (t.A.test_%[1]d) ... %s\n", i, verdict)
	}
	fmt.Fprintf(&b, "\n"+thinRule+"Ran %d tests in 1s\n\nOK\n", n)
	return outcome{err: b.String()}
}

func TestSuiteStatus(t *testing.T) {
	failing := report(10, "FAIL")
	failing.code = 1
	rogue := report(10, "ok")
	rogue.code, rogue.err = exitViolations, rogue.err+violation+"rings twice\n"
	for _, c := range []struct {
		name  string
		only  string
		first outcome // of the first module
		code  int
		err   string
		out   string // the last line
	}{
		{"all pass", "", report(10, "ok"), 0, "", "180 run, 180 passed, 0 failed, 0 skipped"},
		{"some fail", "", failing, 1, "", "180 run, 170 passed, 10 failed, 0 skipped"},
		{"a rule", "", rogue, 1, "", "181 run, 180 passed, 1 failed, 0 skipped"},
		{"hangs", "", outcome{hung: true, code: -1}, 1, "", "171 run, 170 passed, 1 failed, 0 skipped"},
		{"one module", "^addr$", report(10, "ok"), 0, "", "10 run, 10 passed, 0 failed, 0 skipped"},
		{"all skipped", "^addr$", report(10, "skipped 'no'"), 1, "no test passed", "10 run, 0 passed, 0 failed, 10 skipped"},
		{"no module", "srd", report(10, "ok"), 2, `no module matches "srd"`, "0 run, 0 passed, 0 failed, 0 skipped"},
		{"system", "", outcome{broken: errors.New("no processes")}, exitSystem, "no processes", ""},
	} {
		var stdout bytes.Buffer
		r := &referee{stdout: &stdout}
		if c.only != "" {
			r.only = regexp.MustCompile(c.only)
		}
		r.play = func(_ string, args []string) outcome {
			if args[len(args)-1] == "tests.test_addr" {
				return c.first
			}
			return report(10, "ok")
		}
		code, err := r.modules(t.TempDir())
		lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
		if code != c.code || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err || lines[len(lines)-1] != c.out {
			t.Errorf("%s: status %d, error %v, %s", c.name, code, err, stdout.String())
		}
	}
	// A suite of which too few pass is one that skipped.
	r := &referee{stdout: new(bytes.Buffer), play: func(string, []string) outcome { return report(5, "ok") }}
	if code, err := r.modules(t.TempDir()); code != 1 || err == nil || err.Error() != "want 100 that pass, at the least" {
		t.Errorf("90 that pass: status %d, error %v", code, err)
	}
}

// Without the suite its sentence is all that is printed.
func TestPyverbsMissing(t *testing.T) {
	t.Setenv(coreVar, t.TempDir())
	var stdout bytes.Buffer
	code, err := (&referee{stdout: &stdout}).pyverbs(t.TempDir())
	if code != exitSystem || err == nil || !strings.Contains(err.Error(), "install python3-pyverbs") || stdout.Len() > 0 {
		t.Errorf("status %d, error %v, %q", code, err, stdout.String())
	}
	if _, err := os.Stat(python); err == nil {
		if err := importable(); err != nil && !strings.Contains(err.Error(), "does not find pyverbs") {
			t.Errorf("%v", err)
		}
	}
}
