// Verbs asks and exercises RDMA devices, without libibverbs.
//
//	verbs decode [-json] [FILE...]  explain failed completions in logs
//	verbs demo [flags]              show what works, also without any device
//	verbs devinfo [flags]           show the devices and what they can do
//	verbs doctor [flags]            look for what keeps RDMA from working here
//	verbs perf TEST [flags] [HOST]  measure what perftest measures
//	verbs pingpong [flags] [HOST]   play ping-pong, also with ibv_rc_pingpong
//	verbs selftest [flags]          try all of a device, and tell what passed
//	verbs top [flags]               show every RDMA object of this machine, and what moves
//	verbs version                   say which version this is
//	verbs waiting [flags]           measure ways to wait for completions
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// A command is one thing that verbs can do. Each has its own file.
type command struct {
	name, args, summary string
	// run returns the exit status: usageText says which there are.
	run func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

var commands = []command{
	{"decode", "[-json] [FILE...]", "explain failed completions in logs and dumps", cmdDecode},
	{"demo", "[flags]", "show what the library can do, also without a device", cmdDemo},
	{"devinfo", "[flags]", "show the devices and what they can do", cmdDevinfo},
	{"doctor", "[flags]", "look for what keeps RDMA from working on this machine", cmdDoctor},
	{"perf", "TEST [flags] [HOST]", "measure bandwidth and latency, as perftest does", cmdPerf},
	{"pingpong", "[flags] [HOST]", "play ping-pong, also with ibv_rc_pingpong", cmdPingpong},
	{"selftest", "[flags]", "try everything on a device: what passes, fails, is not supported", cmdSelftest},
	{"top", "[flags]", "show every RDMA object of this machine, and what moves", cmdTop},
	{"version", "", "say which version this is, for bug reports", cmdVersion},
	{"waiting", "[flags]", "measure what it gives and costs to wait in one way or another", cmdWaiting},
}

// usageText lists the commands.
func usageText() string {
	var b strings.Builder
	b.WriteString("usage: verbs COMMAND [flags] ...\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-25s %s\n", c.name+" "+c.args, c.summary)
	}
	b.WriteString(`verbs COMMAND -h lists a command's flags, with examples. In all of them -d is the device, and
-json writes JSON with keys that stay.
Exit status: 0; 1 when something went wrong or failed, of decode nothing was found, of doctor
there are warnings; 2 for wrong flags and unknown devices; 3 of doctor there are faults.
`)
	return b.String()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runFiles(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// runFiles is run, which fails if standard output did not take everything.
func runFiles(ctx context.Context, args []string, stdout *os.File, stderr io.Writer) int {
	out := &output{file: stdout}
	code := run(ctx, args, out, stderr)
	if err := out.failed(); err != nil && code == 0 {
		fmt.Fprintf(stderr, "verbs: %v\n", err)
		return 1
	}
	return code
}

// run runs the command that the arguments name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, "verbs: no command\n", usageText())
		return 2
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if args[0] == "help" && len(args) > 1 {
			return run(ctx, []string{args[1], "-h"}, stdout, stderr)
		}
		fmt.Fprint(stdout, usageText())
		return 0
	case "-V", "-version", "--version":
		return cmdVersion(ctx, args[1:], stdout, stderr)
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "verbs: unknown command %q\n%s", args[0], usageText())
	return 2
}
