package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// An attacher loads programs and attaches them to their functions.
type attacher struct {
	t          *Tracer
	cache      *btf.Cache
	resolver   *resolver
	privileges privileges
}

// ring finds the offsets of soft-RoCE's rings and says what came of it. Nil
// means that there are none.
func (a *attacher) ring() *ringOffsets {
	if _, err := os.Stat("/sys/module/rdma_rxe"); errors.Is(err, fs.ErrNotExist) {
		a.t.say(LevelRing, false, noSoftRoCE)
		return nil
	}
	o, err := a.resolver.ring()
	switch {
	case err != nil:
		a.t.say(LevelRing, false, err.Error())
		return nil
	case o.guessed:
		a.t.say(LevelRing, true, "rdma_rxe has no type information (BTF), so its rings are read by a table and shown where they look like rings")
	default:
		a.t.say(LevelRing, true, "read with the dump")
	}
	return &o
}

const noSoftRoCE = "the module rdma_rxe is not loaded: there is no soft-RoCE device"

// attach attaches a group in one of its ways and says which one it was.
func (a *attacher) attach(g group) (string, error) {
	for function, args := range g.functions {
		if err := a.resolver.takes(g.module, function, args); err != nil {
			return "", err
		}
	}
	if err := a.t.maps.make(g.tables...); err != nil {
		return "", a.privileges.explain(plain(err))
	}
	var errs []error
	for _, h := range g.hooks {
		how, err := a.attachBy(g, h)
		if err == nil {
			return how, nil
		}
		errs = append(errs, err)
	}
	// What the preferred way misses is what to mend, unless another way came
	// farther.
	if len(errs) > 1 && errors.Is(errs[0], errNoHook) {
		return "", errs[1]
	}
	return "", errs[0]
}

// errNoHook marks a way of attaching that this kernel or process has not got.
var errNoHook = errors.New("cannot be had here")

// attachBy attaches a group in one way. A failure leaves nothing behind.
func (a *attacher) attachBy(g group, h hook) (_ string, err error) {
	probes := g.probes(h)
	if len(probes) == 0 {
		return "", errors.New(a.t.level(LevelRing).Why)
	}
	if err := a.canHook(h); err != nil {
		return "", err
	}
	links, programs := len(a.t.links), len(a.t.programs)
	defer func() {
		if err != nil {
			err = errors.Join(err, a.t.detach(links, programs))
		}
	}()
	spec := g.spec(h, registersOf[runtime.GOARCH])
	// One load for all, with one cache of type information: each would parse
	// vmlinux for itself.
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: a.cache, MapReplacements: a.t.maps.shared(g.tables)})
	if err != nil {
		return "", a.privileges.explain(plain(err))
	}
	// The collection has a descriptor of its own for each map.
	for _, m := range c.Maps {
		err = errors.Join(err, m.Close())
	}
	ends := false
	for _, p := range probes {
		a.t.programs = append(a.t.programs, c.Programs[p.name])
		ends = ends || p.atEnd
	}
	if err != nil {
		return "", err
	}
	for _, p := range probes {
		l, err := p.attach(h, c.Programs[p.name])
		if err != nil {
			return "", a.privileges.explainAttach(p.function, g.module, err)
		}
		a.t.links = append(a.t.links, l)
	}
	switch {
	case h == fentry && ends:
		return "fentry and fexit", nil
	case h == kprobe && ends:
		return "kprobe and kretprobe", nil
	}
	return h.String(), nil
}

// canHook says early what would fail late, or with another message.
func (a *attacher) canHook(h hook) error {
	if h == kprobe {
		// Without it the library makes probes by writing to tracefs, and those
		// stay behind when a process is killed.
		if _, err := os.Stat("/sys/bus/event_source/devices/kprobe/type"); err != nil {
			return fmt.Errorf("this kernel has no kprobes by perf_event_open (CONFIG_KPROBE_EVENTS): %w", errNoHook)
		}
		return nil
	}
	if !a.privileges.has(unix.CAP_SYS_ADMIN) {
		return fmt.Errorf("fentry on functions of modules needs CAP_SYS_ADMIN: %w", errNoHook)
	}
	return nil
}

// spec is what the library loads: the programs, and the maps that they name.
func (g group) spec(h hook, r registers) *ebpf.CollectionSpec {
	spec := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{}, Programs: map[string]*ebpf.ProgramSpec{}}
	for _, m := range slices.Concat(common, g.tables) {
		spec.Maps[string(m)] = m.spec()
	}
	for _, p := range g.probes(h) {
		spec.Programs[p.name] = p.spec(h, r)
	}
	return spec
}

func (p probe) spec(h hook, r registers) *ebpf.ProgramSpec {
	ps := &ebpf.ProgramSpec{Name: p.name, License: license, Instructions: p.write(newEmitter(h, r))}
	if h == kprobe {
		ps.Type = ebpf.Kprobe
		// Kernels since 5.0 ignore it. Left out, the library looks for the
		// number in /proc/self/mem, which a binary with file capabilities may not read.
		ps.KernelVersion = 5 << 16
		return ps
	}
	ps.Type, ps.AttachTo, ps.AttachType = ebpf.Tracing, p.function, ebpf.AttachTraceFEntry
	if p.atEnd {
		ps.AttachType = ebpf.AttachTraceFExit
	}
	return ps
}

func (p probe) attach(h hook, prog *ebpf.Program) (link.Link, error) {
	switch {
	case h == fentry:
		return link.AttachTracing(link.TracingOptions{Program: prog})
	case p.atEnd:
		return link.Kretprobe(p.function, prog, nil)
	}
	return link.Kprobe(p.function, prog, nil)
}

// plain takes the verifier's log out of an error: it is for whoever works on
// this package, whose tests print it.
func plain(err error) error {
	var v *ebpf.VerifierError
	if errors.As(err, &v) {
		return fmt.Errorf("the kernel does not take the program: %w", v.Cause)
	}
	// A refusal for lack of privilege comes with a guess about locked memory,
	// which kernels since 5.11 do not count.
	if errors.Is(err, unix.EPERM) {
		return unix.EPERM
	}
	if strings.Contains(err.Error(), "not supported") {
		return fmt.Errorf("%w: %w", err, errNoHook)
	}
	return err
}
