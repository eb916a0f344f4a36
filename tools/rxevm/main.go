//go:build linux

// Rxevm runs Go tests, programs and shell scripts on a stock Debian kernel with soft-RoCE, in QEMU,
// on machines without RDMA hardware, kernel modules, KVM or root.
//
//	rxevm run [flags] [-- COMMAND ARGS...]   run a program in a guest
//	rxevm exec [flags] BINARY ARGS...        run a test binary; meant for go test -exec
//	rxevm demo                               play ping-pong with rdma-core
//	rxevm test                               run everything that the project can prove
//	rxevm bench [-json]                      compare with rdma-core
//	rxevm bench -perf [-quick] [-json]       compare verbs perf with perftest, and how programs begin
//	rxevm bench -perf -instructions [-json]  compare their rates by instructions, which a busy machine leaves alone
//	rxevm bench -waiting [-svg FILE]         measure ways to wait for completions
//	rxevm fetch [flags]                      fetch the newest kernels and programs now
//
// The guest has lo, dummy0 with 10.0.0.1/24, rxe0 on dummy0 (GID index 1 is the IPv4 one), and the
// program verbs on its PATH. GOVERBS_GUEST in the environment names the kernel series,
// GOVERBS_GUEST_ACCEL is kvm or tcg.
//
// Kernels, rdma-core and, where it is not installed, QEMU come from Debian packages by way of the
// machine's own apt configuration, and are kept in $GOVERBS_CACHE, by default the folder goverbs in
// the user's cache folder. apt checks their signatures. Root is used with -install only.
//
// A run fails when the kernel prints a WARNING, BUG or Oops, when an RDMA object outlives every
// process, when the deadline passes, and when a test skips without declaring why. A skip is
// declared by its message: "needs kernel >= 6.2: ..." (and the guest's kernel is older), or
// "declared skip: ..." where it cannot be helped. A skip that says "run in the guest" is false
// there.
//
// Exit status: that of the program; 0 when all is well; 2 bad usage; 3 something is missing on this
// machine, the message says what; 4 the guest could not be made or went away; 5 the kernel
// complained; 6 an undeclared skip; 124 deadline; 130 interrupted. Where a program fails and the
// kernel complains as well, the program's status wins and both are printed. Under go run all
// failures are 1: build the binary to see the difference.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/flags"
)

// Exit statuses of rxevm itself.
const (
	exitUsage       = 2
	exitMissing     = 3
	exitBroken      = 4
	exitKernel      = 5
	exitSkip        = 6
	exitDeadline    = 124
	exitInterrupted = 130
)

// An exitError is an error with an exit status.
type exitError struct {
	code int
	err  error
}

// Error implements error.
func (e exitError) Error() string { return e.err.Error() }

// Unwrap returns the error inside.
func (e exitError) Unwrap() error { return e.err }

// errInterrupted is the cause of contexts that a signal ended.
var errInterrupted = errors.New("interrupted")

// commands are what rxevm can do. Each returns a program's exit status, or an error.
var commands = map[string]func(ctx context.Context, args []string) (int, error){
	"run":   cmdRun,
	"exec":  cmdExec,
	"fetch": cmdFetch,
	"demo":  cmdDemo,
	"bench": cmdBench,
	"test":  cmdTest,
}

const usage = `usage: rxevm COMMAND [flags] ...
  run [flags] [-- COMMAND ARGS...]   run a program in a guest with soft-RoCE
  exec [flags] BINARY ARGS...        run a test binary there: go test -exec 'rxevm exec'
  demo [flags]                       ping-pong between verbs and rdma-core
  test [flags]                       run everything that the project can prove
  bench [flags]                      compare verbs with rdma-core and perftest, or ways to wait
  fetch [flags]                      fetch the newest kernels and programs now
rxevm COMMAND -h lists a command's flags.
`

func main() {
	if inGuest() {
		guestMain()
	}
	os.Exit(hostMain(os.Args[1:]))
}

// hostMain is main on the host.
func hostMain(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		cancel(fmt.Errorf("%w by %v", errInterrupted, <-signals))
	}()
	code, err := dispatch(ctx, args)
	return report(os.Stderr, code, err)
}

// dispatch runs the command that the arguments name.
func dispatch(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return 0, exitError{exitUsage, errors.New("no command\n" + usage)}
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		if len(args) > 1 && args[0] == "help" {
			return dispatch(ctx, []string{args[1], "-h"})
		}
		fmt.Print(usage)
		return 0, nil
	}
	cmd, ok := commands[args[0]]
	if !ok {
		return 0, exitError{exitUsage, fmt.Errorf("unknown command %q\n%s", args[0], usage)}
	}
	return cmd(ctx, args[1:])
}

// report prints an error and chooses the exit status: a program's own failure wins.
func report(w io.Writer, code int, err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		return code
	}
	fmt.Fprintf(w, "rxevm: %s\n", strings.TrimRight(err.Error(), "\n"))
	if code != 0 {
		return code
	}
	var e exitError
	switch {
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &e):
		return e.code
	}
	return exitBroken
}

// A guestFlags holds the flags that several commands share.
type guestFlags struct {
	guestConfig
	harsh   harsh
	install bool
	timeout time.Duration
	with    string
}

// addGuestFlags declares the shared flags.
func addGuestFlags(fs *flag.FlagSet, g *guestFlags) {
	fs.StringVar(&g.kernel, "kernel", "", "kernel `series`: "+strings.Join(kernelSeries(), ", ")+" (default 6.1, on arm64 6.12)")
	fs.StringVar(&g.arch, "arch", "amd64", "guest `architecture`: "+strings.Join(archNames(), ", "))
	fs.IntVar(&g.cpus, "smp", 2, "`number` of guest CPUs; more than the host's cores make it slower")
	fs.BoolVar(&g.oneThread, "onethread", false, "emulate all CPUs on one thread; a kernel that has probes attached and detached needs this, or -smp 1, where there is no KVM")
	fs.IntVar(&g.memMiB, "mem", 1024, "guest memory in `MiB`")
	fs.IntVar(&g.nodes, "numa", 1, "`number` of NUMA nodes to share memory and CPUs out among")
	fs.StringVar(&g.with, "with", "", "`rdma-core` adds a busybox shell, ibverbs-utils, perftest, rdma and ip")
	fs.Func("module", "load another kernel `module`, for instance mlx5_ib (repeat for more)", func(s string) error {
		if s == "" {
			return errors.New("a module has a name, such as mlx5_ib")
		}
		g.modules = append(g.modules, s)
		return nil
	})
	fs.Func("file", "copy a host file or folder into the guest, as `SRC[:DST]` (repeat for more); without DST it keeps its path, and the command runs in the host's working folder", func(s string) error {
		f, err := parseFileArg(s)
		g.files = append(g.files, f)
		return err
	})
	fs.Func("cpumax", "give the program this `share` of processors' time, such as 0.5, by a cgroup", func(s string) (err error) {
		if g.harsh.CPUs, err = strconv.ParseFloat(s, 64); err != nil || !(g.harsh.CPUs >= 0.01 && g.harsh.CPUs <= 64) {
			return errors.New("it is the time of 0.01 to 64 processors")
		}
		return nil
	})
	fs.BoolVar(&g.harsh.Storm, "storm", false, "send the program SIGURG all the time")
	fs.BoolVar(&g.console, "console", false, "show the guest's console")
	fs.BoolVar(&g.install, "install", false, "install missing programs (QEMU) with apt-get; needs root")
	fs.DurationVar(&g.timeout, "timeout", 10*time.Minute, "end the guest after this `time`")
}

// parseFlags parses a command's flags and turns every mistake into exit status 2 with a message.
func parseFlags(fs *flag.FlagSet, args []string) error {
	err := flags.Parse(fs, args, usageOf(fs.Name()), os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		// Not the list of flags as well: the message would scroll away.
		return exitError{exitUsage, fmt.Errorf("%w\n%s -h lists the flags", err, fs.Name())}
	}
	return err
}

// usageOf is what usage says of a command such as rxevm run.
func usageOf(name string) string {
	for line := range strings.Lines(usage) {
		form, what, ok := strings.Cut("rxevm "+strings.TrimSpace(line), "   ")
		if ok && (form == name || strings.HasPrefix(form, name+" ")) {
			return fmt.Sprintf("usage: %s\n%s\n\n", form, strings.TrimSpace(what))
		}
	}
	return ""
}

// check checks what flag cannot, and fills in what depends on other flags.
func (g *guestFlags) check() error {
	bad := func(format string, args ...any) error { return exitError{exitUsage, fmt.Errorf(format, args...)} }
	if g.kernel == "" {
		g.kernel = "6.1"
		if g.arch == "arm64" {
			g.kernel = "6.12"
		}
	}
	if _, ok := kernelSuites[g.kernel]; !ok {
		return bad("-kernel %q: there are %s", g.kernel, strings.Join(kernelSeries(), ", "))
	}
	if _, ok := seriesArchs[g.arch]; !ok {
		return bad("-arch %q: there are %s", g.arch, strings.Join(archNames(), ", "))
	}
	if g.cpus < 1 || g.cpus > 64 {
		return bad("-smp %d: the number of CPUs is from 1 to 64", g.cpus)
	}
	if g.memMiB < 256 || g.memMiB > 1<<20 {
		return bad("-mem %d: the guest's memory is from 256 MiB to 1 TiB", g.memMiB)
	}
	if g.nodes < 1 || g.nodes > 8 || g.memMiB/g.nodes < 128 {
		return bad("-numa %d: from 1 to 8 nodes of 128 MiB or more", g.nodes)
	}
	if g.cpus%g.nodes != 0 {
		return bad("-numa %d: the nodes get the same number of CPUs, and -smp %d is no multiple", g.nodes, g.cpus)
	}
	if g.timeout <= 0 {
		return bad("-timeout %v: must be more than 0", g.timeout)
	}
	switch g.with {
	case "":
	case "rdma-core":
		g.rdmaCore = true
	default:
		return bad("-with %q: there is rdma-core", g.with)
	}
	return nil
}
