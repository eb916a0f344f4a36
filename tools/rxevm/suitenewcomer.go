//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// newcomer follows the README in an empty home folder, and on a real kernel (tools/newcomer).
func (s *suite) newcomer(ctx context.Context, where string) {
	const what = "the README, followed in an empty home folder (tools/newcomer)"
	start := time.Now()
	last, err := s.follow(ctx)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		_, why, _ := strings.Cut(err.Error(), "\n")
		s.notRun(where, what, firstLine(why))
		return
	}
	s.step(where, what, func() (string, error) {
		return fmt.Sprintf("%s (%.1f s)", last, time.Since(start).Seconds()), err
	})
}

// follow returns the last line that tools/newcomer prints.
func (s *suite) follow(ctx context.Context) (string, error) {
	dir, err := s.host.scratch()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "newcomer") // go run would hide its exit status
	if _, err := s.goTool(ctx, nil, "build", "-o", program, "./tools/newcomer"); err != nil {
		return "", err
	}
	out, err := s.program(ctx, []string{"GOVERBS_CACHE=" + s.host.cache}, program, "-guest")
	if err != nil {
		return "", err
	}
	out = strings.TrimSpace(out)
	return strings.TrimSpace(out[strings.LastIndexByte(out, '\n')+1:]), nil
}
