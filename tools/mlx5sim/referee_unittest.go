package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
)

// A unitTest is one test as Python's unittest reports it.
type unitTest struct {
	name    string // Class.test
	verdict string // ok, skip, FAIL, ERROR or HANG
	reason  string // of skip
}

var (
	// unitHead begins the report of a test: its method, and its class, which since Python 3.11
	// the method follows. A documentation string may come on the next line.
	unitHead = regexp.MustCompile(`^(\w+) \(([\w.]+)\)`)
	// unitVerdict ends it.
	unitVerdict = regexp.MustCompile(`(?:^|\.\.\. )(ok|FAIL|ERROR|expected failure|unexpected success|skipped (?:'.*'|".*"))$`)
	unitTotal   = regexp.MustCompile(`^Ran (\d+) tests? in `)
	// unitRule stands between the reports and the details of failures, which have heads too.
	unitRule = regexp.MustCompile(`^(={70}|-{70})$`)
)

// violation begins a line of mlx5sim run about what a program should not have done.
const violation = "mlx5sim: a correct program does not do this: "

// readUnittest takes what a module printed apart. Complaints are about the module: that it
// broke a rule of the device, or its report is not whole.
func readUnittest(o outcome) (tests []unitTest, complaints []string) {
	total, reports := -1, true
	current := "" // the test whose verdict is to come
	failures := 0
	settle := func(verdict, reason string) {
		tests = append(tests, unitTest{current, verdict, reason})
		current = ""
	}
	for line := range strings.Lines(o.err) {
		line = strings.TrimRight(line, "\r\n")
		if v, is := strings.CutPrefix(line, violation); is {
			complaints = append(complaints, "breaks a rule: "+v)
			continue
		}
		if m := unitTotal.FindStringSubmatch(line); m != nil {
			total, _ = strconv.Atoi(m[1]) // digits; too many of them disagree below
		}
		if unitRule.MatchString(line) {
			reports = false
		}
		if !reports {
			continue
		}
		if m := unitHead.FindStringSubmatch(line); m != nil {
			if current != "" {
				settle("ERROR", "without a verdict")
			}
			current = unitName(m[1], m[2])
		}
		if m := unitVerdict.FindStringSubmatch(line); m != nil && current != "" {
			verdict, reason := m[1], ""
			switch {
			case strings.HasPrefix(verdict, "skipped "):
				verdict, reason = "skip", strings.Trim(strings.TrimPrefix(verdict, "skipped "), `'"`)
			case verdict == "expected failure":
				verdict, reason = "ok", "fails, as it is to"
			case verdict == "unexpected success":
				verdict, reason = "FAIL", "passes, and is not to"
			}
			settle(verdict, reason)
		}
	}
	if current != "" {
		if o.hung {
			settle("HANG", fmt.Sprintf("ended after %v", refereeLimit))
		} else {
			settle("ERROR", fmt.Sprintf("the module ended in it, exit status %d", o.code))
		}
	}
	methods := 0
	for _, t := range tests {
		if t.verdict != "ok" && t.verdict != "skip" {
			failures++
		}
		if !strings.HasSuffix(t.name, ".setUpClass") && !strings.HasSuffix(t.name, ".tearDownClass") {
			methods++
		}
	}
	switch {
	case o.hung && failures == 0:
		complaints = append(complaints, fmt.Sprintf("hangs: ended after %v", refereeLimit))
	case o.hung:
	case total < 0 && failures == 0:
		complaints = append(complaints, fmt.Sprintf("prints no total, exit status %d", o.code))
	case total >= 0 && total != methods && failures == 0:
		complaints = append(complaints, fmt.Sprintf("ran %s, of which %d are in its report", plural.Of(total, "test"), methods))
	case o.code != 0 && failures == 0 && len(complaints) == 0:
		complaints = append(complaints, fmt.Sprintf("exit status %d, and no test fails", o.code))
	}
	return tests, complaints
}

// unitName is Class.method, of whichever form the class has.
func unitName(method, class string) string {
	parts := strings.Split(strings.TrimSuffix(class, "."+method), ".")
	return parts[len(parts)-1] + "." + method
}
