// Verbs asks and exercises RDMA devices, without libibverbs.
//
//	verbs pingpong [flags] [HOST]   play ping-pong, also with ibv_rc_pingpong
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// commands are what verbs can do. Each returns the exit status: 0, 1 when
// something went wrong, 2 when other flags would help.
var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) int{
	"pingpong": cmdPingpong,
}

const usage = `usage: verbs COMMAND [flags] ...
  pingpong [flags] [HOST]   play ping-pong, also with ibv_rc_pingpong
verbs COMMAND -h lists a command's flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command that the arguments name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, "verbs: no command\n"+usage)
		return 2
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	}
	cmd, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "verbs: unknown command %q\n%s", args[0], usage)
		return 2
	}
	return cmd(ctx, args[1:], stdout, stderr)
}
