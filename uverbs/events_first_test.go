package uverbs

import "testing"

// A queue that counts its events, or reports them where others do, has them taken before it is
// polled.
func TestEventsFirst(t *testing.T) {
	r := newRig(t, false)
	c, err := r.dev.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct {
		name string
		opts *CQOptions
		want bool
	}{
		{"alone", &CQOptions{Events: true}, false},
		{"counted", &CQOptions{Events: true, Stats: &StatsOptions{}}, true},
		{"growing", &CQOptions{Events: true, Grow: &Growth{To: 64}}, true},
		{"on a channel of several", &CQOptions{Channel: c}, true},
	} {
		q, err := r.dev.NewCQ(16, l.opts)
		if err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		if got := q.EventsFirst(); got != l.want {
			t.Errorf("%s: %v, want %v", l.name, got, l.want)
		}
	}
}
