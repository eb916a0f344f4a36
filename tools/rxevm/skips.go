package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var needsKernel = regexp.MustCompile(`needs kernel >= (\d+)\.(\d+)`)

// undeclared says why a skip is not allowed in a guest with a kernel of a series, or "" when it is.
// A test that never runs proves nothing, so a skip must either name a kernel that the guest does
// not have, or declare itself; one that asks for the guest has no excuse there.
func undeclared(s skip, series string, short bool) string {
	if strings.Contains(s.reason, "run in the guest") {
		return fmt.Sprintf("false skip: %s: %q, but this is the guest", s.test, s.reason)
	}
	if strings.Contains(s.reason, "declared skip:") {
		return ""
	}
	if short && strings.Contains(s.reason, "short") {
		return "" // The user asked for it by -short.
	}
	m := needsKernel.FindStringSubmatch(s.reason)
	if m == nil {
		return fmt.Sprintf("undeclared skip: %s: %q (say \"needs kernel >= N.N: ...\" or \"declared skip: ...\" where it cannot be helped)", s.test, s.reason)
	}
	if !olderThan(series, m[1]+"."+m[2]) {
		return fmt.Sprintf("false skip: %s: %q, but the guest's kernel is %s", s.test, s.reason, series)
	}
	return ""
}

// olderThan reports whether a kernel series such as 6.1 is older than another. Parts that are no
// numbers count as 0; series come from our own tables.
func olderThan(a, b string) bool {
	part := func(s string) (int, int) {
		x, y, _ := strings.Cut(s, ".")
		major, _ := strconv.Atoi(x)
		minor, _ := strconv.Atoi(y)
		return major, minor
	}
	aMajor, aMinor := part(a)
	bMajor, bMinor := part(b)
	return aMajor < bMajor || aMajor == bMajor && aMinor < bMinor
}
