package fakekernel

import (
	"sync"
	"syscall"
)

// watch is a call of Watch that was not stopped.
type watch struct {
	name string // of the verbs file
	dev  *device
	gone func()

	running bool // run was called
	told    bool // Tell was, before
}

// Watch implements [kernel.Kernel]. Nobody sees anything but of what [Kernel.Tell] tells.
func (k *Kernel) Watch(name string, gone func()) (run, stop func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.faults.check(Call{Op: Watch}); err != nil {
		return nil, nil, err
	}
	w := &watch{name: name, gone: gone}
	for _, d := range k.devices {
		if d.name == name && !d.leaving() {
			w.dev = d
		}
	}
	k.watches[w] = true
	stopped := make(chan struct{})
	run = func() {
		k.mu.Lock()
		w.running = true
		told := w.told
		k.mu.Unlock()
		if told {
			gone()
		}
		<-stopped
	}
	return run, sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.watches, w)
		close(stopped)
	}), nil
}

// Tell tells who watches a device that is being removed, as uevents do, or a look
// at /sys. It may be called any number of times.
func (k *Kernel) Tell(name string) {
	k.mu.Lock()
	var tell []func()
	for w := range k.watches {
		if w.dev != nil && w.dev.Name == name && w.dev.leaving() {
			if w.told = true; w.running {
				tell = append(tell, w.gone)
			}
		}
	}
	k.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// Unplug removes a device as soft-RoCE's are: nobody can open it any more, no event
// comes, and whoever has it open can use it as before. The channel is closed when
// nobody has: until then the removal waits. See Tell.
func (k *Kernel) Unplug(name string) (removed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.Name == name && !d.leaving() {
			c := make(chan struct{})
			d.removed = c
			k.freed(d)
			return c
		}
	}
	return nil
}

// freed ends the removal of a device that nobody uses any more. The lock is held.
func (k *Kernel) freed(d *device) {
	if d.removed == nil || d.gone || len(d.contexts) > 0 {
		return
	}
	for f := range k.files {
		if f.dev == d {
			return
		}
	}
	for _, e := range k.fds {
		if e.dev == d {
			return
		}
	}
	d.gone = true
	close(d.removed)
}

// leaving says whether the device is gone for who does not have it open.
func (d *device) leaving() bool { return d.gone || d.removed != nil }

// RemoveDevice takes a device away from its users, as drivers with
// disassociation do: DEVICE_FATAL on asynchronous event files, EIO for all that
// follows.
func (k *Kernel) RemoveDevice(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.Name != name {
			continue
		}
		d.gone = true
		for _, c := range d.contexts {
			c.async(0, nil, eventDeviceFatal)
			for _, e := range c.channels {
				e.breakOff(syscall.EIO)
			}
		}
	}
}
