// Newcomer does what README.md says to somebody who has Go and git and nothing else: in an empty
// home folder, with empty caches, it clones the source, makes a module of its own with the README's
// program, builds and runs it. It takes the README's commands as they stand there, and times them.
//
//	go run ./tools/newcomer           on the devices in software
//	go run ./tools/newcomer -guest    and on a real kernel, in QEMU
//
// The clone is of this source as it was committed. Modules come from where Go has them here, so that
// nothing is fetched twice, but into an empty module cache. What -guest needs of kernels and QEMU
// comes from the cache of rxevm.
//
// Ten minutes is the limit, of one processor: what that takes is at most what a newcomer with a machine of his own waits for, downloads aside,
// and does not depend on what else the machine does.
//
// The exit status is 0, 1 if a step failed or all took longer, 2 for wrong flags, or 3 where git has
// no source to clone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/flags"
)

// limit is how long a newcomer may take, and patience how long a machine with much else to do.
const (
	limit    = 10 * time.Minute
	patience = 60 * time.Minute
)

const usage = `usage: newcomer [-guest]
Follows README.md in an empty home folder and says how long each step took.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("newcomer", flag.ContinueOnError)
	guest := f.Bool("guest", false, "run the program on a real kernel, too")
	err := flags.Parse(f, args, usage, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "newcomer: %v\nnewcomer -h lists the flags.\n", err)
		return 2
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it takes longer than %v", patience))
	defer cancel()
	if err := follow(ctx, ".", *guest, stdout); err != nil {
		fmt.Fprintf(stderr, "newcomer: %v\n", err)
		if errors.As(err, new(noSource)) {
			return 3
		}
		return 1
	}
	return 0
}
