//go:build linux

package trace

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// How many of a kind the maps have room for. Maps of tracing programs are
// allocated in full, since a probe may come where nothing can be allocated; so
// these are bytes of the kernel's memory too: 2.6 MB for the pull, 8 MB with all
// levels.
const (
	roomCQs      = 16384 // that a dump may show
	roomErrors   = 8192  // CQs with errors
	roomCounters = 8192  // CQs with events, or with completions
	roomCalls    = 8192  // processes times methods
	roomWaiting  = 16384 // events not read, threads in a call
)

// maps are what programs and this process share. Those of levels that nobody
// asked for are nil.
type maps struct {
	state, zero             *ebpf.Map
	snapshots               *ebpf.Map
	errors                  *ebpf.Map
	events, stamps, readers *ebpf.Map
	calls, inflight         *ebpf.Map
	posts                   *ebpf.Map
	all                     []*ebpf.Map
	failed                  error
}

// make makes a map. After a failure it makes none, and failed says why.
func (s *maps) make(name string, typ ebpf.MapType, key, value, room uint32) *ebpf.Map {
	if s.failed != nil {
		return nil
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "verbs_" + name, Type: typ, KeySize: key, ValueSize: value, MaxEntries: room})
	if err != nil {
		s.failed = fmt.Errorf("make a BPF map of %d kB: %w", room*(key+value)/1000, err)
		return nil
	}
	s.all = append(s.all, m)
	return m
}

func newMaps() *maps {
	s := &maps{}
	s.state = s.make("state", ebpf.Array, 4, 8, states)
	s.zero = s.make("zero", ebpf.Array, 4, max(8, sizeOf[eventCounts](), sizeOf[postCounts](), sizeOf[callCounts]()), 1)
	return s
}

// forPull, and so on, make the maps of a level.
func (s *maps) forPull() {
	s.snapshots = s.make("snapshots", ebpf.Hash, sizeOf[CQID](), sizeOf[snapshot](), roomCQs)
}

func (s *maps) forErrors() {
	s.errors = s.make("errors", ebpf.Hash, sizeOf[CQID](), 8, roomErrors)
}

// Where an entry goes away by itself, as those of events that are read and
// calls that return do, the map may drop the oldest when it is full: what never
// goes away is of a channel or thread that is gone.
func (s *maps) forEvents() {
	s.events = s.make("events", ebpf.Hash, sizeOf[CQID](), sizeOf[eventCounts](), roomCounters)
	s.stamps = s.make("stamps", ebpf.LRUHash, sizeOf[stampKey](), sizeOf[stamp](), roomWaiting)
	s.readers = s.make("readers", ebpf.LRUHash, 8, sizeOf[reader](), roomWaiting)
}

func (s *maps) forSyscalls() {
	s.calls = s.make("calls", ebpf.Hash, sizeOf[callKey](), sizeOf[callCounts](), roomCalls)
	s.inflight = s.make("inflight", ebpf.LRUHash, 8, sizeOf[inflight](), roomWaiting)
}

func (s *maps) forEveryCQE() {
	s.posts = s.make("posts", ebpf.Hash, sizeOf[CQID](), sizeOf[postCounts](), roomCounters)
}

func (s *maps) close() error {
	var errs []error
	for _, m := range s.all {
		errs = append(errs, m.Close())
	}
	s.all = nil
	return errors.Join(errs...)
}

// number reads one of the tool's own numbers.
func (s *maps) number(i uint32) (uint64, error) {
	var n uint64
	err := s.state.Lookup(i, &n)
	return n, err
}

// read copies a map's entries; a nil map has none. Entries that come or go
// meanwhile may be in it or not.
func read[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	if m == nil {
		return nil, nil
	}
	var (
		all = map[K]V{}
		k   K
		v   V
		it  = m.Iterate()
	)
	for it.Next(&k, &v) {
		all[k] = v
	}
	return all, it.Err()
}

// forget removes an entry; one that is gone already is as good.
func forget[K comparable](m *ebpf.Map, k K) error {
	if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}
