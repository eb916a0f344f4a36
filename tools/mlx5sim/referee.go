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
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/flags"
	"github.com/goverbs/goverbs/tools/internal/tied"
)

const refereeUsage = `usage: mlx5sim referee [-run REGEXP] [-short] [-verbs PATH]
       mlx5sim referee -pyverbs [-run REGEXP]

Has rdma-core's and perftest's programs, which were written for the card, play on ConnectX
devices in software: against one another, and against goverbs. A line a case, and at the
end what passed. With -pyverbs it runs rdma-core's own test suite. Status 0 is for that
nothing failed, and something ran.

`

// refereeLimit is how long a case, or a module of the suite, may take before it is said to hang.
// It takes a second, and a minute on a machine with twenty times as much to do as it can.
const refereeLimit = 5 * time.Minute

// A referee has programs play, and counts.
type referee struct {
	only   *regexp.Regexp // nil is all
	short  bool
	stdout io.Writer
	verbs  func() (string, error)
	find   func(name string) ([]string, error)
	// play runs mlx5sim run in a folder.
	play func(dir string, args []string) outcome

	passed, failed, skipped int
	missing                 []string // programs that were not there, each once
}

// outcome is how mlx5sim run ended.
type outcome struct {
	out, err string // what was printed
	code     int
	hung     bool  // it was ended
	broken   error // it could not be started, or this process is to end
}

// cmdReferee is mlx5sim referee.
func cmdReferee(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("mlx5sim referee", flag.ContinueOnError)
	only := fs.String("run", "", "run only the cases, or with -pyverbs the modules, that match `REGEXP`")
	short := fs.Bool("short", false, "run only the cases for every day")
	verbs := fs.String("verbs", "", "the `PATH` of goverbs' verbs; by default the one beside this program, or one that go builds")
	suite := fs.Bool("pyverbs", false, "run the test suite of Debian's python3-pyverbs")
	r := &referee{stdout: stdout, find: findTool}
	err := flags.Parse(fs, args, refereeUsage+"flags:\n", stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
	case fs.NArg() > 0:
		err = fmt.Errorf("%q is no flag", fs.Arg(0))
	case *suite && *short:
		err = errors.New("-pyverbs and -short: the suite is not divided, choose modules with -run")
	case *suite && *verbs != "":
		err = errors.New("-pyverbs and -verbs: the suite does not play with it")
	case *verbs != "":
		if _, err = exec.LookPath(*verbs); err != nil {
			err = fmt.Errorf("-verbs: %w", err)
		}
	}
	if err == nil && *only != "" {
		if r.only, err = regexp.Compile(*only); err != nil {
			err = fmt.Errorf("-run: %w", err)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "mlx5sim referee: %v\nmlx5sim referee -h lists the flags.\n", err)
		return exitUsage
	}
	r.short = *short
	code, err := r.prepareAndRun(*suite, *verbs)
	if err != nil {
		fmt.Fprintf(stderr, "mlx5sim referee: %v\n", err)
	}
	return code
}

// prepareAndRun runs the cases or the suite with what this machine has.
func (r *referee) prepareAndRun(suite bool, verbs string) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return exitSystem, err
	}
	dir, err := os.MkdirTemp("", "mlx5sim-referee-")
	if err != nil {
		return exitSystem, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r.play = func(dir string, args []string) outcome { return playAlone(ctx, refereeLimit, self, dir, args) }
	// What holds for all cases is better said once.
	if o := r.play(dir, []string{"--", self, "help"}); o.broken != nil || o.code != 0 {
		return exitSystem, errors.Join(fmt.Errorf("mlx5sim run -- mlx5sim help: exit status %d: %s", o.code, strings.TrimSpace(o.err)), o.broken)
	}
	if suite {
		return r.pyverbs(dir)
	}
	r.verbs = func() (string, error) { return verbsProgram(ctx, verbs, self, dir) }
	return r.cases(refereeCases())
}

// playAlone runs mlx5sim run as a process of its own, which takes all that it started with
// it when it is killed, as it is after the limit.
func playAlone(ctx context.Context, limit time.Duration, self, dir string, args []string) outcome {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(limited, self, append([]string{"run"}, args...)...)
	c.Dir, c.Env = dir, toolEnvironment()
	c.WaitDelay = 10 * time.Second // for who outlives its keeper and holds the output
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := tied.Run(c)
	o := outcome{out: out.String(), err: errs.String(), hung: limited.Err() != nil}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		o.broken = context.Cause(ctx)
	case o.hung:
		o.code = -1
	case err != nil && !errors.As(err, &exit):
		o.broken = err
	default:
		o.code = c.ProcessState.ExitCode()
	}
	return o
}

// cases plays them, and returns the exit status. An error tells why it is not 0, if the
// report does not.
func (r *referee) cases(all []refereeCase) (int, error) {
	begin := time.Now()
	verbs, verbsErr := "", error(nil)
	find := func(name string) ([]string, error) {
		if name != "verbs" {
			return r.find(name)
		}
		if verbs == "" && verbsErr == nil {
			verbs, verbsErr = r.verbs()
		}
		return []string{verbs}, verbsErr
	}
	for _, c := range all {
		if r.short && !c.short || r.only != nil && !r.only.MatchString(c.name()) {
			continue
		}
		if err := r.one(&c, find); err != nil {
			return exitSystem, err
		}
	}
	ran := r.passed + r.failed
	line := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed)
	if r.skipped > 0 {
		line += fmt.Sprintf(", %d skipped for want of %s", r.skipped, strings.Join(r.missing, ", "))
	}
	fmt.Fprintf(r.stdout, "%s (%.0f s)\n", line, time.Since(begin).Seconds())
	switch {
	case ran == 0 && r.skipped == 0:
		return exitUsage, fmt.Errorf("no case matches %q", r.only)
	case ran == 0:
		return 1, errors.New("nothing could be played")
	case r.failed > 0:
		return 1, nil
	}
	return 0, nil
}

// one plays a case. An error ends it all.
func (r *referee) one(c *refereeCase, find func(string) ([]string, error)) error {
	var args []string
	var o outcome
	begin := time.Now()
	for range steadyTries {
		port, err := freePort()
		if err != nil {
			return err
		}
		args, err = c.arguments(port, find)
		var absent *missingError
		if errors.As(err, &absent) {
			r.skip(c, absent)
			return nil
		}
		if err != nil {
			return err
		}
		o = r.play("", args)
		if o.broken != nil {
			return o.broken
		}
		if o.hung || !unsteady(o.out+o.err, o.code) {
			break
		}
	}
	took := time.Since(begin).Seconds()
	wrong := c.judge(o.out+o.err, o.code)
	if o.hung {
		wrong = fmt.Errorf("hangs: ended after %v", refereeLimit)
	}
	if wrong == nil {
		r.passed++
		fmt.Fprintf(r.stdout, "ok   %5.2fs %s\n", took, c.name())
		return nil
	}
	r.failed++
	fmt.Fprintf(r.stdout, "FAIL %5.2fs %s: %s\n", took, c.name(), strings.ReplaceAll(wrong.Error(), "\n", "; "))
	fmt.Fprintf(r.stdout, "     mlx5sim run %s\n", strings.Join(args, " "))
	for line := range strings.Lines(strings.TrimSpace(o.out + o.err)) {
		fmt.Fprintf(r.stdout, "     | %s\n", strings.TrimRight(line, "\n"))
	}
	return nil
}

// skip reports a case whose program is not there. The sentence that says what to do is long,
// and the same for all that want the program.
func (r *referee) skip(c *refereeCase, absent *missingError) {
	r.skipped++
	why := "no " + absent.name
	if !slices.Contains(r.missing, absent.name) {
		r.missing = append(r.missing, absent.name)
		why = absent.sentence
	}
	fmt.Fprintf(r.stdout, "skip       %s: %s\n", c.name(), why)
}
