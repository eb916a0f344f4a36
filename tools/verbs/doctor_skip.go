package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/verbs/internal/doctor"
)

// skippedChecks is a flag: names of checks that are to be left out, separated by commas.
type skippedChecks []string

// String is the names as Set reads them.
func (s *skippedChecks) String() string { return strings.Join(*s, ",") }

// Set reads names.
func (s *skippedChecks) Set(text string) error {
	var known []string
	for _, c := range doctor.Checks() {
		known = append(known, c.Name)
	}
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%q is no check: there are %s", name, strings.Join(known, ", "))
		}
		*s = append(*s, name)
	}
	return nil
}

// left are the checks that are to be made.
func (s skippedChecks) left() []doctor.Check {
	return slices.DeleteFunc(doctor.Checks(), func(c doctor.Check) bool { return slices.Contains(s, c.Name) })
}
