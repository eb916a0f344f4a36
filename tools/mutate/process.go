package main

import (
	"context"
	"io"
	"os/exec"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// run runs a program and gives out what it prints. When the context ends, the program and
// all that it has started are killed; when this process is, the program.
func run(ctx context.Context, dir string, env []string, out io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = out, out
	// Somebody who got away may hold the output.
	cmd.WaitDelay = 10 * time.Second
	ownGroup(cmd)
	return tied.Run(cmd)
}
