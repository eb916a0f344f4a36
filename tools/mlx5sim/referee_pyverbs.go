package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// suiteModules are those of rdma-core's suite that are about what the model has.
var suiteModules = []string{
	"addr", "atomic", "cq", "cq_events", "cqex", "device", "fork", "mr", "pd", "parent_domain",
	"qp", "qpex", "relaxed_ordering", "shared_pd", "mlx5_cq", "mlx5_timestamp", "mlx5_uar", "mlx5_raw_wqe",
}

// suiteLeast is how many of the suite's tests must pass. A model that makes the suite skip
// would fail none.
const suiteLeast = 100

// python is Debian's, for which the bindings are built. Another may stand before it in PATH.
const python = "/usr/bin/python3"

// suiteFolders are where Debian's packages have the suite.
var suiteFolders = []string{"usr/share/doc/python3-pyverbs/tests", "usr/share/doc/rdma-core/tests"}

// suitePython begins the command of the Python that runs the suite: that of an unpacked folder if
// it has one and a loader, otherwise the machine's, which must be of the version that the
// folder's bindings are for.
func suitePython() []string {
	if root := os.Getenv(coreVar); root != "" {
		path := filepath.Join(root, "usr/bin/python3")
		if loader := coreLoader(root); loader != nil {
			if _, err := os.Stat(path); err == nil {
				return append(loader, path)
			}
		}
	}
	return []string{python}
}

// findSuite is the folder of the suite.
func findSuite() (string, error) {
	root := os.Getenv(coreVar)
	if root == "" {
		root = "/"
	}
	for _, f := range suiteFolders {
		dir := filepath.Join(root, f)
		if _, err := os.Stat(filepath.Join(dir, "run_tests.py")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("rdma-core's test suite is not in %s, below %s: install python3-pyverbs with its documentation, or let %s name a folder with the package unpacked",
		strings.Join(suiteFolders, " or "), root, coreVar)
}

// importable says whether python finds the bindings.
func importable() error {
	command := append(suitePython(), "-B", "-c", "import pyverbs.device")
	c := exec.Command(command[0], command[1:]...)
	c.Env = toolEnvironment()
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s does not find pyverbs: install python3-pyverbs (%w: %s)", python, err, lines[len(lines)-1])
}

// copySuite copies the suite to a folder, where what is compressed is not.
func copySuite(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(strings.TrimSuffix(name, ".gz"), ".py") {
			if err := copyPlain(filepath.Join(from, name), filepath.Join(to, strings.TrimSuffix(name, ".gz"))); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyPlain(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	var r io.Reader = in
	if strings.HasSuffix(from, ".gz") {
		if r, err = gzip.NewReader(in); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, r); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// pyverbs runs the suite in a folder that is made in dir.
func (r *referee) pyverbs(dir string) (int, error) {
	suite, err := findSuite()
	if err == nil {
		err = importable()
	}
	if err == nil {
		err = copySuite(suite, filepath.Join(dir, "tests"))
	}
	if err != nil {
		return exitSystem, err
	}
	return r.modules(dir)
}

// modules runs the modules of a suite that is in dir, and returns the exit status.
func (r *referee) modules(dir string) (int, error) {
	ran := 0
	for _, m := range suiteModules {
		if r.only != nil && !r.only.MatchString(m) {
			continue
		}
		ran++
		if err := r.module(dir, m); err != nil {
			return exitSystem, err
		}
	}
	fmt.Fprintf(r.stdout, "%d run, %d passed, %d failed, %d skipped\n", r.passed+r.failed+r.skipped, r.passed, r.failed, r.skipped)
	switch {
	case ran == 0:
		return exitUsage, fmt.Errorf("no module matches %q", r.only)
	case r.failed > 0:
		return 1, nil
	case r.passed == 0:
		return 1, errors.New("no test passed")
	case r.only == nil && r.passed < suiteLeast:
		return 1, fmt.Errorf("want %d that pass, at the least", suiteLeast)
	}
	return 0, nil
}

// module runs one. An error ends it all.
func (r *referee) module(dir, name string) error {
	args := append([]string{"-link", "eth", "--"}, suitePython()...)
	o := r.play(dir, append(args, "-B", "tests/run_tests.py", "-v", "--dev", "mlx5_0", "tests.test_"+name))
	if o.broken != nil {
		return o.broken
	}
	results, complaints := readUnittest(o)
	for _, t := range results {
		switch t.verdict {
		case "ok":
			r.passed++
		case "skip":
			r.skipped++
		default:
			r.failed++
		}
		line := fmt.Sprintf("%-5s %s: %s", t.verdict, name, t.name)
		if t.reason != "" {
			line += " (" + t.reason + ")"
		}
		fmt.Fprintln(r.stdout, line)
	}
	for _, c := range complaints {
		r.failed++
		fmt.Fprintf(r.stdout, "%-5s %s: %s\n", "FAIL", name, c)
	}
	if len(complaints) > 0 || o.code != 0 {
		for line := range strings.Lines(strings.TrimSpace(o.err)) {
			fmt.Fprintf(r.stdout, "      | %s\n", strings.TrimRight(line, "\n"))
		}
	}
	return nil
}
