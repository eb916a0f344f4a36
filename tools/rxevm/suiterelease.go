//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// releaseTwice builds the release (tools/release) from two folders and compares. The guests play
// with what it built.
func (s *suite) releaseTwice(ctx context.Context, where string) {
	s.step(where, "the release of verbs: the same bytes from two folders", func() (string, error) {
		return s.buildRelease(ctx, "-verify")
	})
}

// buildRelease builds the release into a folder that removeRelease removes.
func (s *suite) buildRelease(ctx context.Context, flags ...string) (string, error) {
	dir, err := s.host.scratch()
	if err != nil {
		return "", err
	}
	out, err := s.goTool(ctx, nil, append([]string{"run", "./tools/release", "-o", dir}, flags...)...)
	if err != nil {
		os.RemoveAll(dir) // The error of the build is the one to tell.
		return "", err
	}
	s.release = dir
	var all []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[1], "verbs-") {
			all = append(all, fmt.Sprintf("%s %s... %s MB", f[1], f[0][:8], f[2]))
		}
	}
	return strings.Join(all, ", "), nil
}

// removeRelease removes what buildRelease built.
func (s *suite) removeRelease() {
	if s.release != "" {
		if err := os.RemoveAll(s.release); err != nil {
			s.host.note("%v", err)
		}
	}
}

// withRelease makes the guest's verbs that of the release: what people get is what is tried. It
// reports whether there is one.
func (s *suite) withRelease(ctx context.Context, where string, c *guestConfig) bool {
	if s.release == "" && !s.step(where, "build the release of verbs", func() (string, error) { return s.buildRelease(ctx) }) {
		return false
	}
	c.verbs = false
	c.files = append(c.files, fileArg{filepath.Join(s.release, "verbs-linux-"+c.arch), "/usr/bin/verbs"})
	return true
}
