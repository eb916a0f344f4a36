//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// debianKeyring is where Debian's own keys are on a Debian machine; it also covers releases that
// the machine's configuration does not list.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// indexAge is how long a package index is good for.
const indexAge = time.Hour

// An aptState is a private view of some suites for one architecture. It shares the machine's
// mirrors and keys and nothing else, so it needs no root and never disturbs the machine's own
// packages.
type aptState struct {
	h      *host
	suites []string
	arch   string
	dir    string
}

// openApt makes sure that a package index of the suites is there and of today: package names move
// with every security update, and an old index names files that are gone.
func (h *host) openApt(ctx context.Context, arch string, suites ...string) (*aptState, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, exitError{exitMissing, fmt.Errorf("this machine has no %s, so nothing can be fetched here: rxevm takes kernels and rdma-core from Debian packages (%s) and needs QEMU (package %s). "+
				"Run it on Debian or in a Debian container", tool, strings.Join(kernelPackages(), ", "), "qemu-system-x86, for arm64 guests qemu-system-arm")}
		}
	}
	a := &aptState{h: h, suites: suites, arch: arch, dir: h.path("apt", strings.Join(suites, "+")+"-"+arch)}
	stamp := filepath.Join(a.dir, "complete")
	if st, err := os.Stat(stamp); err == nil && time.Since(st.ModTime()) < indexAge {
		return a, nil
	}
	sources, err := a.sources()
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(stamp); err != nil {
		return nil, err
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial", "parts", "none"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	for name, content := range map[string]string{"parts/debian.sources": sources, "status": ""} {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	h.note("fetching the package index of %s for %s (about 10 MB)", strings.Join(suites, ", "), arch)
	if _, err := a.run(ctx, a.dir, "apt-get", "update", "-o", "APT::Update::Error-Mode=any"); err != nil {
		return nil, fmt.Errorf("no package index of %s for %s from the mirror that this machine's apt uses: %w", strings.Join(suites, ", "), arch, err)
	}
	return a, os.WriteFile(stamp, nil, 0o644)
}

// sources writes apt's configuration for the suites out of the machine's own mirrors.
func (a *aptState) sources() (string, error) {
	found := readAptSources("/etc/apt")
	mainURI, securityURI := debianMirrors(found)
	signed := ""
	if _, err := os.Stat(debianKeyring); err == nil {
		signed = debianKeyring
	}
	var b strings.Builder
	for _, suite := range a.suites {
		uri := mainURI
		if strings.HasSuffix(suite, "-security") {
			uri = securityURI
		}
		if uri == "" {
			return "", exitError{exitMissing, fmt.Errorf("the apt configuration of this machine names no Debian mirror for %s: add one, or run rxevm on Debian. What it would fetch: %s", suite, strings.Join(kernelPackages(), ", "))}
		}
		by := signed
		for _, s := range found {
			if by == "" && s.uri == uri {
				by = s.signedBy
			}
		}
		fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n", uri, suite)
		if by != "" {
			fmt.Fprintf(&b, "Signed-By: %s\n", by)
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// run runs one of apt's programs on the private state, in a folder, and returns its standard
// output.
func (a *aptState) run(ctx context.Context, dir string, args ...string) (string, error) {
	full := []string{
		"-q",
		"-o", "Dir::Etc::sourcelist=/dev/null",
		"-o", "Dir::Etc::sourceparts=" + filepath.Join(a.dir, "parts"),
		"-o", "Dir::Etc::preferences=/dev/null",
		"-o", "Dir::Etc::preferencesparts=" + filepath.Join(a.dir, "none"),
		"-o", "Dir::State::Lists=" + filepath.Join(a.dir, "lists"),
		"-o", "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"-o", "APT::Architecture=" + a.arch,
		"-o", "APT::Architectures=" + a.arch,
		"-o", "APT::Sandbox::User=root", // apt's own user cannot write to a cache below somebody's home.
		"-o", "APT::Get::Show-User-Simulation-Note=false",
		"-o", "Debug::NoLocking=true", // The private state has our own lock.
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::Retries=2",
		"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
	}
	return runTool(ctx, dir, args[0], append(full, args[1:]...)...)
}

// runTool runs a program to its end and returns its standard output; what it said on standard error
// becomes part of the error.
func runTool(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	if err := runChild(cmd); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		said := strings.TrimSpace(errs.String())
		if len(said) > 2000 {
			said = said[:2000] + " ..."
		}
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, said)
	}
	return out.String(), nil
}

// A debFile is a package that apt would fetch.
type debFile struct {
	name string // as apt-get download wants it: package=version
	file string
	size int64
}

// parseURIs parses what apt-get --print-uris prints: quoted address, file name, size, hash.
func parseURIs(text string) ([]debFile, error) {
	var all []debFile
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "'") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, fmt.Errorf("apt printed %q where an address, a file name and a size were expected", strings.TrimSpace(line))
		}
		size, err := strconv.ParseInt(f[2], 10, 64)
		part := strings.Split(strings.TrimSuffix(f[1], ".deb"), "_")
		if err != nil || len(part) != 3 {
			return nil, fmt.Errorf("apt printed %q where an address, a file name and a size were expected", strings.TrimSpace(line))
		}
		all = append(all, debFile{name: part[0] + "=" + strings.ReplaceAll(part[1], "%3a", ":"), file: f[1], size: size})
	}
	return all, nil
}

// closure returns the packages with all that they depend on, as if for an empty machine.
func (a *aptState) closure(ctx context.Context, packages ...string) ([]debFile, error) {
	args := append([]string{"apt-get", "install", "--print-uris", "-y", "--no-install-recommends"}, packages...)
	out, err := a.run(ctx, a.dir, args...)
	if err != nil {
		return nil, err
	}
	return parseURIs(out)
}

// single returns one package without its dependencies.
func (a *aptState) single(ctx context.Context, pkg string) ([]debFile, error) {
	out, err := a.run(ctx, a.dir, "apt-get", "download", "--print-uris", pkg)
	if err != nil {
		return nil, err
	}
	return parseURIs(out)
}

// download says what it fetches, fetches it into dir and returns the files. apt checks signatures
// and hashes.
func (a *aptState) download(ctx context.Context, dir, why string, debs []debFile) ([]string, error) {
	if len(debs) == 0 {
		return nil, fmt.Errorf("apt has nothing to fetch for %s", why)
	}
	var total int64
	args := []string{"apt-get", "download"}
	for _, d := range debs {
		total += d.size
		args = append(args, d.name)
	}
	a.h.note("fetching %s: %d package(s), %.1f MB", why, len(debs), float64(total)/1e6)
	if _, err := a.run(ctx, dir, args...); err != nil {
		return nil, err
	}
	files := make([]string, len(debs))
	for i, d := range debs {
		files[i] = filepath.Join(dir, d.file)
		if _, err := os.Stat(files[i]); err != nil {
			return nil, fmt.Errorf("apt-get download %s reported success: %w", d.name, err)
		}
	}
	return files, nil
}

// unpackDeb calls visit for each regular file and symbolic link of a package; r is its content.
// Names are clean and absolute.
func unpackDeb(ctx context.Context, deb string, visit func(name string, h *tar.Header, r io.Reader) error) (err error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			out.Close() // dpkg-deb gets EPIPE and ends.
		}
		if werr := cmd.Wait(); werr != nil && err == nil {
			err = fmt.Errorf("dpkg-deb %s: %w: %s", filepath.Base(deb), werr, strings.TrimSpace(errs.String()))
		}
	}()
	tr := tar.NewReader(out)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, out) // The padding behind the end mark, so that dpkg-deb can finish.
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(deb), err)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink {
			continue
		}
		if err := visit(filepath.Clean("/"+h.Name), h, tr); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(deb), err)
		}
	}
}

// unpackAll unpacks packages into a folder, the way that dpkg-deb does, but into the merged-usr
// layout.
func unpackAll(ctx context.Context, dir string, debs []string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, deb := range debs {
		err := unpackDeb(ctx, deb, func(name string, h *tar.Header, r io.Reader) error {
			rel := strings.TrimPrefix(image(nil).resolve(name), "/")
			if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
				return err
			}
			if h.Typeflag == tar.TypeSymlink {
				target := h.Linkname
				if filepath.IsAbs(target) { // It must not lead out of the folder, to the host's own files.
					var err error
					if target, err = filepath.Rel(filepath.Dir("/"+rel), image(nil).resolve(target)); err != nil {
						return err
					}
				}
				if err := root.Symlink(target, rel); err != nil && !errors.Is(err, os.ErrExist) {
					return err
				}
				return nil
			}
			f, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, os.FileMode(h.Mode)&0o777|0o200)
			if err != nil {
				return err
			}
			_, err = io.Copy(f, r)
			return errors.Join(err, f.Close())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// goodbye is how long a child that is asked to stop may take to clean up.
var goodbye = 5 * time.Second

// runChild runs a command made with a context. It dies with this process; when the context ends it
// and its children are asked to stop. Its temporary files go into a folder that is removed
// afterwards: the go command, and tests, leave theirs behind when a signal ends them. (It makes go
// test run again what looked at TMPDIR.)
func runChild(cmd *exec.Cmd) error { return runChildThen(cmd, func() {}) }

// runChildThen calls started when the program runs.
func runChildThen(cmd *exec.Cmd, started func()) error {
	temp, err := os.MkdirTemp("", "rxevm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+temp, "GOTMPDIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	interrupted := false
	cmd.Cancel = func() error {
		interrupted = true
		stop := syscall.SIGINT
		if signal.Ignored(stop) { // as in the background of a shell: by children, too
			stop = syscall.SIGTERM
		}
		return syscall.Kill(-cmd.Process.Pid, stop)
	}
	cmd.WaitDelay = goodbye
	if err = tied.Start(cmd); err == nil {
		started()
		err = cmd.Wait()
	}
	if interrupted {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // Whoever is left of the group would write on.
	}
	return err
}
