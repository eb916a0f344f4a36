package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// A Tracer is a set of probes in the kernel.
type Tracer struct {
	mu       sync.Mutex
	closed   bool
	maps     maps
	programs []*ebpf.Program
	links    []link.Link
	levels   [len(levelNames)]Level
	offsets  cqOffsets
	process  uint32  // this process, as programs see it
	attached modules // loaded when the probes were attached

	round    uint64
	previous map[CQID]CQ // of the last snapshot
	idle     map[callKey]callCounts
	inert    string // why nothing fires, if nothing does
	silent   silence
}

// Open attaches the probes that cost the programs on the machine nothing, and
// those that were asked for. What cannot be had is said by [Tracer.Levels]; it is
// an error if nothing can be had. It takes a second or two, most of it for
// reading the kernel's type information.
func Open(o Options) (*Tracer, error) {
	if err := checkArch(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	p, err := readPrivileges(os.DirFS("/"))
	if err != nil {
		return nil, err
	}
	return openWith(o, p, btf.NewCache())
}

// openWith opens with no more than some privileges, and with type information
// that may be parsed already.
func openWith(o Options, p privileges, cache *btf.Cache) (*Tracer, error) {
	if err := p.lacking(); err != nil {
		return nil, err
	}
	t := &Tracer{maps: maps{}, attached: loadedModules(moduleFolder)}
	for i, name := range levelNames {
		t.levels[i] = Level{name, false, notAsked}
	}
	if err := t.open(o, p, cache); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tracer) open(o Options, p privileges, cache *btf.Cache) error {
	if err := t.maps.make(common...); err != nil {
		return p.explain(plain(err))
	}
	t.process = ownProcess()
	a := attacher{t: t, cache: cache, resolver: liveResolver(cache), privileges: p}
	var ring *ringOffsets
	var cqErr error
	if t.offsets, cqErr = a.resolver.cq(); cqErr == nil {
		ring = a.ring()
	} else if _, err := os.Stat("/sys/class/infiniband"); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no RDMA driver is loaded, so there is nothing to look at: %w", err)
	}
	groups := []struct {
		group
		wanted bool
		err    error
	}{
		{pullGroup(&t.offsets, t.process, ring), true, cqErr},
		{errorsGroup(&t.offsets), true, cqErr},
		{eventsGroup(&t.offsets), o.Events, cqErr},
		{syscallsGroup(), o.Syscalls, nil},
		{everyCQEGroup(&t.offsets, ring), o.EveryCQE, cqErr},
	}
	var first error
	for _, g := range groups {
		if !g.wanted {
			continue
		}
		err := g.err
		how := ""
		if err == nil {
			how, err = a.attach(g.group)
		}
		if err != nil {
			how = err.Error()
			first = cmp.Or(first, err)
		}
		t.say(g.level, err == nil, how)
	}
	pull := t.level(LevelPull)
	if !pull.Live {
		t.say(LevelRing, false, pull.Why)
	}
	if calls := t.level(LevelSyscalls); calls.Live && t.process != uint32(os.Getpid()) {
		calls.Why += "; process numbers are those of the first pid namespace"
	}
	if !slices.ContainsFunc(t.levels[:], func(l Level) bool { return l.Live }) {
		return first
	}
	return nil
}

// notAsked is why a level that the options did not ask for is not live.
const notAsked = "not asked for"

// level finds a level.
func (t *Tracer) level(name string) *Level {
	return &t.levels[slices.IndexFunc(t.levels[:], func(l Level) bool { return l.Name == name })]
}

// say says what came of a level.
func (t *Tracer) say(name string, live bool, why string) {
	*t.level(name) = Level{name, live, why}
}

// live says whether a level was attached.
func (t *Tracer) live(name string) bool { return t.level(name).Live }

// Levels says which groups of probes are live, and why the others are not.
func (t *Tracer) Levels() []Level {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.levels
	loaded := loadedModules(moduleFolder)
	for i := range all {
		all[i] = loaded.since(t.attached, all[i])
		if l := &all[i]; l.Live && t.inert != "" {
			l.Live, l.Why = false, t.inert
		} else if l.Live && l.Name == LevelEvents && t.silent.sure() {
			l.Live, l.Why = false, "the probes are attached and never fire, although programs read events"
		}
	}
	return all[:]
}

// Close detaches the probes and frees what they used. It waits for calls of
// other methods. Closing again does nothing.
func (t *Tracer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	err := errors.Join(t.detach(0, 0), t.maps.close())
	return err
}

// detach removes links and programs from these on, the last first.
func (t *Tracer) detach(links, programs int) error {
	var errs []error
	for _, l := range slices.Backward(t.links[links:]) {
		errs = append(errs, l.Close())
	}
	for _, p := range slices.Backward(t.programs[programs:]) {
		errs = append(errs, p.Close())
	}
	t.links, t.programs = t.links[:links], t.programs[:programs]
	return errors.Join(errs...)
}

// use takes the lock, unless the tracer is closed.
func (t *Tracer) use() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return fmt.Errorf("tracer: %w", fs.ErrClosed)
	}
	return nil
}

// ownProcess asks the kernel which number programs see this process under: the
// one of the first pid namespace. A kernel that cannot say gets the number that
// is true outside of any other, and the canary sees if it is wrong.
func ownProcess() uint32 {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "verbs_process", Type: ebpf.Syscall, Flags: sleepable, License: license,
		Instructions: asm.Instructions{asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32), asm.Return()},
	})
	if err != nil {
		return uint32(os.Getpid())
	}
	defer p.Close()
	n, err := p.Run(nil)
	if err != nil || n == 0 {
		return uint32(os.Getpid())
	}
	return n
}

const (
	license   = "GPL"  // which the helpers that read memory ask for
	sleepable = 1 << 4 // BPF_F_SLEEPABLE, linux/bpf.h
)
