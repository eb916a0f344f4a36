package fakekernel

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/fstest"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Kernel is a made-up kernel. It implements [kernel.Kernel].
type Kernel struct {
	mu         sync.Mutex
	devices    []*device
	noNetlink  error
	release    string
	memlock    uint64
	exempt     bool
	faults     faults
	violations []string

	fds     map[int]*events // event descriptors by number
	files   map[*file]bool  // open ones
	allocs  map[*kernel.Mapping]*allocation
	free    map[int]int    // bytes by NUMA node; nil without such
	dmabufs map[int][]byte // by descriptor
	rings   map[*ring]bool // mapped and not detached
	mrs     map[uint32]*mr // of all devices, by index
	mws     map[uint32]*mw // likewise
	watches map[*watch]bool
	pages   int   // pinned
	token   int64 // last mmap token
	nextMR  uint32
	nextKey uint32
}

// New makes a kernel with the given devices.
func New(devices ...Device) *Kernel {
	k := &Kernel{
		memlock: math.MaxUint64, release: "6.1.192",
		fds: make(map[int]*events), files: make(map[*file]bool), allocs: make(map[*kernel.Mapping]*allocation),
		watches: make(map[*watch]bool), rings: make(map[*ring]bool), mrs: make(map[uint32]*mr), mws: make(map[uint32]*mw),
	}
	for i, d := range devices {
		k.devices = append(k.devices, newDevice(d, i))
	}
	return k
}

// SetMemlock limits how many bytes may be pinned.
func (k *Kernel) SetMemlock(limit uint64, exempt bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.memlock, k.exempt = limit, exempt
}

// Memlock implements [kernel.Kernel].
func (k *Kernel) Memlock() (limit uint64, exempt bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memlock, k.exempt
}

// SetRelease gives the kernel another version than 6.1.192. What it does stays the
// same.
func (k *Kernel) SetRelease(version string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.release = version
}

// Release implements [kernel.Kernel].
func (k *Kernel) Release() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.release
}

// PageSize implements [kernel.Kernel].
func (k *Kernel) PageSize() int { return pageSize }

// pageSize is the same everywhere, so that tests mean the same everywhere.
const pageSize = 4096

// Open implements [kernel.Kernel].
func (k *Kernel) Open(path string, rdev uint64) (kernel.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.faults.check(Call{Op: Open, Path: path}); err != nil {
		return nil, err
	}
	d := k.find(path)
	switch {
	case d == nil:
		return nil, syscall.ENOENT
	case d.NoPermission:
		return nil, syscall.EACCES
	case rdev != 0 && rdev != d.rdev:
		return nil, syscall.ENXIO
	}
	f := &file{k: k, dev: d}
	k.files[f] = true
	return f, nil
}

// find finds the device whose verbs file has a path.
func (k *Kernel) find(path string) *device {
	name, ok := strings.CutPrefix(path, "/dev/infiniband/")
	if !ok {
		return nil
	}
	for _, d := range k.devices {
		if d.name == name && !d.NoNode && !d.NoUverbs && !d.leaving() {
			return d
		}
	}
	return nil
}

// Sysfs implements [kernel.Kernel].
func (k *Kernel) Sysfs() fs.FS {
	k.mu.Lock()
	defer k.mu.Unlock()
	files := sysfs(k.devices)
	if k.free != nil {
		files["devices/system/node/has_memory"] = &fstest.MapFile{Data: []byte(nodeList(k.free) + "\n"), Mode: 0o444}
	}
	return files
}

// Violations lists what programs did that no correct program does, though the
// kernel would not refuse it.
func (k *Kernel) Violations() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.violations)
}

func (k *Kernel) violation(format string, args ...any) {
	k.violations = append(k.violations, fmt.Sprintf(format, args...))
}

// Leaks lists everything that is still open, mapped, allocated, made or pinned.
func (k *Kernel) Leaks() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var leaks []string
	for f := range k.files {
		leaks = append(leaks, fmt.Sprintf("file %s is open", f.dev.name))
	}
	for fd, e := range k.fds {
		leaks = append(leaks, fmt.Sprintf("descriptor %d, %v, is open", fd, e.kind))
	}
	for r := range k.rings {
		leaks = append(leaks, fmt.Sprintf("%s of %d bytes is mapped", r.what, len(r.shared)))
	}
	for w := range k.watches {
		leaks = append(leaks, fmt.Sprintf("%s is watched", w.name))
	}
	for _, a := range k.allocs {
		leaks = append(leaks, fmt.Sprintf("%d bytes are allocated", a.asked))
	}
	for _, d := range k.devices {
		for _, c := range d.contexts {
			for h, o := range c.objects {
				leaks = append(leaks, fmt.Sprintf("%s: %s with handle %d exists", d.Name, o.kind(), h))
			}
		}
	}
	if k.pages > 0 {
		leaks = append(leaks, fmt.Sprintf("%d pages are pinned", k.pages))
	}
	slices.Sort(leaks)
	return leaks
}

// Objects counts the objects of all devices by kind: "PD", "MR", "CQ", "QP",
// "context".
func (k *Kernel) Objects() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := make(map[string]int)
	for _, d := range k.devices {
		for _, c := range d.contexts {
			counts["context"]++
			for _, o := range c.objects {
				counts[o.kind()]++
			}
		}
	}
	return counts
}

// SetPort takes the port of a device up or down and says so in an event.
func (k *Kernel) SetPort(name string, up bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.Name != name || d.up == up {
			continue
		}
		d.up = up
		event := uint32(eventPortErr)
		if up {
			event = eventPortActive
		}
		for _, c := range d.contexts {
			c.async(1, nil, event)
		}
	}
}
