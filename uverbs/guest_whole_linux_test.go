package uverbs_test

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// Lives with an object of every kind, from open to close, leave the device and the
// process as they were.
//
// GOVERBS_ROUNDS sets how many; the full number is 10000.
func TestGuestWholeLivesLeaveNothing(t *testing.T) {
	s := guestSystem(t)
	// As in TestGuestLeavesNothing.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	life := uverbs.NewWholeLife(
		func() (*uverbs.Device, error) { return s.open(s.name) },
		func(n int) (*uverbs.Memory, error) { return uverbs.Alloc(n, nil) },
		nil,
	)
	var first []string
	lived := func(i int) {
		t.Helper()
		story, lacks, err := life.Live(i%2 == 0)
		if err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		if first == nil {
			first = story
			t.Logf("this device lacks %v", slices.Sorted(maps.Keys(lacks)))
		}
		if !slices.Equal(story, first) {
			t.Fatalf("life %d: %q, the first one: %q", i, story, first)
		}
	}
	rounds := uverbs.RoundsOr(t, 40)
	for i := range 10 + rounds/10 {
		lived(i)
	}
	s.leavesNothing(t, rounds, func() {
		for i := range rounds {
			lived(i)
		}
	})
}
