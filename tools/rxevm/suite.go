//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// A suite runs everything that the project can prove and remembers what came of it.
type suite struct {
	host *host
	root string // of the module's source
	out  io.Writer
	mu   sync.Mutex // of rows, and of what add prints
	rows []suiteRow
	// release is the folder with the release's binaries, once they are built.
	release string
}

// A suiteRow is one line of the closing table.
type suiteRow struct {
	where, what string
	state       suiteState
	detail      string
	took        time.Duration
}

// A suiteState says what came of a row.
type suiteState string

const (
	statePassed suiteState = "ok"
	stateFailed suiteState = "FAILED"
	stateNotRun suiteState = "not run"
)

// add remembers a result and prints it at once, so that somebody who watches knows where a long run
// is. An error is printed in full.
func (s *suite) add(r suiteRow, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		fmt.Fprintf(s.out, "\n%s: %s:\n%s\n\n", r.where, r.what, strings.TrimRight(err.Error(), "\n"))
	}
	s.rows = append(s.rows, r)
	fmt.Fprintf(s.out, "%-8s %s: %s (%.1f s) %s\n", r.state, r.where, r.what, r.took.Seconds(), r.detail)
}

// step runs one thing. Its error fails the suite; the suite goes on. Steps may run side by side.
func (s *suite) step(where, what string, f func() (detail string, err error)) bool {
	start := time.Now()
	detail, err := f()
	r := suiteRow{where: where, what: what, state: statePassed, detail: detail, took: time.Since(start)}
	if err != nil {
		r.state = stateFailed
		r.detail, _, _ = strings.Cut(err.Error(), "\n")
	}
	s.add(r, err)
	return err == nil
}

// notRun remembers what was left out, and why.
func (s *suite) notRun(where, what, why string) {
	s.add(suiteRow{where: where, what: what, state: stateNotRun, detail: why}, nil)
}

// summary prints the table and the closing line, and returns the exit status.
func (s *suite) summary() int {
	fmt.Fprintf(s.out, "\nWhat ran where:\n")
	tw := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	passed, failed := 0, 0
	for _, r := range s.rows {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%.1f s\t%s\n", r.where, r.what, r.state, r.took.Seconds(), r.detail)
		switch r.state {
		case statePassed:
			passed++
		case stateFailed:
			failed++
		}
	}
	tw.Flush()
	fmt.Fprintf(s.out, "\n%d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		return 1
	}
	return 0
}

// suiteParts are the parts of the suite in the order in which they run.
var suiteParts = []string{"host", "harsh", "planted", "6.1", "6.12", "5.10", "arm64", "doctor"}

// cmdTest is rxevm test.
func cmdTest(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("rxevm test", flag.ContinueOnError)
	install := fs.Bool("install", false, "install missing programs (QEMU) with apt-get; needs root")
	parts := fs.String("parts", strings.Join(suiteParts, ","), "run these `parts`, separated by commas")
	timeout := fs.Duration("timeout", 85*time.Minute, "give up after this `time`")
	if err := parseFlags(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() != 0 {
		return 0, exitError{exitUsage, fmt.Errorf("test takes no arguments besides flags, not %q", fs.Args())}
	}
	if *timeout <= 0 {
		return 0, exitError{exitUsage, fmt.Errorf("-timeout %v: must be more than 0", *timeout)}
	}
	chosen := strings.Split(*parts, ",")
	for _, p := range chosen {
		if !slices.Contains(suiteParts, p) {
			return 0, exitError{exitUsage, fmt.Errorf("-parts: %q is none of %s", p, strings.Join(suiteParts, ", "))}
		}
	}
	h, err := newHost(*install)
	if err != nil {
		return 0, err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := withDeadline(ctx, *timeout)
	defer cancel()
	s := &suite{host: h, root: root, out: os.Stdout}
	defer s.removeRelease()
	run := map[string]func(context.Context){
		"host":    s.hostPart,
		"harsh":   s.harshPart,
		"planted": s.plantedPart,
		"doctor":  s.doctorPart,
		"6.1": func(ctx context.Context) {
			s.newcomer(ctx, "6.1")
			s.guestPart(ctx, "6.1")
		},
		"6.12": func(ctx context.Context) { s.guestPart(ctx, "6.12") },
		"5.10": s.oldKernelPart,
		"arm64": func(ctx context.Context) {
			s.smokePart(ctx, "6.12", "arm64")
		},
	}
	for _, p := range suiteParts {
		switch {
		case ctx.Err() != nil:
			s.notRun(p, "everything", context.Cause(ctx).Error())
		case !slices.Contains(chosen, p):
			s.notRun(p, "everything", "left out by -parts")
		default:
			run[p](ctx)
		}
	}
	code := s.summary()
	if err := context.Cause(ctx); err != nil {
		if errors.Is(err, errDeadline) {
			err = exitError{exitDeadline, err}
		}
		return 0, err
	}
	return code, nil
}

// goTool runs the go command in the module; a failure's error carries all that it printed. Without a
// word in env it builds without C: what is built in both ways is compiled and vetted twice.
func (s *suite) goTool(ctx context.Context, env []string, args ...string) (string, error) {
	return s.program(ctx, append([]string{"CGO_ENABLED=0"}, env...), "go", args...)
}

// program runs a program in the module, as goTool does.
func (s *suite) program(ctx context.Context, env []string, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.root, &out, &out
	cmd.Env = append(os.Environ(), env...)
	if err := runChild(cmd); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", fmt.Errorf("%s %s %s: %w\n%s", strings.Join(env, " "), name, strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}
