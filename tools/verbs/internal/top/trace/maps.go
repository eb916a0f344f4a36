//go:build linux

package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
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

// A table is a map by the name under which programs refer to it.
type table string

const (
	state     table = "state"     // the tool's own numbers
	zeros     table = "zeros"     // a value of zeros, as long as the longest
	snapshots table = "snapshots" // CQID: snapshot
	failures  table = "failures"  // CQID: how many CQ errors
	events    table = "events"    // CQID: eventCounts
	stamps    table = "stamps"    // stampKey: stamp
	readers   table = "readers"   // thread: reader
	calls     table = "calls"     // callKey: callCounts
	running   table = "running"   // thread: inflight
	posts     table = "posts"     // CQID: postCounts
)

// common are the tables that programs of each level use.
var common = []table{state, zeros}

// load is the instruction that loads a table's address.
func (m table) load(dst asm.Register) asm.Instruction {
	return asm.LoadMapPtr(dst, 0).WithReference(string(m))
}

// spec describes a table. Where an entry goes away by itself, as those of events
// that are read and calls that return do, the map may drop the oldest when it is
// full: what never goes away is of a channel or thread that is gone.
func (m table) spec() *ebpf.MapSpec {
	of := func(typ ebpf.MapType, key, value, room uint32) *ebpf.MapSpec {
		return &ebpf.MapSpec{Name: "verbs_" + string(m), Type: typ, KeySize: key, ValueSize: value, MaxEntries: room}
	}
	const thread = 8
	switch m {
	case state:
		return of(ebpf.Array, 4, 8, states)
	case zeros:
		return of(ebpf.Array, 4, max(8, sizeOf[eventCounts](), sizeOf[postCounts](), sizeOf[callCounts]()), 1)
	case snapshots:
		return of(ebpf.Hash, sizeOf[CQID](), sizeOf[snapshot](), roomCQs)
	case failures:
		return of(ebpf.Hash, sizeOf[CQID](), 8, roomErrors)
	case events:
		return of(ebpf.Hash, sizeOf[CQID](), sizeOf[eventCounts](), roomCounters)
	case stamps:
		return of(ebpf.LRUHash, sizeOf[stampKey](), sizeOf[stamp](), roomWaiting)
	case readers:
		return of(ebpf.LRUHash, thread, sizeOf[reader](), roomWaiting)
	case calls:
		return of(ebpf.Hash, sizeOf[callKey](), sizeOf[callCounts](), roomCalls)
	case running:
		return of(ebpf.LRUHash, thread, sizeOf[inflight](), roomWaiting)
	case posts:
		return of(ebpf.Hash, sizeOf[CQID](), sizeOf[postCounts](), roomCounters)
	}
	panic("trace: no table " + string(m)) // a mistake in this package, found by any test
}

// maps are the tables that are in the kernel.
type maps map[table]*ebpf.Map

// make makes tables that are not there yet.
func (s maps) make(all ...table) error {
	for _, name := range all {
		if s[name] != nil {
			continue
		}
		spec := name.spec()
		m, err := ebpf.NewMap(spec)
		if err != nil {
			return fmt.Errorf("make a BPF map of %d kB: %w", spec.MaxEntries*(spec.KeySize+spec.ValueSize)/1000, err)
		}
		s[name] = m
	}
	return nil
}

// shared are the maps for programs that use these tables.
func (s maps) shared(all []table) map[string]*ebpf.Map {
	some := map[string]*ebpf.Map{}
	for _, name := range slices.Concat(common, all) {
		some[string(name)] = s[name]
	}
	return some
}

func (s maps) close() error {
	var errs []error
	for name, m := range s {
		errs = append(errs, m.Close())
		delete(s, name)
	}
	return errors.Join(errs...)
}

// number reads one of the tool's own numbers.
func (s maps) number(i uint32) (uint64, error) {
	var n uint64
	err := s[state].Lookup(i, &n)
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
