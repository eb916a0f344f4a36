// Package plural counts things in words: "1 round", "2 rounds", "0 flushes".
package plural

import (
	"fmt"
	"strings"
)

// Of is a number and what there are so many of, which is given in the singular. The last word
// has the plural of its ending.
func Of[N ~int | ~int64 | ~uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	for _, hiss := range []string{"s", "sh", "ch", "x"} {
		if strings.HasSuffix(what, hiss) {
			return fmt.Sprintf("%d %ses", n, what)
		}
	}
	if stem, ok := strings.CutSuffix(what, "cy"); ok {
		return fmt.Sprintf("%d %scies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
