//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/goverbs/goverbs/tools/internal/compilec"
	"github.com/goverbs/goverbs/tools/internal/ldflags"
)

// startsName is the name of these rows for -run.
const startsName = "starts"

// rtsSource is the program in C; internal/rts is its twin in Go.
//
//go:embed testdata/rts.c
var rtsSource []byte

// launchSource is what both are started through.
//
//go:embed testdata/launch.c
var launchSource []byte

// rtsGo is the program in Go, linked as verbs is, and as go links programs by itself.
var rtsGo = []struct{ how, linked, inGuest string }{
	{"linked with disablethp=1", ldflags.Program, "/bin/rts-go"},
	{"linked plainly", ldflags.Stripped, "/bin/rts-go-plain"},
}

// Where the other programs are in the guest.
const (
	rtsCInGuest   = "/bin/rts-c"
	launchInGuest = "/bin/launch"
	initInGuest   = "/init" // which is rxevm itself
)

// startsBench is how long programs in Go and in C take to have a queue pair in RTS.
type startsBench struct {
	turns   int
	dir     string // to be removed, or ""
	missing string // why there is no program in C, or ""
}

// starts is how many starts there are of each program.
func (b *perfBench) starts() int {
	if b.quick {
		return 30
	}
	return 60
}

// build builds the programs and adds them to a guest. That there is nothing to build C with is no error.
func (s *startsBench) build(ctx context.Context, h *host, g *guestConfig) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if s.dir, err = h.scratch(); err != nil {
		return err
	}
	var files []fileArg
	for _, p := range rtsGo {
		program, err := h.goBuild(ctx, root, "./tools/rxevm/internal/rts", g.arch, p.linked)
		if err != nil {
			return err
		}
		file := filepath.Join(s.dir, filepath.Base(p.inGuest))
		if err := os.WriteFile(file, program, 0o755); err != nil {
			return err
		}
		files = append(files, fileArg{file, p.inGuest})
	}
	theirs, launcher := filepath.Join(s.dir, "rts-c"), filepath.Join(s.dir, "launch")
	if err = s.buildC(ctx, h, g.arch, theirs); err == nil {
		err = s.buildLauncher(ctx, launcher)
	}
	if missing := (*compilec.MissingError)(nil); errors.As(err, &missing) {
		s.missing = "needs gcc and libibverbs-dev: " + missing.Sentence
		return nil
	}
	if err != nil {
		return err
	}
	g.files = append(append(g.files, files...), fileArg{theirs, rtsCInGuest}, fileArg{launcher, launchInGuest})
	return nil
}

// buildC builds the program in C against the rdma-core that the guest has: this machine's headers,
// or those of its release.
func (s *startsBench) buildC(ctx context.Context, h *host, arch, out string) error {
	if arch != runtime.GOARCH {
		return &compilec.MissingError{Name: "gcc", Sentence: "there is no compiler of C for guests of " + arch}
	}
	source := filepath.Join(s.dir, "rts.c")
	if err := os.WriteFile(source, rtsSource, 0o644); err != nil {
		return err
	}
	core, err := h.refereeTree(ctx, userlandSuite(arch))
	if err != nil {
		return err
	}
	return compilec.Program{
		Sources: []string{source}, Flags: []string{"-O2"}, Root: core,
		Headers: []compilec.Header{{Name: "infiniband/verbs.h", Package: "libibverbs-dev"}}, Libraries: []string{"libibverbs.so.1"},
	}.Build(ctx, out)
}

// buildLauncher builds the launcher, which is to be small: a program that begins another one is taken
// down by that.
func (s *startsBench) buildLauncher(ctx context.Context, out string) error {
	source := filepath.Join(s.dir, "launch.c")
	if err := os.WriteFile(source, launchSource, 0o644); err != nil {
		return err
	}
	return compilec.Program{Sources: []string{source}, Flags: []string{"-O2", "-static"}}.Build(ctx, out)
}

func (s *startsBench) remove() {
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// hugePages are the settings of the kernel that starts are measured under. Debian's is always: then
// the first page of Go's heap that is touched is one of 2 MiB, and in four starts of ten so is the
// second, unless the program is linked with disablethp=1. To clear one takes an emulator as long as a
// third of the start, of which hardware makes far less. Programs in C that are so small get none.
var hugePages = []struct{ setting, note string }{{"always", ""}, {"madvise", ", huge pages on request"}}

// measureStarts measures, and prints three lines for each setting and program in Go. Each of those
// has turns of its own with the program in C: one start leaves the processor's caches to the next.
func (b *perfBench) measureStarts(ctx context.Context, v *vm, s *startsBench) error {
	for _, h := range hugePages {
		for _, p := range rtsGo {
			var times [2][]start
			if s.missing == "" {
				var err error
				if times, err = s.measure(ctx, v, h.setting, p.inGuest); err != nil {
					return err
				}
			}
			for _, l := range startLines(times) {
				l.What += ", " + p.how + h.note
				l.Kernel, l.Emulated = v.release, !v.machine.kvm
				if s.missing != "" {
					l.NotMeasured = s.missing
				}
				if err := b.print(l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measure starts a program in Go and the one in C by turns.
func (s *startsBench) measure(ctx context.Context, v *vm, hugePages, inGo string) (times [2][]start, err error) {
	var out, errs bytes.Buffer
	args := []string{initInGuest, "bench", "starts", fmt.Sprint(s.turns), "rxe0", hugePages, launchInGuest, inGo, rtsCInGuest}
	code, err := v.run(ctx, job{Args: args, Env: v.environ()}, jobIO{stdout: &out, stderr: &errs})
	if err == nil && code != 0 {
		err = fmt.Errorf("%q ended with status %d%s", args, code, indented(errs.String()))
	}
	if err != nil {
		return times, err
	}
	return readStarts(&out)
}

// readStarts reads what rxevm bench starts prints, of two programs.
func readStarts(r io.Reader) (times [2][]start, err error) {
	for d := json.NewDecoder(r); ; {
		var s start
		switch err := d.Decode(&s); {
		case errors.Is(err, io.EOF):
			return times, nil
		case err != nil:
			return times, err
		case s.Program < 0 || s.Program > 1:
			return times, fmt.Errorf("a start of program %d, of which there are two", s.Program)
		}
		times[s.Program] = append(times[s.Program], s)
	}
}

// startLines compares the starts. From exec to main it is the loader of C, and the start of the C
// library and of libibverbs, against that of Go's runtime: nothing of ours, and there is no target.
func startLines(times [2][]start) []perfLine {
	ms := func(of func(start) int64) (all [2][]float64) {
		for i := range times {
			for _, s := range times[i] {
				all[i] = append(all[i], float64(of(s))/1e6)
			}
		}
		return all
	}
	line := func(what string, of func(start) int64, target float64) perfLine {
		l := perfLine{What: what, Unit: "ms", Test: startsName}
		all := ms(of)
		l.compare(all[0], all[1], target, false)
		return l
	}
	return []perfLine{
		line("exec to RTS", func(s start) int64 { return s.Exec }, targetExec),
		line("open to RTS", func(s start) int64 { return s.Open }, targetOpen),
		line("exec to main", func(s start) int64 { return s.Exec - s.Open }, 0),
	}
}
