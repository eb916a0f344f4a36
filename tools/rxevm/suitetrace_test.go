//go:build linux

package main

import (
	"slices"
	"testing"
)

// Tests that attach probes run in the guest that is made for them, and nowhere
// else.
func TestApartProbing(t *testing.T) {
	both := guestTest{pkg: "./both", probing: true, others: true, run: testRun{args: []string{"-test.run=^TestGuest"}}}
	only := guestTest{pkg: "./only", probing: true}
	none := guestTest{pkg: "./none", others: true}
	others, probing := apartProbing([]guestTest{both, only, none})
	pkgs := func(all []guestTest) (p []string) {
		for _, t := range all {
			p = append(p, t.pkg)
		}
		return p
	}
	if got := pkgs(others); !slices.Equal(got, []string{"./both", "./none"}) {
		t.Errorf("others: %v", got)
	}
	if got := pkgs(probing); !slices.Equal(got, []string{"./both", "./only"}) {
		t.Errorf("probing: %v", got)
	}
	if got, want := others[0].run.args, []string{"-test.run=^TestGuest", "-test.skip=^TestGuest(Trace|Top)"}; !slices.Equal(got, want) {
		t.Errorf("the others run with %v, not %v", got, want)
	}
	if got, want := probing[0].run.args, []string{"-test.run=^TestGuest", "-test.run=^TestGuest(Trace|Top)"}; !slices.Equal(got, want) {
		t.Errorf("the probing run with %v, not %v", got, want)
	}
	if !probingTest.MatchString("func TestGuestTraceOccupancy(") || probingTest.MatchString("func TestGuestPingpong(") {
		t.Error("names")
	}
}
