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
	out, code := refereed(t, "-pyverbs")
	if code != 0 {
		t.Errorf("status %d:\n%s", code, out)
	}
	results := make(conformance.Results)
	results.ReadReferee(out)
	if wrong := conformance.Compare(readConformance(t), conformance.Pyverbs, results); len(wrong) > 0 {
		t.Errorf("%s\nof:\n%s", strings.Join(wrong, "\n"), out)
	}
}
