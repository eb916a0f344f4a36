package uverbs_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// Lives with an object of every kind, from open to close, leave the kernel and the
// process as they were.
//
// GOVERBS_ROUNDS sets how many; the full number is 10000.
func TestGuestWholeLivesLeaveNothing(t *testing.T) {
	d := guestDevice(t)
	name := d.Name()
	d.Close()
	// As in TestGuestLeavesNothing.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	life := uverbs.NewWholeLife(
		func() (*uverbs.Device, error) { return uverbs.Open(name, nil) },
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
			t.Logf("this kernel's device lacks %v", slices.Sorted(maps.Keys(lacks)))
		}
		if !slices.Equal(story, first) {
			t.Fatalf("life %d: %q, the first one: %q", i, story, first)
		}
	}
	rounds := uverbs.RoundsOr(t, 40)
	for i := range 10 + rounds/10 {
		lived(i)
	}
	before := measure(t)
	for i := range rounds {
		lived(i)
	}
	var after usage
	clean := func() bool {
		// The Go runtime maps a few ranges of its own as it goes, and grows a
		// little; a leak of one a round would show as more.
		return maps.Equal(before.objects, after.objects) && before.descriptors == after.descriptors && after.rings == 0 &&
			after.goroutines <= before.goroutines && after.mappings < before.mappings+min(20, rounds) && after.pinned == before.pinned && after.rss <= before.rss+1<<20+1024*rounds
	}
	for end := time.Now().Add(30 * time.Second); ; {
		if after = measure(t); clean() {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%d lives have left something", rounds)
			break
		}
	}
	t.Logf("before %+v", before)
	t.Logf("after  %+v", after)
}
