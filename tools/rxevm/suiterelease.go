//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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

// perf has the release's verbs perf measure a latency between two processes of the guest.
func (s *suite) perf(ctx context.Context, where string, v *vm) {
	s.step(where, "verbs perf send_lat", func() (string, error) {
		limit, cancel := withDeadline(ctx, 5*time.Minute)
		defer cancel()
		const port = 18600
		args := []string{"verbs", "perf", "send_lat", "-d", "rxe0", "-n", "50", "-p", strconv.Itoa(port)}
		var serverOut, clientOut bytes.Buffer
		server, err := v.start(job{Args: args, Env: v.environ()}, jobIO{stdout: &serverOut, stderr: &serverOut})
		if err != nil {
			return "", err
		}
		code, err := v.run(limit, job{Args: append(args, "-json", guestAddr), Env: v.environ(), Listen: port}, jobIO{stdout: &clientOut, stderr: &clientOut})
		if err != nil || code != 0 {
			server.kill()
		}
		serverCode, serverErr := server.wait(limit)
		if err = errors.Join(err, serverErr); err == nil && code|serverCode != 0 {
			err = fmt.Errorf("ended with status %d, the server with %d", code, serverCode)
		}
		var r struct {
			Latency struct {
				N       int     `json:"n"`
				Typical float64 `json:"typical"`
			} `json:"latency_usec"`
		}
		if err == nil {
			err = json.Unmarshal(clientOut.Bytes(), &r)
		}
		if err == nil && (r.Latency.N != 50 || r.Latency.Typical <= 0) {
			err = errors.New("does not report 50 messages with a latency")
		}
		if err != nil {
			return "", fmt.Errorf("%w\nserver:%s\nclient:%s", err, indented(serverOut.String()), indented(clientOut.String()))
		}
		return fmt.Sprintf("%.0f usec", r.Latency.Typical), nil
	})
}
