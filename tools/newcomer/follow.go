package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/internal/plural"
)

// greeting is what the README's program ends with.
const greeting = "hello from the other side"

// follow takes the steps of the README of the source that dir is in.
func follow(ctx context.Context, dir string, guest bool, out io.Writer) (err error) {
	root, err := os.MkdirTemp("", "newcomer-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	n := newcomer{root: root, at: filepath.Join(root, "home"), source: filepath.Join(root, "source.git"), out: out}
	// Not the repository itself, which may be somebody else's: git asks the user's settings
	// whether to trust that, and a newcomer has none.
	source, err := output(ctx, dir, "git", "rev-parse", "--show-toplevel")
	if err == nil {
		_, err = output(ctx, dir, "git", "clone", "-q", "--bare", source, n.source)
	}
	if err != nil {
		return noSource{fmt.Errorf("a newcomer clones the source, and git does not give it: %w", err)}
	}
	readme, err := output(ctx, n.source, "git", "show", "HEAD:README.md")
	if err != nil {
		return err
	}
	steps, err := readSteps(readme)
	if err != nil {
		return err
	}
	if err := n.settle(ctx, dir); err != nil {
		return err
	}
	begin := time.Now()
	for _, s := range steps {
		if s.guest && !guest {
			continue
		}
		if err := n.step(ctx, s); err != nil {
			return err
		}
	}
	if n.greetings == 0 {
		return fmt.Errorf("no command of the README printed %q", greeting)
	}
	fmt.Fprintf(out, "%6.1f s in all, %.0f of one processor, of %.0f that there are; the program said %q %s\n",
		time.Since(begin).Seconds(), n.spent.Seconds(), limit.Seconds(), greeting, plural.Of(n.greetings, "time"))
	if n.spent > limit {
		return fmt.Errorf("it takes longer than %v", limit)
	}
	return nil
}

// noSource is why there is nothing to follow.
type noSource struct{ error }

// A newcomer is somebody with an empty home folder.
type newcomer struct {
	root, at, source string
	env              []string
	out              io.Writer
	greetings        int
	spent            time.Duration // of processors
}

// settle makes the home folder, and a folder for PATH with two programs in it.
func (n *newcomer) settle(ctx context.Context, dir string) error {
	bin, tmp := filepath.Join(n.root, "bin"), filepath.Join(n.root, "tmp")
	for _, d := range []string{n.at, bin, tmp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"go", "git"} {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, name))
		}
		if err != nil {
			return err
		}
	}
	modules, err := output(ctx, dir, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	proxy, err := output(ctx, dir, "go", "env", "GOPROXY")
	if err != nil {
		return err
	}
	n.env = []string{
		"HOME=" + n.at, "PATH=" + bin, "TMPDIR=" + tmp,
		"GOPROXY=file://" + filepath.ToSlash(filepath.Join(modules, "cache", "download")) + "," + proxy,
		"GONOSUMDB=*", "GOTOOLCHAIN=local", "GOFLAGS=-modcacherw", // so that it can be removed
	}
	return nil
}

// step takes one step and says how long it took.
func (n *newcomer) step(ctx context.Context, s step) error {
	begin := time.Now()
	var err error
	switch {
	case s.file != "":
		err = os.WriteFile(filepath.Join(n.at, s.file), []byte(s.text), 0o644)
	case s.args[0] == "cd":
		n.at = filepath.Join(n.at, filepath.FromSlash(s.args[1]))
		_, err = os.Stat(n.at)
	case s.args[0] == "mkdir":
		err = os.Mkdir(filepath.Join(n.at, filepath.FromSlash(s.args[1])), 0o755)
	default:
		err = n.command(ctx, s)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", s, err)
	}
	fmt.Fprintf(n.out, "%6.1f s  %s\n", time.Since(begin).Seconds(), s)
	return nil
}

// command runs a program.
func (n *newcomer) command(ctx context.Context, s step) error {
	args, env := s.args, n.env
	for len(args) > 1 && strings.Contains(args[0], "=") {
		env = append(env[:len(env):len(env)], args[0])
		args = args[1:]
	}
	if args[0] == "git" && len(args) > 2 && args[1] == "clone" {
		args = []string{"git", "clone", "-q", n.source, strings.TrimSuffix(filepath.Base(args[2]), ".git")}
	}
	if s.guest {
		// QEMU and apt are the machine's.
		env = append(env[:len(env):len(env)], "PATH="+filepath.Join(n.root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"), "GOVERBS_CACHE="+cacheFolder())
	}
	path := args[0]
	if strings.Contains(path, "/") {
		path = filepath.Join(n.at, path)
	} else {
		path = filepath.Join(n.root, "bin", path)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = n.at, env, &out, &out
	// Go ends its children when it is interrupted, and leaves them when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	if s := cmd.ProcessState; s != nil {
		n.spent += s.UserTime() + s.SystemTime() // those of its children included
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out.String())
	}
	n.greetings += strings.Count(out.String(), greeting)
	return nil
}

// cacheFolder is where rxevm keeps what it fetched.
func cacheFolder() string {
	if dir := os.Getenv("GOVERBS_CACHE"); dir != "" {
		return dir
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "goverbs")
}

// output runs a program and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}
