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

	"github.com/goverbs/goverbs/tools/internal/compilec"
)

// coreVar names a folder with rdma-core's Debian packages unpacked into it: usr/bin, usr/lib and
// etc/libibverbs.d. Without it the programs are the machine's.
const coreVar = "GOVERBS_RDMA_CORE"

// A missingError is a program that is not there. What needs it is skipped.
type missingError struct{ name, sentence string }

func (e *missingError) Error() string { return e.sentence }

// findTool finds a program of rdma-core or perftest, and returns how its command begins.
func findTool(name string) ([]string, error) {
	if root := os.Getenv(coreVar); root != "" {
		path := filepath.Join(root, "usr/bin", name)
		if _, err := os.Stat(path); err != nil {
			return nil, &missingError{name, fmt.Sprintf("%s=%s: %v", coreVar, root, err)}
		}
		return append(coreLoader(root), path), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		packages := "ibverbs-utils and ibverbs-providers"
		if strings.HasPrefix(name, "ib_") {
			packages = "perftest and ibverbs-providers"
		}
		return nil, &missingError{name, fmt.Sprintf("there is no %s: install %s, or let %s name a folder with these packages unpacked", name, packages, coreVar)}
	}
	return []string{path}, nil
}

// coreLoader begins the command of a program of an unpacked folder that has a loader, of the
// package libc6: with the C library beside it a program runs on machines with an older one
// too. Without a loader it is nothing, and the program runs with the machine's.
func coreLoader(root string) []string {
	for _, pattern := range []string{"usr/lib/*-linux-gnu*/ld-linux-*.so.*", "lib/*-linux-gnu*/ld-linux-*.so.*"} {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 { // the pattern is right
			return []string{found[0], "--library-path", strings.Join(compilec.Libraries(root), ":")}
		}
	}
	return nil
}

// coreEnvironment is what programs that were built here need to find the libraries of an unpacked
// folder.
func coreEnvironment() []string {
	root := os.Getenv(coreVar)
	if root == "" {
		return os.Environ()
	}
	return append(folderEnvironment(root), "LD_LIBRARY_PATH="+strings.Join(compilec.Libraries(root), ":"))
}

// folderEnvironment has who was given the libraries of an unpacked folder find the driver and
// the bindings of Python there too. By a mere name libibverbs looks for a driver below /usr/lib
// first, where one of another release may be; of two drivers for a device it takes the first.
func folderEnvironment(root string) []string {
	driver := "mlx5"
	if found, _ := filepath.Glob(filepath.Join(root, "usr/lib/*/libibverbs")); len(found) > 0 { // the pattern is right
		driver = filepath.Join(found[0], "libmlx5") // to which it adds -rdmav34.so
	}
	return append(os.Environ(), "IBV_DRIVERS="+driver, "PYTHONPATH="+filepath.Join(root, "usr/lib/python3/dist-packages"))
}

// toolEnvironment is that for the commands of findTool. A loader that is named there knows the
// libraries, which are not to be those of what else is started: they may be of another C library.
func toolEnvironment() []string {
	root := os.Getenv(coreVar)
	if root == "" || coreLoader(root) == nil {
		return coreEnvironment()
	}
	env := folderEnvironment(root)
	if suitePython()[0] != python {
		env = append(env, "PYTHONHOME="+filepath.Join(root, "usr"))
	}
	return env
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
