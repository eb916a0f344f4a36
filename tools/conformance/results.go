package conformance

import (
	"fmt"
	"regexp"
	"strings"
)

// A Results is what came of tests: pass, or skip, by the row's name of the test. What
// failed or did not run is not in it.
type Results map[string]Status

var verdict = regexp.MustCompile(`^\s*\x16?--- (PASS|SKIP): (\S+)`)

// Read takes in what go test -v prints of the tests of a folder's package.
func (r Results) Read(folder, output string) {
	for line := range strings.Lines(output) {
		if m := verdict.FindStringSubmatch(line); m != nil {
			r[folder+"."+m[2]] = map[string]Status{"PASS": Pass, "SKIP": Skip}[m[1]]
		}
	}
}

var refereed = regexp.MustCompile(`^(ok|skip) +(\w+): (\w+\.\w+)`)

// ReadReferee takes in what mlx5sim referee -pyverbs prints.
func (r Results) ReadReferee(output string) {
	for line := range strings.Lines(output) {
		if m := refereed.FindStringSubmatch(line); m != nil {
			r[m[2]+"."+m[3]] = map[string]Status{"ok": Pass, "skip": Skip}[m[1]]
		}
	}
}

// Compare says where the table is not as things came out on a place, a sentence a row.
func Compare(rows []Row, place Place, results Results) (wrong []string) {
	for _, r := range rows {
		want := r.Status[place]
		if want == None {
			continue
		}
		tests := r.Tests
		if place == Pyverbs {
			tests = []string{r.Upstream}
		}
		got := Pass
		var how []string
		for _, t := range tests {
			if (place == Linux61 || place == Linux612) && !inGuest(t) {
				continue
			}
			s, ran := results[t]
			switch {
			case !ran:
				got = ""
				how = append(how, t+" did not run there, or failed")
			case s == Skip && got != "":
				got = Skip
				fallthrough
			case s == Skip:
				how = append(how, t+" was skipped")
			}
		}
		if want == Refused {
			want = Pass // for our tests, which look for it
		}
		if got != want {
			if len(how) == 0 {
				how = []string{"they passed"}
			}
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s on %s is to be %s: %s", File, r.Line, r.Upstream, place, r.Status[place], strings.Join(how, ", ")))
		}
	}
	return wrong
}

// Names are the tests of ours that the table names, by folder, without subtests.
func Names(rows []Row) map[string]map[string]bool {
	all := make(map[string]map[string]bool)
	for _, r := range rows {
		for _, name := range r.Tests {
			folder, test := Split(name)
			test, _, _ = strings.Cut(test, "/")
			if all[folder] == nil {
				all[folder] = make(map[string]bool)
			}
			all[folder][test] = true
		}
	}
	return all
}
