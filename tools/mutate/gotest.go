package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// build makes a test binary of a package of the source in dir. A result without a verdict
// is for that it did.
func (t *trial) build(ctx context.Context, dir, pkg, binary string) result {
	var out bytes.Buffer
	// With -trimpath the copies share what go has in its cache.
	err := run(ctx, dir, t.environment(nil), &out, "go", "test", "-c", "-trimpath", "-buildvcs=false", "-vet=off", "-ldflags=-s -w", "-o", binary, "./"+pkg)
	if err != nil {
		return result{doesNotBuild, firstError(out.String(), err) + "\n" + strings.TrimSpace(out.String())}
	}
	if _, err := os.Stat(binary); err != nil {
		return result{noTest, fmt.Sprintf("package %s has no test files", pkg)}
	}
	return result{}
}

// firstError is the first line of go's output that is no headline.
func firstError(out string, err error) string {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return err.Error()
}

// environment is that of this process, without cgo and without what tells the tests to do
// more than usual, or to do it elsewhere.
func (t *trial) environment(more []string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOVERBS_") {
			env = append(env, v)
		}
	}
	return append(append(env, "CGO_ENABLED=0", "TMPDIR="+t.temp, "GOTMPDIR="+t.temp), more...)
}

var (
	startLine = regexp.MustCompile(`(?m)^=== (RUN|NAME|CONT)`)
	skipLine  = regexp.MustCompile(`(?m)^ *--- SKIP: (\S+)`)
	failLine  = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	hangLine  = regexp.MustCompile(`(?m)^panic: test timed out after`)
	crashLine = regexp.MustCompile(`(?m)^(panic: |fatal error: |unexpected fault ).*`)
	whyLine   = regexp.MustCompile(`(?m)^ +\S+\.go:\d+: .*`)
)

// test runs the mutation's test and says what came of it: survived if it passed.
func (t *trial) test(ctx context.Context, dir, binary string, m *mutation, limit time.Duration) result {
	// The test's own limit tells better what hangs.
	limited, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	var buf bytes.Buffer
	err := run(limited, filepath.Join(dir, filepath.FromSlash(m.pkg)), t.environment(m.env), &buf,
		binary, "-test.v", "-test.paniconexit0", "-test.timeout="+limit.String(), "-test.run="+m.test)
	out := buf.String()
	var exit *exec.ExitError
	failed := failLine.FindStringSubmatch(out)
	switch {
	case hangLine.MatchString(out) || limited.Err() != nil:
		return result{timedOut, fmt.Sprintf("%s does not end within %v\n%s", m.test, limit, tail(out))}
	case err != nil && !errors.As(err, &exit):
		return result{notTried, err.Error()}
	case err != nil && exit.ExitCode() < 0:
		return result{brokenOff, fmt.Sprintf("%v\n%s", err, tail(out))}
	case err != nil && failed != nil:
		return result{caught, fmt.Sprintf("%s: %s", failed[1], why(out))}
	case err != nil && crashLine.MatchString(out):
		return result{caught, fmt.Sprintf("%s: %s", m.test, crashLine.FindString(out))}
	case err != nil:
		return result{brokenOff, fmt.Sprintf("%v\n%s", err, tail(out))}
	case !startLine.MatchString(out):
		return result{noTest, fmt.Sprintf("package %s has none that matches %s", m.pkg, m.test)}
	case skipLine.MatchString(out):
		return result{skipped, fmt.Sprintf("%s, which proves nothing\n%s", skipLine.FindStringSubmatch(out)[1], tail(out))}
	}
	return result{survived, fmt.Sprintf("%s passes: %s", m.test, m.what)}
}

// why is the line of a failed test's output that is likely to say what is wrong.
func why(out string) string {
	if crash := crashLine.FindString(out); crash != "" {
		return crash
	}
	// Log lines look as errors do. Those of the test that failed are the last before
	// it says so, unless it is a part of one.
	before := out[:failLine.FindStringIndex(out)[0]]
	if starts := startLine.FindAllStringIndex(before, -1); len(starts) > 0 {
		if line := whyLine.FindString(before[starts[len(starts)-1][0]:]); line != "" {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(whyLine.FindString(out))
}

// tail is the end of a test's output.
func tail(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	const most = 20
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
