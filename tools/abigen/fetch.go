package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const headerPackage = "linux-libc-dev"

// debianKeyring signs every suite below. It comes with Debian's base system.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// fetchHeaders brings the newest headerPackage of a kernel series into dir and returns its version
// and include directory. It asks the stable and backports suites of the Debian mirrors that
// apt is set up for, with an apt state of its own, so that it needs no root and changes
// nothing on the machine.
func fetchHeaders(dir, series string, log io.Writer) (version, include string, err error) {
	mirrors, err := debianMirrors()
	if err != nil {
		return "", "", err
	}
	apt, err := newApt(dir, mirrors)
	if err != nil {
		return "", "", err
	}
	fmt.Fprintf(log, "abigen: reading the package lists of Debian's stable and backports suites (about 20 MB)\n")
	if err := apt.update(log); err != nil {
		return "", "", err
	}
	version, err = apt.newest(headerPackage, series)
	if err != nil {
		return "", "", err
	}
	tree := filepath.Join(dir, headerPackage+"_"+strings.ReplaceAll(version, ":", "_"))
	include = filepath.Join(tree, "usr", "include")
	if _, err := os.Stat(filepath.Join(include, "rdma")); err == nil {
		return version, include, nil
	}
	fmt.Fprintf(log, "abigen: downloading %s %s (about 3 MB)\n", headerPackage, version)
	deb, err := apt.download(headerPackage, version)
	if err != nil {
		return "", "", err
	}
	if _, err := output("", "dpkg-deb", "-x", deb, tree); err != nil {
		return "", "", err
	}
	return version, include, os.Remove(deb)
}

// A mirror is the address of a Debian archive and the suites that it carries.
type mirror struct {
	uri    string
	suites []string
}

// debianMirrors takes the archive addresses from apt's own configuration.
func debianMirrors() ([]mirror, error) {
	out, err := output("", "apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return nil, err
	}
	return parseMirrors(string(out))
}

func parseMirrors(indexTargets string) ([]mirror, error) {
	var ms []mirror
	for line := range strings.Lines(indexTargets) {
		origin, uri, _ := strings.Cut(strings.TrimSpace(line), " ")
		if origin != "Debian" || slices.ContainsFunc(ms, func(m mirror) bool { return m.uri == uri }) {
			continue
		}
		suites := []string{"stable", "stable-backports", "oldstable-backports"}
		if strings.HasSuffix(strings.TrimRight(uri, "/"), "-security") {
			suites = []string{"stable-security"}
		}
		ms = append(ms, mirror{uri, suites})
	}
	if len(ms) == 0 {
		return nil, fmt.Errorf("apt is set up for no Debian archive: scan needs a Debian machine whose package lists are up to date (apt-get update)")
	}
	return ms, nil
}

// apt runs apt tools on a private state directory.
type apt struct {
	dir  string
	opts []string
}

func newApt(dir string, mirrors []mirror) (*apt, error) {
	for _, d := range []string{"parts", "lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	var list bytes.Buffer
	for _, m := range mirrors {
		for _, s := range m.suites {
			fmt.Fprintf(&list, "deb [signed-by=%s] %s %s main\n", debianKeyring, m.uri, s)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "parts", "debian.list"), list.Bytes(), 0o644); err != nil {
		return nil, err
	}
	return &apt{dir, []string{
		"-o", "Dir::Etc::sourcelist=/dev/null",
		"-o", "Dir::Etc::sourceparts=" + filepath.Join(dir, "parts"),
		"-o", "Dir::State::Lists=" + filepath.Join(dir, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
		"-o", "Acquire::Languages=none",
		"-o", "APT::Sandbox::User=",
	}}, nil
}

// update fetches the package lists. A suite that does not exist is no failure: there is no
// stable-backports in the first weeks of a release, and apt keeps the lists it got.
func (a *apt) update(log io.Writer) error {
	_, err := output("", "apt-get", append(slices.Clone(a.opts), "-q", "update")...)
	if err != nil {
		fmt.Fprintf(log, "abigen: some package lists are missing: %v\n", err)
	}
	lists, globErr := filepath.Glob(filepath.Join(a.dir, "lists", "*_Packages*"))
	if globErr == nil && len(lists) == 0 {
		return fmt.Errorf("no package list could be fetched: %w", err)
	}
	return globErr
}

// newest returns the highest version of a package within a kernel series.
func (a *apt) newest(pkg, series string) (string, error) {
	out, err := output("", "apt-cache", append(slices.Clone(a.opts), "madison", pkg)...)
	if err != nil {
		return "", err
	}
	versions := madisonVersions(string(out))
	in := slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !strings.HasPrefix(v, series+".") })
	if len(in) == 0 {
		return "", fmt.Errorf("no %s of series %s in Debian's stable or backports suites: they have %s", pkg, series, strings.Join(versions, ", "))
	}
	return slices.MaxFunc(in, compareVersions), nil
}

// madisonVersions reads lines of the form "package | version | where".
func madisonVersions(out string) []string {
	var vs []string
	for line := range strings.Lines(out) {
		if f := strings.Split(line, "|"); len(f) == 3 {
			vs = append(vs, strings.TrimSpace(f[1]))
		}
	}
	return vs
}

// compareVersions asks dpkg, which knows what ~ and + mean.
func compareVersions(a, b string) int {
	switch {
	case a == b:
		return 0
	case exec.Command("dpkg", "--compare-versions", a, "gt", b).Run() == nil:
		return 1
	case exec.Command("dpkg", "--compare-versions", a, "lt", b).Run() == nil:
		return -1
	}
	return cmp.Compare(a, b)
}

// download returns the path of the package file.
func (a *apt) download(pkg, version string) (string, error) {
	dir, err := os.MkdirTemp(a.dir, "download-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if _, err := output(dir, "apt-get", append(slices.Clone(a.opts), "-q", "download", pkg+"="+version)...); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("apt-get download left %d files instead of one", len(debs))
	}
	deb := filepath.Join(a.dir, filepath.Base(debs[0]))
	return deb, os.Rename(debs[0], deb)
}

// output runs a program and returns its standard output; an error carries what it printed on standard error.
func output(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
