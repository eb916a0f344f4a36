package perf

import (
	"errors"
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/poll"
)

// A stream that polls has one processor while it runs, and leaves as many as there were, also
// where it fails. One that waits for events, or whose other side runs beside it, takes none away.
func TestAlone(t *testing.T) {
	const all = 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(all))
	for name, c := range map[string]struct {
		wait wait
		want int
	}{
		"busy":     {wait{}, 1},
		"events":   {wait{waiter: new(poll.Waiter)}, all},
		"together": {wait{yield: true}, all},
	} {
		for _, fails := range []error{nil, errors.New("the other side is gone")} {
			has := 0
			// It has nothing to send, and tells so to the other side.
			s := &stream{wait: &c.wait, tell: func(int64) error {
				has = runtime.GOMAXPROCS(0)
				return fails
			}}
			if err := s.run(); err != fails {
				t.Errorf("%s: %v, want %v", name, err, fails)
			}
			if has != c.want {
				t.Errorf("%s: %d processors while it runs, want %d", name, has, c.want)
			}
			if left := runtime.GOMAXPROCS(0); left != all {
				t.Errorf("%s, %v: %d processors afterwards, want %d", name, fails, left, all)
			}
		}
	}
}
