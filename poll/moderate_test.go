package poll

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// device is what moderation does to one: with completions at a steady rate, an event
// brings those of a period, or a count.
type device struct {
	t       *testing.T
	p       Profile
	calls   int
	last    time.Time
	least   time.Duration // between two calls
	refuses error
}

func (d *device) Moderate(count int, period time.Duration) error {
	now := time.Now()
	if d.calls++; d.calls > 1 && now.Sub(d.last) < d.least {
		d.t.Errorf("moderated %v after the time before", now.Sub(d.last))
	}
	d.last = now
	if d.refuses != nil {
		return d.refuses
	}
	d.p = Profile{count, period}
	return nil
}

// run lets a time of traffic pass: completions in a second, of which the program can
// work off so many at the moderation of the moment.
func (d *device) run(m *Moderator, long time.Duration, rate func(Profile) float64) {
	for end := time.Now().Add(long); time.Now().Before(end); {
		r := rate(d.p)
		n := max(1, int(r*2e-6)) // what comes while an event is on its way
		if d.p.Count > 1 {
			n += min(d.p.Count, int(r*d.p.Period.Seconds()))
		}
		time.Sleep(time.Duration(float64(n) / r * 1e9))
		m.Event()
		m.Completions(n)
	}
}

func TestModeration(t *testing.T) {
	steady := func(r float64) func(Profile) float64 { return func(Profile) float64 { return r } }
	profiles := DefaultProfiles()
	for name, c := range map[string]struct {
		rate func(Profile) float64
		want Profile
	}{
		// An event brings one completion: nothing to gather.
		"quiet": {steady(10e3), profiles[0]},
		// More completions with each event, all the way.
		"busy": {steady(4e6), profiles[5]},
		// Who waits for each answer before it asks again gets fewer the longer
		// events wait.
		"ping-pong": {func(p Profile) float64 { return 3e6 / (1 + float64(p.Period)/float64(8*time.Microsecond)) }, profiles[0]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &device{t: t, least: 10 * time.Millisecond}
				m, err := NewModerator(d, nil)
				if err != nil {
					t.Fatal(err)
				}
				// A climber looks at its neighbours now and then: what counts is
				// where it is most of the time.
				at := make(map[Profile]int)
				for range 50 {
					d.run(m, 20*time.Millisecond, c.rate)
					if m.Profile() != d.p {
						t.Fatalf("says %v, the device has %v", m.Profile(), d.p)
					}
					at[d.p]++
				}
				if c.want != profiles[0] && at[c.want] < 40 || c.want == profiles[0] && at[profiles[0]]+at[profiles[1]] < 40 {
					t.Errorf("was at %v, want mostly %v", at, c.want)
				}
				// And back when the traffic ends.
				d.run(m, time.Second, steady(10e3))
				if d.p != profiles[0] {
					t.Errorf("quiet again: %v", d.p)
				}
				d.run(m, 100*time.Millisecond, steady(4e6))
				d.least = 0
				if err := m.Close(); err != nil || d.p != (Profile{}) || m.Profile() != (Profile{}) {
					t.Errorf("closed: %v, %v", err, d.p)
				}
				calls := d.calls
				d.run(m, 100*time.Millisecond, steady(4e6))
				if err := m.Close(); err != nil || d.calls != calls {
					t.Error("moderated after Close")
				}
			})
		})
	}
}

// A queue that refuses is asked once.
func TestModerationRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &device{t: t, refuses: errors.ErrUnsupported}
		m, err := NewModerator(d, &Moderation{Profiles: []Profile{{0, 0}, {8, time.Millisecond}}})
		if err != nil {
			t.Fatal(err)
		}
		d.run(m, 100*time.Millisecond, func(Profile) float64 { return 4e6 })
		if err := m.Close(); err != nil || d.calls != 1 {
			t.Errorf("%d calls, %v", d.calls, err)
		}
	})
}

// One profile is a fixed setting.
func TestModerationFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &device{t: t}
		m, err := NewModerator(d, &Moderation{Profiles: []Profile{{16, time.Millisecond}}, Events: 1})
		if err != nil {
			t.Fatal(err)
		}
		m.Event()
		d.run(m, 100*time.Millisecond, func(Profile) float64 { return 4e6 })
		if d.p != (Profile{16, time.Millisecond}) || d.calls != 1 {
			t.Errorf("%v after %d calls", d.p, d.calls)
		}
		if err := m.Close(); err != nil || d.calls != 2 || d.p != (Profile{}) {
			t.Errorf("%v, %v", d.p, err)
		}
	})
}

func TestNewModeratorRefuses(t *testing.T) {
	d := &device{t: t}
	for name, p := range map[string]*Moderation{
		"count":  {Profiles: []Profile{{1 << 16, 0}}},
		"period": {Profiles: []Profile{{0, 66 * time.Millisecond}}},
		"less":   {Profiles: []Profile{{-1, 0}}},
		"events": {Events: -1},
		"every":  {Every: -1},
	} {
		if _, err := NewModerator(d, p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewModerator(nil, nil); err == nil {
		t.Error("no queue: accepted")
	}
	m, err := NewModerator(d, &Moderation{Profiles: []Profile{}})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		m.Event()
	}
	if err := m.Close(); err != nil || d.calls != 0 {
		t.Errorf("moderated without a profile: %v", err)
	}
}

func TestModeratorAllocatesNothing(t *testing.T) {
	m, err := NewModerator(&moderatedQueue{}, &Moderation{Events: 1, Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := 1
	if a := testing.AllocsPerRun(1000, func() {
		m.Completions(n)
		m.Event()
		n = n*5%1000 + 1
	}); a != 0 {
		t.Errorf("%v allocations for an event", a)
	}
}
