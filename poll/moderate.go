package poll

import (
	"errors"
	"fmt"
	"time"
)

// Moderated is a queue that can let its device wait with an event until count
// completions are there, or period is over since the first; 0 and 0 is not at all.
// *uverbs.CQ is one.
type Moderated interface {
	Moderate(count int, period time.Duration) error
}

// Profile is a degree of moderation.
type Profile struct {
	Count  int
	Period time.Duration
}

// Moderation is how a Moderator adapts moderation to traffic. The zero value is fine.
type Moderation struct {
	// Profiles are the degrees to choose from, from none, or little, to the most;
	// nil means DefaultProfiles. A queue begins with the first.
	Profiles []Profile
	// Events is how many events are looked at together, at least; 0 means 64.
	Events int
	// Every is the least time between two changes, each of which is a call into the
	// kernel; 0 means 10 ms.
	Every time.Duration
}

// DefaultProfiles are the degrees of moderation that a Moderator chooses from unless told
// otherwise. The longest delay that they may cost is 64 us.
func DefaultProfiles() []Profile {
	return []Profile{
		{0, 0},
		{4, 4 * time.Microsecond},
		{8, 8 * time.Microsecond},
		{16, 16 * time.Microsecond},
		{32, 32 * time.Microsecond},
		{64, 64 * time.Microsecond},
	}
}

// check refuses what no device takes.
func (p *Moderation) check() error {
	if p.Events < 0 || p.Every < 0 {
		return fmt.Errorf("poll: moderation by %d events, every %v: neither is negative", p.Events, p.Every)
	}
	for i, o := range p.Profiles {
		if o.Count < 0 || o.Count > 1<<16-1 || o.Period < 0 || o.Period > (1<<16-1)*time.Microsecond {
			return fmt.Errorf("poll: profile %d of moderation: %d completions or %v: 0 to 65535, 0 to 65.535ms", i, o.Count, o.Period)
		}
	}
	return nil
}

// Moderator adapts the moderation of one queue to its traffic, so that a busy queue raises
// an event for many completions and a quiet one raises it at once. It belongs to the
// queue's poller, which tells it of what it polls and takes; the pollers of a Group do.
//
// It climbs a hill. Every Moderation.Events events it compares how many completions came
// in a second, and how many with one event, with what it saw before its last step. Where
// an event brings one completion there is nothing to gather, and it steps down. Where a
// step brought more completions, or as many with fewer events, it takes another that way;
// where it brought fewer, it turns round; where it changed nothing it stays, until the
// rate changes.
//
// It allocates nothing.
type Moderator struct {
	q        Moderated
	profiles []Profile
	events   int
	every    time.Duration
	off      bool // the queue refuses, or Close was called

	level   int  // index of the profile in force
	touched bool // the queue was moderated, and is to be reset
	up      bool // where the last step went
	settled bool // the last step changed nothing

	start       time.Time // of the sample
	taken       int
	completions uint64
	before      traffic
}

// traffic is what was seen in a sample.
type traffic struct{ rate, perEvent float64 }

// NewModerator makes a Moderator of a queue. The policy may be nil. Close it when done.
func NewModerator(q Moderated, policy *Moderation) (*Moderator, error) {
	if q == nil {
		return nil, errors.New("poll: NewModerator without a queue")
	}
	if policy == nil {
		policy = &Moderation{}
	}
	if err := policy.check(); err != nil {
		return nil, err
	}
	return newModerator(q, policy), nil
}

func newModerator(q Moderated, policy *Moderation) *Moderator {
	m := &Moderator{q: q, profiles: policy.Profiles, events: policy.Events, every: policy.Every, up: true}
	if m.profiles == nil {
		m.profiles = DefaultProfiles()
	}
	if m.events == 0 {
		m.events = 64
	}
	if m.every == 0 {
		m.every = 10 * time.Millisecond
	}
	m.off = len(m.profiles) == 0
	return m
}

// Completions tells of n completions that were polled.
func (m *Moderator) Completions(n int) { m.completions += uint64(n) }

// Event tells of an event that was taken. With one in Moderation.Events it looks at the
// clock and may moderate the queue.
func (m *Moderator) Event() {
	if m.taken++; m.taken < m.events || m.off {
		return
	}
	m.look(time.Now())
}

// Profile is the profile in force.
func (m *Moderator) Profile() Profile {
	if !m.touched {
		return Profile{}
	}
	return m.profiles[m.level]
}

// look ends a sample if it was long enough, and decides.
func (m *Moderator) look(now time.Time) {
	if !m.touched && m.profiles[m.level] != (Profile{}) {
		m.set(m.level)
	}
	if m.start.IsZero() {
		m.begin(now)
		return
	}
	took := now.Sub(m.start)
	if took < m.every {
		return
	}
	seen := traffic{rate: float64(m.completions) / took.Seconds(), perEvent: float64(m.completions) / float64(m.taken)}
	if next := m.decide(seen); next != m.level {
		m.set(next)
	}
	m.begin(now)
}

// begin begins a sample.
func (m *Moderator) begin(now time.Time) { m.start, m.taken, m.completions = now, 0, 0 }

// differs is by how much a figure has to change to tell something.
const differs = 0.1

// compare returns 1, 0 or -1.
func compare(now, before float64) int {
	switch {
	case now > before*(1+differs):
		return 1
	case now < before*(1-differs):
		return -1
	}
	return 0
}

// decide returns the level that is to be next.
func (m *Moderator) decide(seen traffic) int {
	before := m.before
	m.before = seen
	if seen.perEvent < 1.5 {
		m.up, m.settled = true, false
		return max(m.level-1, 0)
	}
	rate := compare(seen.rate, before.rate)
	switch {
	case m.settled && rate == 0:
		return m.level
	case m.settled:
		m.up = rate > 0
	case rate < 0:
		m.up = !m.up
	case rate == 0 && compare(seen.perEvent, before.perEvent) == 0 && before.rate > 0:
		m.settled = true
		return m.level
	case rate == 0 && compare(seen.perEvent, before.perEvent) < 0:
		m.up = !m.up
	}
	m.settled = false
	next := m.level + 1
	if !m.up {
		next = m.level - 1
	}
	if next < 0 || next >= len(m.profiles) {
		m.settled = true
		return m.level
	}
	return next
}

// set moderates the queue. One that refuses is not asked again.
func (m *Moderator) set(level int) {
	p := m.profiles[level]
	if err := m.q.Moderate(p.Count, p.Period); err != nil {
		m.off = true
		return
	}
	m.level, m.touched = level, true
}

// Close ends moderation: the queue raises its events at once again. It returns what that
// failed with, as on a queue that was closed.
func (m *Moderator) Close() error {
	m.off = true
	if !m.touched {
		return nil
	}
	m.touched = false
	return m.q.Moderate(0, 0)
}
