package trace

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Snapshot runs dump, which must make the RES_CQ_GET dumps of RDMA netlink for
// the devices of interest in this process, and returns what the kernel showed of
// each CQ while it answered. A CQ that came or went meanwhile may be missing. An
// error of dump is returned as it is. dump must not call the tracer, which is
// locked.
func (t *Tracer) Snapshot(dump func() error) (map[CQID]CQ, error) {
	if err := t.use(); err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	t.round++
	if err := t.maps[state].Put(stateRound, t.round); err != nil {
		return nil, fmt.Errorf("number the round: %w", err)
	}
	before, err := t.maps.number(statePulls)
	if err != nil {
		return nil, err
	}
	if err := dump(); err != nil {
		return nil, err
	}
	all, err := t.pulled()
	if err != nil {
		return nil, err
	}
	if err := t.addCounters(all); err != nil {
		return nil, err
	}
	if err := t.canary(before, all); err != nil {
		return nil, err
	}
	t.previous = all
	return all, nil
}

// pulled takes what the dump of this round left in the map, and throws away
// what older ones left there.
func (t *Tracer) pulled() (map[CQID]CQ, error) {
	stored, err := read[CQID, snapshot](t.maps[snapshots])
	if err != nil {
		return nil, fmt.Errorf("read what the dump showed: %w", err)
	}
	all := make(map[CQID]CQ, len(stored))
	for id, s := range stored {
		if s.Round == t.round {
			all[id] = s.cq(t.offsets.pending)
		} else if err := forget(t.maps[snapshots], id); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addCounters adds what programs counted since Open. Counters of a CQ that two
// dumps in a row did not show go: it is destroyed.
func (t *Tracer) addCounters(all map[CQID]CQ) error {
	broken, err1 := read[CQID, uint64](t.maps[failures])
	woken, err2 := read[CQID, eventCounts](t.maps[events])
	posted, err3 := read[CQID, postCounts](t.maps[posts])
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("read the counters: %w", err)
	}
	loaded := loadedModules(moduleFolder)
	live := func(name string) bool { return loaded.since(t.attached, *t.level(name)).Live }
	errorsLive, eventsLive, postsLive := live(LevelErrors), live(LevelEvents), live(LevelEveryCQE)
	for id, q := range all {
		if errorsLive {
			n := broken[id]
			q.Errors = &n
		}
		if eventsLive {
			c := woken[id]
			q.Events = c.events()
		}
		if postsLive && q.Driver == driverRXE {
			c := posted[id]
			q.Posts = c.posts()
		}
		all[id] = q
	}
	gone := func(id CQID) bool {
		_, now := all[id]
		_, then := t.previous[id]
		return !now && !then && t.round > 1
	}
	for id := range broken {
		if gone(id) {
			err1 = errors.Join(err1, forget(t.maps[failures], id))
		}
	}
	for id := range woken {
		if gone(id) {
			err2 = errors.Join(err2, forget(t.maps[events], id))
		}
	}
	for id := range posted {
		if gone(id) {
			err3 = errors.Join(err3, forget(t.maps[posts], id))
		}
	}
	return errors.Join(err1, err2, err3)
}

// Syscalls returns the calls of uverbs since Open, in no order. Those of a
// process that has ended are in one answer more and then forgotten. Without the
// level it returns none.
func (t *Tracer) Syscalls() ([]Syscall, error) {
	if err := t.use(); err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	made, err := read[callKey, callCounts](t.maps[calls])
	if err != nil {
		return nil, fmt.Errorf("read the calls: %w", err)
	}
	all := make([]Syscall, 0, len(made))
	for k, c := range made {
		all = append(all, k.syscall(&c))
		// Numbers of another pid namespace cannot be looked up here.
		if t.idle[k] == c && t.process == uint32(os.Getpid()) && !runs(k.Process) {
			if err := forget(t.maps[calls], k); err != nil {
				return nil, err
			}
		}
	}
	t.idle = made
	return all, nil
}

// runs says whether a process is there.
func runs(process uint32) bool {
	_, err := os.Stat("/proc/" + strconv.FormatUint(uint64(process), 10))
	return err == nil
}
