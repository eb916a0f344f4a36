package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// machineFiles is a root with what privileges are read from.
func machineFiles(caps uint64, paranoid, lockdown, uidMap string) fstest.MapFS {
	m := fstest.MapFS{"proc/self/status": {Data: fmt.Appendf(nil, "Name:\tverbs\nCapInh:\t0\nCapEff:\t%016x\n", caps)}}
	for path, s := range map[string]string{"proc/sys/kernel/perf_event_paranoid": paranoid, "sys/kernel/security/lockdown": lockdown, "proc/self/uid_map": uidMap} {
		if s != "" {
			m[path] = &fstest.MapFile{Data: []byte(s + "\n")}
		}
	}
	return m
}

const (
	bpf     = 1 << unix.CAP_BPF
	perfmon = 1 << unix.CAP_PERFMON
	admin   = 1 << unix.CAP_SYS_ADMIN
)

// Each lack is said with what is missing and what to do.
func TestLacking(t *testing.T) {
	for _, tt := range []struct {
		name               string
		caps               uint64
		paranoid, lockdown string
		want               []string // nil: nothing lacks
	}{
		{"root", admin, "3", "none [integrity] confidentiality", nil},
		{"both", bpf | perfmon, "2", "[none] integrity confidentiality", nil},
		{"no files", admin, "", "", nil},
		{"nothing", 0, "3", "", []string{"need CAP_BPF and CAP_PERFMON, which", "setcap cap_bpf,cap_perfmon+ep", "perf_event_paranoid=2, which is 3"}},
		{"nothing, at 2", 0, "2", "", []string{"setcap"}},
		{"bpf", bpf, "2", "", []string{"need CAP_PERFMON, which"}},
		{"perfmon", perfmon, "2", "", []string{"need CAP_BPF, which"}},
		{"locked", admin, "2", "none integrity [confidentiality]", []string{"locked down for confidentiality", "lockdown=integrity"}},
	} {
		p, err := readPrivileges(machineFiles(tt.caps, tt.paranoid, tt.lockdown, ""))
		if err != nil {
			t.Fatal(err)
		}
		err = p.lacking()
		if (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, without %q", tt.name, err, want)
			}
		}
		if tt.lockdown == "" && tt.want != nil && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v is no lack of permission", tt.name, err)
		}
	}
	if _, err := readPrivileges(fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "/proc") {
		t.Errorf("without /proc: %v", err)
	}
	if _, err := readPrivileges(fstest.MapFS{"proc/self/status": {Data: []byte("CapEff:\tnonsense\n")}}); err == nil {
		t.Error("capabilities that are no number pass")
	}
}

// Refusals say what they are about.
func TestExplain(t *testing.T) {
	read := func(uidMap string) privileges {
		p, err := readPrivileges(machineFiles(bpf|perfmon, "3", "", uidMap))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := read("         0          0 4294967295")
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"user namespace": {read("0 1000 1").explain(plain(unix.EPERM)), "user namespace"},
		"filter":         {first.explain(plain(fmt.Errorf("map create: %w (MEMLOCK may be too low)", unix.EPERM))), "the kernel refuses probes, although this process has the capabilities"},
		"other":          {first.explain(plain(unix.ENOSPC)), "no space left"},
		"verifier":       {plain(&ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"a", "b"}}), "the kernel does not take the program: invalid argument"},
		"no function":    {first.explainAttach("f", "m", unix.ENOENT), "this kernel has no function f, or the module m is not loaded"},
		"two functions":  {first.explainAttach("f", "m", unix.EADDRNOTAVAIL), "more than one function f"},
		"paranoid":       {first.explainAttach("f", "m", unix.EACCES), "perf_event_paranoid=2), which is 3"},
		"other at f":     {first.explainAttach("f", "m", unix.EBUSY), "attach to f: "},
	} {
		if !strings.Contains(tt.err.Error(), tt.want) || strings.Contains(tt.err.Error(), "MEMLOCK") || strings.Contains(tt.err.Error(), "\n") {
			t.Errorf("%s: %v, without %q", name, tt.err, tt.want)
		}
	}
}

// Open on any machine gives a tracer that closes, or one line that says why not.
func TestOpenAnywhere(t *testing.T) {
	tr, err := Open(Options{})
	if err != nil {
		if s := err.Error(); s == "" || strings.Contains(s, "\n") {
			t.Errorf("%q", s)
		}
		t.Logf("as it should here: %v", err)
		return
	}
	if n := len(tr.Levels()); n != 6 {
		t.Errorf("%d levels", n)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// The verifier of the kernel here takes the programs that kprobes use, which it
// checks without their functions. What offsets it has does not matter.
func TestVerifierHere(t *testing.T) {
	p, err := readPrivileges(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.lacking(); err != nil {
		t.Skip("declared skip: the guest's tests load the programs; here: ", err)
	}
	if err := checkArch(); err != nil {
		t.Skip("declared skip: the guest's tests load the programs; here: ", err)
	}
	m := maps{}
	defer m.close()
	if err := m.make(common...); err != nil {
		t.Skip("declared skip: the guest's tests load the programs; here: ", err)
	}
	r := storedKernel(t, "6.12")
	o, err := r.cq()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := r.ring()
	if err != nil {
		t.Fatal(err)
	}
	guess := ring
	guess.guessed, guess.producer = true, -1
	for _, g := range []group{pullGroup(&o, 1, &ring), pullGroup(&o, 1, &guess), pullGroup(&o, 1, nil), errorsGroup(&o), eventsGroup(&o), syscallsGroup(), everyCQEGroup(&o, &ring), everyCQEGroup(&o, &guess)} {
		c, err := ebpf.NewCollectionWithOptions(g.spec(kprobe, registersOf[runtime.GOARCH]), ebpf.CollectionOptions{Cache: btf.NewCache()})
		var v *ebpf.VerifierError
		if errors.As(err, &v) {
			t.Errorf("%s: %+v", g.level, v)
		} else if err != nil {
			t.Logf("%s cannot be loaded here: %v", g.level, err)
		} else {
			c.Close()
		}
	}
}
