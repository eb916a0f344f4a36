//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What verbs selftest says of a device is not supported, and nothing else may be: a row
// that stops being tried is a failure here.
var (
	connectXLacks = []string{"RC: atomic write", "RC: remote flush"}
	softRoCELacks = []string{
		"completions: moderation", "completions: time stamps", "completions: entries of 128 bytes", "completions: compressed entries",
		"async: access error at the responder",
	}
	oldSoftRoCELacks = append([]string{"RC: atomic write", "RC: remote flush"}, softRoCELacks...) // before Linux 6.2
)

// selftestPatience is how long a test may wait for a completion, under emulation and with
// much else to do.
var selftestPatience = []string{"selftest", "-quick", "-json", "-patience", "1m"}

// selftestHost runs verbs selftest on the model in the process, and as a program on
// mlx5sim's devices.
func (s *suite) selftestHost(ctx context.Context, where string) {
	dir, err := s.host.scratch()
	if err == nil {
		defer os.RemoveAll(dir)
		_, err = s.goTool(ctx, nil, "build", "-o", dir+"/", "./tools/mlx5sim", "./tools/verbs")
	}
	if err != nil {
		s.step(where, "build verbs and mlx5sim", func() (string, error) { return "", err })
		return
	}
	verbs, mlx5sim := filepath.Join(dir, "verbs"), filepath.Join(dir, "mlx5sim")
	s.step(where, "verbs selftest on sim0", func() (string, error) {
		out, err := s.program(ctx, nil, verbs, append(slices.Clone(selftestPatience), "-d", "sim0")...)
		if err != nil {
			return "", err
		}
		return judgeSelftest([]byte(out), connectXLacks)
	})
	s.step(where, "verbs selftest under mlx5sim", func() (string, error) {
		args := append([]string{"run", "--", verbs}, selftestPatience...)
		out, err := s.program(ctx, nil, mlx5sim, append(args, "-d", "mlx5_0")...)
		if err != nil {
			return "", err
		}
		return judgeSelftest([]byte(out), connectXLacks)
	})
	s.selftestPeers(ctx, where, mlx5sim, verbs)
}

// selftestPeers runs it with each end in a process of its own.
func (s *suite) selftestPeers(ctx context.Context, where, mlx5sim, verbs string) {
	s.step(where, "verbs selftest between two processes under mlx5sim", func() (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		_, port, err := net.SplitHostPort(l.Addr().String())
		if l.Close(); err != nil {
			return "", err
		}
		out, err := s.program(ctx, nil, mlx5sim, "run", "-link", "eth", "-wait", "2m", "--", verbs, "selftest", "-d", "mlx5_0", "-serve", "-port", port,
			"--and", verbs, "selftest", "-d", "mlx5_0", "-quick", "-patience", "1m", "-peer", "127.0.0.1:"+port)
		if err != nil {
			return "", err
		}
		summary := regexp.MustCompile(`(?m)^\d+ passed, 0 failed, 2 not supported$`).FindString(out)
		if summary == "" || !strings.Contains(out, "the run is over") {
			return "", fmt.Errorf("it does not end as it should%s", indented(out))
		}
		return summary, nil
	})
}

// selftestGuest runs verbs selftest on soft-RoCE.
func (s *suite) selftestGuest(ctx context.Context, where, kernel string, v *vm) {
	s.step(where, "verbs selftest", func() (string, error) {
		limit, cancel := withDeadline(ctx, 10*time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		args := append([]string{"verbs"}, selftestPatience...)
		code, err := v.run(limit, job{Args: append(args, "-d", "rxe0"), Env: v.environ()}, jobIO{stdout: &out, stderr: &errs})
		if err != nil {
			return "", err
		}
		lacks := softRoCELacks
		if olderThan(kernel, "6.2") {
			lacks = oldSoftRoCELacks
		}
		detail, err := judgeSelftest(out.Bytes(), lacks)
		if err == nil && code != 0 {
			err = fmt.Errorf("ended with status %d", code)
		}
		if err != nil {
			err = fmt.Errorf("%w%s", err, indented(errs.String()))
		}
		return detail, err
	})
}

// judgeSelftest reads what verbs selftest -json has written.
func judgeSelftest(out []byte, lacks []string) (detail string, err error) {
	var report struct {
		Rows []struct{ Group, Test, Outcome, Detail string }
		OK   bool
	}
	if at := bytes.IndexByte(out, '{'); at > 0 {
		out = out[at:]
	}
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&report); err != nil {
		return "", fmt.Errorf("its report: %w%s", err, indented(string(out)))
	}
	var wrong []string
	passed := 0
	for _, r := range report.Rows {
		name := r.Group + ": " + r.Test
		switch {
		case r.Outcome == "pass":
			passed++
			if !slices.Contains(lacks, name) {
				continue
			}
			wrong = append(wrong, name+" passes, and was thought to be not supported")
		case r.Outcome == "not supported" && slices.Contains(lacks, name):
		default:
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", name, r.Outcome, r.Detail))
		}
	}
	if len(wrong) > 0 || !report.OK || passed == 0 {
		return "", fmt.Errorf("%d of %d rows are not as they should be\n%s", len(wrong), len(report.Rows), strings.Join(wrong, "\n"))
	}
	return fmt.Sprintf("%d pass, %d are not supported", passed, len(report.Rows)-passed), nil
}
