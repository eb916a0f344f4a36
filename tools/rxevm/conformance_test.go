//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/conformance"
)

// A guest in which tests do not come out as the table says fails, and says in which line
// that is.
func TestConforms(t *testing.T) {
	s := &suite{root: "../.."}
	rows, err := s.conformanceTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []conformance.Place{conformance.Linux61, conformance.Linux612} {
		var passed []string
		var skips []skip
		first := "" // of those that are to pass
		for _, r := range rows {
			for _, name := range r.Tests {
				folder, test := conformance.Split(name)
				switch {
				case folder != "uverbs" || !strings.HasPrefix(test, "TestGuest"):
				case r.Status[place] == conformance.Skip:
					skips = append(skips, skip{test: test})
				default:
					passed = append(passed, test)
					if first == "" {
						first = test
					}
				}
			}
		}
		judge := s.conforms(place)
		if err := judge(passed, skips); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		without := strings.Split(strings.ReplaceAll(strings.Join(passed, "\n"), first, "TestOther"), "\n")
		wrong := map[string]error{
			"one did not run": judge(without, skips),
			"one was skipped": judge(passed, append(skips, skip{test: first})),
		}
		if len(skips) > 0 {
			wrong["a skipped one passes"] = judge(append(passed, skips[0].test), nil)
		} else if place == conformance.Linux61 {
			t.Error("nothing is skipped on 6.1, which lacks what 6.12 has")
		}
		for what, err := range wrong {
			if err == nil || !strings.Contains(err.Error(), conformance.File+":") {
				t.Errorf("%s: %s: %v", place, what, err)
			}
		}
	}
}
