package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/source"
)

// The patches of this tree apply to it, to one place each, and name tests that there are.
// That they are caught is what mutate itself finds out.
func TestCommittedMutations(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("declared skip: git is not installed, which applies the patches")
	}
	root, err := source.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(filepath.Join(root, filepath.FromSlash(mutationsFolder)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	tests := map[string][]string{}
	for _, m := range all {
		if err := apply(t.Context(), root, m, true); err != nil {
			t.Errorf("%s does not apply: mend the patch, or drop it if there can be no such bug any more\n%v", m.name, err)
			continue
		}
		for _, h := range m.hunks {
			if files[h.file] == "" {
				text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(h.file)))
				if err != nil {
					t.Fatal(err)
				}
				files[h.file] = string(text)
			}
			// Git looks for the lines in the whole file.
			if n := strings.Count("\n"+files[h.file], "\n"+h.old); n != 1 {
				t.Errorf("%s: %s has the lines that change %d times: add context until they are there once\n%s", m.name, h.file, n, h.old)
			}
			if h.old == h.new {
				t.Errorf("%s changes nothing in %s", m.name, h.file)
			}
		}
		if tests[m.pkg] == nil {
			tests[m.pkg] = testNames(t, filepath.Join(root, filepath.FromSlash(m.pkg)))
		}
		if !slices.ContainsFunc(tests[m.pkg], regexp.MustCompile(m.firstTest()).MatchString) {
			t.Errorf("%s: package %s has no test %s", m.name, m.pkg, m.firstTest())
		}
	}
}

// testNames are the tests of a package, on whatever system.
func testNames(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
