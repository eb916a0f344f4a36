package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/conformance"
)

// listSuite prints the tests of modules of rdma-core's suite without running any.
const listSuite = `
import importlib, sys, unittest
sys.path[:0] = [".", "tests"]
for m in sys.argv[1:]:
    for c in vars(importlib.import_module("tests.test_" + m)).values():
        if isinstance(c, type) and issubclass(c, unittest.TestCase):
            for name in unittest.defaultTestLoader.getTestCaseNames(c):
                print(m, c.__name__, name, sep=".")
`

// installed44OrSkip is the folder of rdma-core's suite, of the version that the table is
// about: it is in the name of the library's file, libibverbs.so.1.14.44.0.
func installed44OrSkip(t *testing.T) string {
	t.Helper()
	suite, err := findSuite()
	if err == nil {
		err = importable()
	}
	if err != nil {
		t.Skip("declared skip: ", err)
	}
	root := os.Getenv(coreVar)
	if root == "" {
		root = "/"
	}
	if found, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libibverbs.so.1.*.44.*")); err != nil || len(found) == 0 {
		t.Skip("declared skip: the suite that is installed is not that of rdma-core 44, which the table is about")
	}
	return suite
}

func readConformance(t *testing.T) []conformance.Row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", conformance.File))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := conformance.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The table of what tests what has the tests that the suite has, of the modules that run.
func TestConformanceNames(t *testing.T) {
	var names, modules []string
	for _, r := range readConformance(t) {
		names = append(names, r.Upstream)
		if !slices.Contains(modules, r.Module()) {
			modules = append(modules, r.Module())
		}
	}
	if want := slices.Sorted(slices.Values(suiteModules)); !slices.Equal(slices.Sorted(slices.Values(modules)), want) {
		t.Errorf("%s has modules %q, of the suite run %q", conformance.File, modules, want)
	}
	suite := installed44OrSkip(t)
	dir := t.TempDir()
	if err := copySuite(suite, filepath.Join(dir, "tests")); err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	command := append(append(suitePython(), "-B", "-c", listSuite), suiteModules...)
	c := exec.Command(command[0], command[1:]...)
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, toolEnvironment(), &out, &complaints
	if err := c.Run(); err != nil {
		t.Fatalf("%v:\n%s", err, complaints.String())
	}
	slices.Sort(names)
	upstream := strings.Fields(out.String())
	slices.Sort(upstream)
	for _, name := range names {
		if !slices.Contains(upstream, name) {
			t.Errorf("%s has %s, which the suite has not", conformance.File, name)
		}
	}
	for _, name := range upstream {
		if !slices.Contains(names, name) {
			t.Errorf("%s does not have %s of the suite", conformance.File, name)
		}
	}
}
