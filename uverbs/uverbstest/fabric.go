package uverbstest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// Fabric is a fabric of devices in software that belongs to a test. Its methods may be
// called from any goroutine, where they say nothing else.
type Fabric struct {
	*sim.Fabric
	t testing.TB

	mu       sync.Mutex
	devices  []device
	memories []*uverbs.Memory
	// kept counts by device and kind what the kit could not close because of what
	// the test left on it.
	kept map[string]map[string]int
}

// device is an open device.
type device struct {
	*uverbs.Device
	where string // the line that has to close it, "" if the kit does
}

// NewFabric makes a fabric for a test: two devices, sim0 and sim1, if opts is nil. When
// the test is over it looks at what was left behind, as the package's documentation says.
func NewFabric(t testing.TB, opts *sim.Options) *Fabric {
	t.Helper()
	s, err := sim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	f := &Fabric{Fabric: s, t: t}
	t.Cleanup(f.finish)
	return f
}

// Open opens a device as [sim.Fabric.Open] does, for a program under test: who opens it
// closes it. A device that is still open at the end fails the test.
func (f *Fabric) Open(name string, opts *uverbs.Options) (*uverbs.Device, error) {
	d, err := f.Fabric.Open(name, opts)
	if err != nil {
		return nil, err
	}
	where := "an unknown line"
	if _, file, line, ok := runtime.Caller(1); ok {
		where = fmt.Sprintf("%s:%d", file[strings.LastIndexByte(file, '/')+1:], line)
	}
	f.keep(device{d, where})
	return d, nil
}

// Device opens a device that the kit closes at the end. What the test makes on it the
// test closes before. It is for the test's goroutine.
func (f *Fabric) Device(name string) *uverbs.Device {
	f.t.Helper()
	d, err := f.Fabric.Open(name, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.keep(device{Device: d})
	return d
}

func (f *Fabric) keep(d device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devices = append(f.devices, d)
}

// Alloc allocates memory as [uverbs.Alloc] does, which the kit gives back at the end, when
// all devices are closed. It is for the test's goroutine.
func (f *Fabric) Alloc(size int) *uverbs.Memory {
	f.t.Helper()
	m, err := uverbs.Alloc(size, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memories = append(f.memories, m)
	return m
}

// Fault lets something go wrong, or several things, one a line: see
// [model.ParseScript]. It is for the test's goroutine.
//
//	f.Fault("request 3: drop\ntime 1s device=sim0: port 1 down")
func (f *Fabric) Fault(script string) {
	f.t.Helper()
	if err := f.Model().Script(script); err != nil {
		f.t.Fatal(err)
	}
}

// Inject is [Fabric.Fault] without text.
func (f *Fabric) Inject(faults ...model.Fault) {
	f.t.Helper()
	for _, x := range faults {
		if err := f.Model().Inject(x); err != nil {
			f.t.Fatal(err)
		}
	}
}

// inUse says that an object of the kit's is in use by one of the test's.
func (f *Fabric) inUse(device, kind string) {
	if f.kept == nil {
		f.kept = make(map[string]map[string]int)
	}
	if f.kept[device] == nil {
		f.kept[device] = make(map[string]int)
	}
	f.kept[device][kind]++
}

// heal takes back the faults that are still to come, and lets go what they hold.
func (f *Fabric) heal() {
	f.Model().ClearFaults()
	f.Model().Release()
}

// finish is the end of the test.
func (f *Fabric) finish() {
	f.t.Helper()
	f.heal()
	leaks := f.leaks()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		switch err := d.Close(); {
		case errors.Is(err, os.ErrClosed):
		case err != nil:
			f.t.Errorf("close %s: %v", d.Name(), err)
		case d.where != "":
			leaks = append(leaks, fmt.Sprintf("%s, which was opened at %s, is still open", d.Name(), d.where))
		}
	}
	for _, d := range f.Model().Devices() {
		if left := d.Objects(); len(left) > 0 {
			leaks = append(leaks, fmt.Sprintf("%s: still there when all devices that the kit knows of were closed: %s", d.Name(), list(left)))
		}
	}
	for _, m := range f.memories {
		if err := m.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			f.t.Errorf("close memory of %d bytes: %v", m.Len(), err)
		}
	}
	for _, v := range f.Model().Violations() {
		f.t.Errorf("the device saw what no correct program does: %s", v)
	}
	for _, err := range f.Model().MissedFaults() {
		f.t.Errorf("the test's own mistake: %v", err)
	}
	if !f.t.Failed() {
		for _, l := range leaks {
			f.t.Errorf("left behind: %s", l)
		}
	}
}

// leaks is what programs have on devices that work, besides the devices themselves.
func (f *Fabric) leaks() (all []string) {
	infos, err := f.Devices()
	if err != nil {
		return []string{err.Error()}
	}
	for _, info := range infos {
		if info.Err != nil {
			continue // it failed: what was closed since it does not know
		}
		left := f.Model().Device(info.Name).Objects()
		// These come with an open device, and go with it. Queue pairs share registers.
		delete(left, "context")
		delete(left, "UAR")
		for kind, n := range f.kept[info.Name] {
			if left[kind] -= n; left[kind] == 0 {
				delete(left, kind)
			}
		}
		if len(left) > 0 {
			all = append(all, fmt.Sprintf("%s: %s", info.Name, list(left)))
		}
	}
	return all
}

// list says how many there are of what.
func list(counts map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(all, ", ")
}
