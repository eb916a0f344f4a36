package trace

import (
	"fmt"
	"os"
	"strings"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// canary looks whether the probes fire at all: with kprobes or ftrace switched
// off, attaching succeeds and nothing ever happens. It gets the number of pulls
// before the dump.
func (t *Tracer) canary(before uint64, all map[CQID]CQ) error {
	if !t.live(LevelPull) {
		return nil
	}
	pulls, err := t.maps.number(statePulls)
	if err != nil {
		return err
	}
	if pulls == before {
		// Perhaps the caller's dump was of nothing.
		listed, err := listCQs()
		if err != nil {
			return fmt.Errorf("list the CQs to see whether the probes fire: %w", err)
		}
		if pulls, err = t.maps.number(statePulls); err != nil {
			return err
		}
		if pulls == before && len(listed) > 0 {
			t.inert = inertBecause(os.ReadFile)
			return nil
		}
	}
	if pulls != before {
		t.inert = ""
	}
	if err := t.sayLosses(); err != nil {
		return err
	}
	if t.live(LevelEvents) {
		t.silent.add(t.previous, all)
	}
	return nil
}

// inertBecause says why attached probes do not fire, as far as it can be seen.
func inertBecause(readFile func(string) ([]byte, error)) string {
	const said = "the probes are attached and never fire"
	off := func(path string) bool {
		b, err := readFile(path)
		return err == nil && strings.TrimSpace(string(b)) == "0"
	}
	for _, enabled := range []string{"/sys/kernel/debug/kprobes/enabled", "/proc/sys/kernel/ftrace_enabled"} {
		if off(enabled) {
			return fmt.Sprintf("%s: %s is 0; echo 1 > %s mends it", said, enabled, enabled)
		}
	}
	return said + ", although the kernel lists CQs; look at /sys/kernel/debug/kprobes/enabled and /proc/sys/kernel/ftrace_enabled"
}

// sayLosses adds to the levels what did not fit into maps.
func (t *Tracer) sayLosses() error {
	for level, counters := range map[string]struct {
		number uint32
		what   string
	}{
		LevelPull:     {lostPulls, fmt.Sprintf("there are more CQs than the %d that there is room for", roomCQs)},
		LevelEvents:   {lostCounters, fmt.Sprintf("there are more CQs than the %d that there is room for", roomCounters)},
		LevelErrors:   {lostCounters, fmt.Sprintf("there are more CQs than the %d that there is room for", roomErrors)},
		LevelEveryCQE: {lostCounters, fmt.Sprintf("there are more CQs than the %d that there is room for", roomCounters)},
		LevelSyscalls: {lostCalls, fmt.Sprintf("there are more processes and methods than the %d that there is room for", roomCalls)},
	} {
		if !t.live(level) {
			continue
		}
		n, err := t.maps.number(counters.number)
		if err != nil {
			return err
		}
		if l := t.level(level); n > 0 && !strings.Contains(l.Why, counters.what) {
			l.Why += "; " + counters.what
		}
	}
	return nil
}

// A silence is how long programs have been reading events while no probe saw
// one made. One interval proves nothing, since the events may be from before
// the probes.
type silence struct {
	intervals int
	heard     bool
}

// add looks at two snapshots in a row.
func (s *silence) add(previous, now map[CQID]CQ) {
	grew := false
	for id, q := range now {
		s.heard = s.heard || q.Events != nil && q.Events.Count > 0
		if p, ok := previous[id]; ok && p.User != nil && q.User != nil && p.User.EventsRead != q.User.EventsRead {
			grew = true
		}
	}
	if grew {
		s.intervals++
	}
}

// sure says whether the silence cannot be an accident.
func (s *silence) sure() bool { return !s.heard && s.intervals >= 3 }

// listCQs makes a dump of its own, of each device, and returns the CQs. A device
// that refuses, as one does that went since it was listed, has none.
func listCQs() ([]CQID, error) {
	c, err := nldev.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		return nil, err
	}
	var all []CQID
	for _, l := range links {
		cqs, err := c.CQs(l.Index)
		if err != nil {
			continue
		}
		for _, q := range cqs {
			all = append(all, CQID{l.Index, q.ID})
		}
	}
	return all, nil
}
