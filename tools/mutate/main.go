// Mutate shows that the tests notice bugs: it puts known ones into copies of the source, one at a
// time, and sees whether the test that should fail does.
//
//	mutate [-run REGEXP] [-list] [-keep] [-json] [-j N] [-timeout TIME]
//
// A bug is a patch in testdata/mutations, with lines "key: value" before the diff:
//
//	what: The owner bit of odd laps is taken for that of even ones.
//	package: mlx5
//	test: ^TestOwnerBit$
//
// "what" says what is wrong then, "package" is the folder of the test's package, and "test" is as
// the flag -run of go test has it. Further keys are "env: NAME=VALUE", as often as needed, and
// "hang: yes" for a bug that has the test wait for ever. The diff has little context, so that it
// applies after edits nearby, to text that its file has once.
//
// Mutate copies the working tree, committed or not, to a temporary folder. It runs all named tests
// there without a bug first, for "caught" means nothing of a test that fails anyway. Then it
// applies each patch to a copy of its own, builds the test, and runs it alone, without cgo and
// without the variables GOVERBS_... of the environment. A bug is caught when the test fails by
// itself. It is a failure when the test passes, skips, or does not end; when the patch does not
// apply, or what comes out does not compile; and when no test has that name.
//
// It prints a line for each, and "N passed, N failed" at the end. Exit status: 0 when all were
// caught; 1 when one was not; 2 bad usage, or a patch that cannot be read; 3 something is missing
// on this machine, the message says what; 130 interrupted. It takes git, for git apply, and a
// module cache that has what the module needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/flags"
	"github.com/goverbs/goverbs/tools/internal/source"
)

// Exit statuses.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitSystem      = 3
	exitInterrupted = 130
)

const usage = `usage: mutate [-run REGEXP] [-list] [-keep] [-json] [-j N] [-timeout TIME]

Puts the bugs of testdata/mutations into copies of the source, one at a time, and sees
whether the test that each names fails. Status 0 is for that all do.

flags:
`

// options are what the flags say.
type options struct {
	only             *regexp.Regexp // nil is all
	list, keep, json bool
	jobs             int
	timeout          time.Duration
}

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() { cancel(fmt.Errorf("interrupted by %v", <-signals)) }()
	os.Exit(command(ctx, ".", os.Args[1:], os.Stdout, os.Stderr))
}

// parse reads the arguments. The error is flag.ErrHelp or for status 2.
func parse(args []string, stdout io.Writer) (*options, error) {
	o := new(options)
	fs := flag.NewFlagSet("mutate", flag.ContinueOnError)
	only := fs.String("run", "", "only the mutations whose names match `REGEXP`")
	fs.BoolVar(&o.list, "list", false, "print what there is, and do nothing")
	fs.BoolVar(&o.keep, "keep", false, "keep the copies of the source whose bugs were not caught, and say where they are")
	fs.BoolVar(&o.json, "json", false, "print a JSON object a line")
	fs.IntVar(&o.jobs, "j", runtime.GOMAXPROCS(0), "how many mutations are tried at a time, `N` from 1 on")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long a test may take with a bug in, a `TIME`")
	err := flags.Parse(fs, args, usage, stdout)
	switch {
	case err != nil:
		return nil, err
	case fs.NArg() > 0:
		return nil, fmt.Errorf("%q is no flag", fs.Arg(0))
	case o.jobs < 1:
		return nil, fmt.Errorf("-j %d: want 1 or more", o.jobs)
	case o.timeout < time.Second:
		return nil, fmt.Errorf("-timeout %v: want a second or more", o.timeout)
	}
	if *only != "" {
		if o.only, err = regexp.Compile(*only); err != nil {
			return nil, fmt.Errorf("-run: %w", err)
		}
	}
	return o, nil
}

// command runs mutate with arguments, in a folder of the module.
func command(ctx context.Context, dir string, args []string, stdout, stderr io.Writer) int {
	complain := func(status int, err error) int {
		fmt.Fprintf(stderr, "mutate: %v\n", err)
		return status
	}
	o, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return complain(exitUsage, fmt.Errorf("%w\nmutate -h lists the flags", err))
	}
	root, err := source.Root(dir)
	if err != nil {
		return complain(exitSystem, err)
	}
	all, err := load(filepath.Join(root, mutationsFolder))
	if err != nil {
		return complain(exitUsage, err)
	}
	var chosen []*mutation
	for _, m := range all {
		if o.only == nil || o.only.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return complain(exitUsage, fmt.Errorf("none of the %d mutations in %s matches: mutate -list prints their names", len(all), mutationsFolder))
	}
	r := &report{json: o.json, out: stdout}
	if o.list {
		for _, m := range chosen {
			r.listed(m)
		}
		return 0
	}
	for _, tool := range []string{"git", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return complain(exitSystem, fmt.Errorf("%w: mutate takes git and go", err))
		}
	}
	kept, err := try(ctx, root, chosen, o, r)
	switch {
	case ctx.Err() != nil:
		return complain(exitInterrupted, errors.Join(context.Cause(ctx), err))
	case err != nil:
		return complain(exitSystem, err)
	}
	r.end()
	if kept != "" {
		fmt.Fprintf(stderr, "mutate: what was not caught is in %s\n", kept)
	}
	if r.failed > 0 {
		return exitFailed
	}
	return 0
}
