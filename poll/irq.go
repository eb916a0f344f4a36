package poll

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
)

// Vectors is what the system says of the completion vectors of an RDMA device: which
// interrupt serves each, and where that runs.
type Vectors struct {
	// Device is the name of the RDMA device.
	Device string
	// Node is the NUMA node of the device, or -1, and Near the processors that are on
	// it; none where the system does not say.
	Node int
	Near []int
	// Vectors are the completion vectors whose interrupts are known, in order. A
	// driver may leave some out: mlx5_core makes an interrupt when the first queue
	// uses it.
	Vectors []Vector
	// Unknown says why there is nothing in Vectors, or is nil.
	Unknown error
	// Others are the other interrupts of the device, as those of its asynchronous
	// events; all, where none is known to be a vector's.
	Others []Interrupt
}

// Vector is one completion vector.
type Vector struct {
	// Index is what CQOptions.Vector of package uverbs takes.
	Index int
	Interrupt
}

// Interrupt is one that the device raises.
type Interrupt struct {
	IRQ  int
	Name string // as in /proc/interrupts; "" if it is not there
	// Allowed are the processors that it may run on, Effective those that it was
	// directed to: most often one. Ran are those on which it has run since the system
	// started. Each is empty where the system does not say.
	Allowed, Effective, Ran []int

	msi int // its place in the device's table, or -1
}

// ErrVectors is wrapped by Vectors.Unknown.
var ErrVectors = errors.New("poll: completion vectors are not known")

// ReadVectors reads what the system says of a device's completion vectors: from sysfs,
// /proc/interrupts and /proc/irq.
//
// Linux does not say which interrupt serves a vector, but drivers give their interrupts
// names that tell. Those of mlx5_core, irdma, hns_roce, efa and erdma are understood; of
// all others Vectors has the interrupts and says that it does not know. It fails if there
// is no such device.
func ReadVectors(device string) (*Vectors, error) { return readVectors(os.DirFS("/"), device) }

// Vector returns the vector with an index.
func (v *Vectors) Vector(index int) (Vector, bool) {
	for _, w := range v.Vectors {
		if w.Index == index {
			return w, true
		}
	}
	return Vector{}, false
}

// CPU suggests a processor for the poller of a vector's queues, of those in allowed, or of
// those that the process may use if allowed is nil: the one that its interrupt runs on,
// else one of the device's node, a different one for each vector. ok is false when the
// system says neither.
func (v *Vectors) CPU(index int, allowed []int) (cpu int, ok bool) {
	if allowed == nil {
		allowed, _ = allowedCPUs()
	}
	if w, known := v.Vector(index); known {
		for _, cpus := range [][]int{w.Effective, w.Allowed} {
			// A mask of all says nothing.
			if both := common(cpus, allowed); len(both) > 0 && (len(both) < len(allowed) || len(allowed) == 1) {
				return both[index%len(both)], true
			}
		}
	}
	if near := common(v.Near, allowed); len(near) > 0 && index >= 0 {
		return near[index%len(near)], true
	}
	return 0, false
}

// readVectors reads from a tree that has sys and proc.
func readVectors(root fs.FS, device string) (*Vectors, error) {
	if !isFileName(device) {
		return nil, fmt.Errorf("poll: completion vectors of %q: not the name of a device", device)
	}
	dir := "sys/class/infiniband/" + device
	if _, err := fs.Stat(root, dir); err != nil {
		return nil, fmt.Errorf("poll: completion vectors of %s: %w", device, err)
	}
	v := &Vectors{Device: device, Node: -1, Near: localCPUs(root, device)}
	if s, err := readText(root, dir+"/device/numa_node"); err == nil {
		if n, err := strconv.ParseUint(s, 10, 16); err == nil {
			v.Node = int(n)
		}
	}
	own, err := msiOf(root, dir+"/device/msi_irqs")
	if err != nil {
		v.Unknown = fmt.Errorf("%w: %s has no interrupts of its own: its completions are told by what is below it", ErrVectors, device)
		return v, nil
	}
	// Without it there are no names, which is said below.
	rows, truncated := interruptsOf(root, own)
	all := make([]Interrupt, 0, len(own))
	for _, irq := range own {
		i := Interrupt{IRQ: irq, msi: -1}
		if r, ok := rows[irq]; ok {
			i.Name, i.Ran, i.msi = r.name, r.ran, r.msi
		}
		dir := "proc/irq/" + strconv.Itoa(irq)
		i.Allowed = readCPUs(root, dir+"/smp_affinity_list")
		i.Effective = readCPUs(root, dir+"/effective_affinity_list")
		all = append(all, i)
	}
	v.sort(all)
	if len(v.Vectors) == 0 && v.Unknown == nil {
		v.Unknown = fmt.Errorf("%w: the names of the %d interrupts of %s do not tell", ErrVectors, len(all), device)
		if truncated {
			v.Unknown = fmt.Errorf("%w: /proc/interrupts cannot be read to its end", v.Unknown)
		}
	}
	return v, nil
}

// sort tells vectors from other interrupts.
func (v *Vectors) sort(all []Interrupt) {
	base := vectorBase(all)
	for _, i := range all {
		d, n := vectorOf(i.Name)
		switch {
		case d == chooses:
			v.Unknown = fmt.Errorf("%w: the driver of %s gives a queue an interrupt of its own choice, whatever vector it asks for", ErrVectors, v.Device)
			v.Others = append(v.Others, i)
		case d == tells && n >= base && !slices.ContainsFunc(v.Vectors, func(w Vector) bool { return w.Index == n-base }):
			v.Vectors = append(v.Vectors, Vector{Index: n - base, Interrupt: i})
		default:
			v.Others = append(v.Others, i)
		}
	}
	slices.SortFunc(v.Vectors, func(a, b Vector) int { return a.Index - b.Index })
}

// readCPUs reads a list of processors, or none.
func readCPUs(root fs.FS, name string) []int {
	s, err := readText(root, name)
	if err != nil {
		return nil
	}
	cpus, err := parseCPUs(s)
	if err != nil {
		return nil
	}
	return cpus
}

// maxInterrupts is more than a device has: MSI-X ends at 2048.
const maxInterrupts = 4096

// msiOf returns the numbers of a device's interrupts, in order.
func msiOf(root fs.FS, dir string) ([]int, error) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	var irqs []int
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 31); err == nil && len(irqs) < maxInterrupts {
			irqs = append(irqs, int(n))
		}
	}
	slices.Sort(irqs)
	return irqs, nil
}
