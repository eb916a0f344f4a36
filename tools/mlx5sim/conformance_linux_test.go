package main

import (
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/conformance"
)

// The suite comes out on the model as the table says.
func TestConformancePyverbs(t *testing.T) {
	if os.Getenv("GOVERBS_PYVERBS") == "" {
		t.Skip("declared skip: the whole suite takes long: GOVERBS_PYVERBS=1 runs it, and rxevm test does")
	}
	installed44OrSkip(t)
	results := make(conformance.Results)
	var all strings.Builder
	for _, m := range suiteModules { // one by one, each with the time that refereed gives
		out, code := refereed(t, "-pyverbs", "-run", "^"+m+"$")
		if code != 0 {
			t.Errorf("%s: status %d", m, code)
		}
		results.ReadReferee(out)
		all.WriteString(out)
	}
	if wrong := conformance.Compare(readConformance(t), conformance.Pyverbs, results); len(wrong) > 0 || t.Failed() {
		t.Errorf("%s\nof:\n%s", strings.Join(wrong, "\n"), all.String())
	}
}
