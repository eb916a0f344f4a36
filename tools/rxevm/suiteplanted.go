//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// plantedPart makes a guest fail in every way that must be noticed. Without it a run in which
// nothing failed would prove little.
func (s *suite) plantedPart(ctx context.Context) {
	const where = "guest 6.1, planted"
	bins, err := s.host.scratch()
	if err == nil {
		defer os.RemoveAll(bins)
		err = os.Mkdir(filepath.Join(bins, "out"), 0o755)
	}
	dir, bin := filepath.Join(s.root, "tools/rxevm"), filepath.Join(bins, "planted.test")
	if !s.step(where, "build", func() (string, error) {
		if err != nil {
			return "", err
		}
		_, err := s.goTool(ctx, []string{"GOARCH=amd64"}, "test", "-c", "-cover", "-o", bin, "./tools/rxevm")
		return "", err
	}) {
		return
	}
	profile := filepath.Join(bins, "out", "cover")
	run := newTestRun(bin, dir, []string{"-test.run=^TestPlanted$", "-test.coverprofile=" + profile})
	c := guestConfig{kernel: "6.1", arch: "amd64", cpus: 2, memMiB: 1024, rdmaCore: true, files: run.inputs()}
	var v *vm
	if !s.step(where, "boot", func() (detail string, err error) {
		limit, cancel := withDeadline(ctx, bootPatience)
		defer cancel()
		v, err = s.host.boot(limit, c)
		return "", err
	}) {
		return
	}
	defer v.emu.kill()
	s.step(where, "exit status 7 comes back", func() (string, error) {
		code, err := v.run(ctx, job{Args: []string{"sh", "-c", "exit 7"}, Env: v.environ()}, jobIO{})
		return "", expect(code, err, 7, 0)
	})
	s.step(where, "100,000 random bytes come back unharmed", func() (string, error) { return "", v.randomBytes(ctx) })
	for _, p := range []struct {
		what, plant string
		code, exit  int
	}{
		{"a test passes, with testdata, arguments, environment and coverage", "pass", 0, 0},
		{"a failing test fails", "fail", 1, 0},
		{"an undeclared skip fails", "skip", 0, exitSkip},
	} {
		s.step(where, p.what, func() (string, error) {
			var out bytes.Buffer
			code, err := run.run(ctx, v, []string{"GOVERBS_PLANTED=" + p.plant}, &out, &out)
			if err := expect(code, err, p.code, p.exit); err != nil {
				return "", fmt.Errorf("%w%s", err, indented(out.String()))
			}
			b, err := os.ReadFile(profile)
			if err == nil && !strings.HasPrefix(string(b), "mode: ") {
				err = fmt.Errorf("%s is no coverage profile", profile)
			}
			return "", errors.Join(err, os.Remove(profile))
		})
	}
	s.step(where, "a kernel warning fails", func() (string, error) {
		// What is written to the log goes to the console like the kernel's own lines.
		code, err := v.run(ctx, job{Args: []string{"sh", "-c", "echo '<4>WARNING: CPU: 0 PID: 1 at planted' > /dev/kmsg"}, Env: v.environ()}, jobIO{})
		if err != nil || code != 0 {
			return "", errors.Join(fmt.Errorf("cannot plant it: status %d", code), err)
		}
		return "", expect(0, v.close(ctx), 0, exitKernel)
	})
}

// expect checks a program's status and, where exit is not 0, that the error has that exit status.
func expect(code int, err error, wantCode, exit int) error {
	var e exitError
	switch {
	case code != wantCode:
		return errors.Join(fmt.Errorf("status %d, want %d", code, wantCode), err)
	case exit == 0:
		return err
	case !errors.As(err, &e) || e.code != exit:
		return fmt.Errorf("went unnoticed: the error is %v, want one with exit status %d", err, exit)
	}
	return nil
}

// randomBytes compares what a program prints with the file that it prints.
func (v *vm) randomBytes(ctx context.Context) error {
	var printed, file bytes.Buffer
	j := job{Args: []string{"sh", "-c", "head -c 100000 /dev/urandom > /tmp/random; cat /tmp/random"}, Env: v.environ(), Collect: []string{"/tmp/random"}}
	code, err := v.run(ctx, j, jobIO{stdout: &printed, file: func(fileHeader) (io.WriteCloser, error) { return nopCloser{&file}, nil }})
	if err != nil || code != 0 {
		return errors.Join(fmt.Errorf("status %d", code), err)
	}
	if printed.Len() != 100000 || !bytes.Equal(printed.Bytes(), file.Bytes()) {
		return fmt.Errorf("%d bytes printed, %d in the file, or they differ", printed.Len(), file.Len())
	}
	return nil
}
