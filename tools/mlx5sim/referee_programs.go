package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// coreVar names a folder with rdma-core's Debian packages unpacked into it: usr/bin, usr/lib and
// etc/libibverbs.d. Without it the programs are the machine's.
const coreVar = "GOVERBS_RDMA_CORE"

// A missingError is a program that is not there. What needs it is skipped.
type missingError struct{ name, sentence string }

func (e *missingError) Error() string { return e.sentence }

// findTool finds a program of rdma-core or perftest.
func findTool(name string) (string, error) {
	if root := os.Getenv(coreVar); root != "" {
		path := filepath.Join(root, "usr/bin", name)
		if _, err := os.Stat(path); err != nil {
			return "", &missingError{name, fmt.Sprintf("%s=%s: %v", coreVar, root, err)}
		}
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		packages := "ibverbs-utils and ibverbs-providers"
		if strings.HasPrefix(name, "ib_") {
			packages = "perftest and ibverbs-providers"
		}
		return "", &missingError{name, fmt.Sprintf("there is no %s: install %s, or let %s name a folder with these packages unpacked", name, packages, coreVar)}
	}
	return path, nil
}

// coreEnvironment is what programs of an unpacked folder need to find their libraries and the
// driver, which libibverbs looks for below /etc and /usr/lib alone unless told so.
func coreEnvironment() []string {
	env := os.Environ()
	root := os.Getenv(coreVar)
	if root == "" {
		return env
	}
	var dirs []string
	for _, pattern := range []string{"usr/lib/*/libibverbs", "usr/lib/*-linux-gnu", "lib/*-linux-gnu"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is right
		dirs = append(dirs, found...)
	}
	return append(env, "LD_LIBRARY_PATH="+strings.Join(dirs, ":"), "IBV_DRIVERS=mlx5",
		"PYTHONPATH="+filepath.Join(root, "usr/lib/python3/dist-packages"))
}

// freePort is a TCP port that is free, below those that the kernel chooses for others.
func freePort() (string, error) {
	for range 1000 {
		p := fmt.Sprint(20000 + rand.IntN(10000))
		if l, err := net.Listen("tcp", ":"+p); err == nil {
			return p, l.Close()
		}
	}
	return "", errors.New("no TCP port from 20000 to 29999 is free")
}

// verbsProgram is the path of our own program: the one that was named, the one beside this
// executable, or one that is built into dir.
func verbsProgram(ctx context.Context, named, self, dir string) (string, error) {
	if named != "" {
		return exec.LookPath(named)
	}
	beside := filepath.Join(filepath.Dir(self), "verbs")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	const source = "github.com/goverbs/goverbs/tools/verbs"
	if out, err := exec.CommandContext(ctx, "go", "list", source).CombinedOutput(); err != nil {
		return "", &missingError{"verbs", fmt.Sprintf("there is no verbs: name it with -verbs, or run this in goverbs' folder with go (%v: %s)", err, firstLine(out))}
	}
	path := filepath.Join(dir, "verbs")
	c := exec.CommandContext(ctx, "go", "build", "-o", path, source)
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // so that it needs no C library of the machine's
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", source, err, out)
	}
	return path, nil
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}
