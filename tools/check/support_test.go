package check

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const supportHead = "| feature | providers | least kernel | proved on |\n|---|---|---|---|\n"

// The support table says of a feature what its tests prove: it is made from a list of them.
func TestSupportTable(t *testing.T) {
	readme := page(t, "README.md")
	before, rest, ok := strings.Cut(readme, supportHead)
	if !ok {
		t.Fatal("README.md has no support table")
	}
	end := strings.Index(rest, "\n\n")
	want := supportTable(t)
	if rest[:end+1] == want {
		return
	}
	if !*update {
		t.Fatalf("README.md has another support table than testdata/support.txt gives: go test ./tools/check -run Support -update")
	}
	if err := os.WriteFile(filepath.Join(root(t), "README.md"), []byte(before+supportHead+want+rest[end+1:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

func supportTable(t *testing.T) string {
	var b strings.Builder
	s := support{t: t, tests: map[string][]string{}}
	s.readSuite()
	for line := range strings.Lines(page(t, "testdata/support.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 4 {
			t.Fatalf("support.txt: %q has not four parts", line)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cells[0], cells[1], cells[2], s.proved(cells[0], strings.Fields(cells[3])))
	}
	return b.String()
}

// support knows where tests run.
type support struct {
	t     *testing.T
	tests map[string][]string // of packages
	parts []string            // of the suite
	full  []string            // kernels that run all tests
}

// readSuite finds out what rxevm test plays.
func (s *support) readSuite() {
	text := page(s.t, "tools/rxevm/suite.go")
	list := regexp.MustCompile(`suiteParts = \[\]string\{(.*)\}`).FindStringSubmatch(text)
	if list == nil {
		s.t.Fatal("tools/rxevm/suite.go has no suiteParts")
	}
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(list[1], -1) {
		s.parts = append(s.parts, m[1])
	}
	for _, m := range regexp.MustCompile(`s\.guestPart\(ctx, "([0-9.]+)"\)`).FindAllStringSubmatch(text, -1) {
		s.full = append(s.full, m[1])
	}
	if len(s.full) == 0 {
		s.t.Fatal("tools/rxevm/suite.go boots no kernel with all tests")
	}
}

// proved says where a feature was proved, in the order of how little they prove.
func (s *support) proved(feature string, evidence []string) string {
	var kernels, others []string
	fake, model, peer, silicon := false, false, false, false
	for _, e := range evidence {
		place, test, _ := strings.Cut(e, ":")
		test, words, _ := strings.Cut(test, ":")
		place, only, _ := strings.Cut(place, "@")
		if place != "smoke" && place != "silicon" && !s.exists(test) {
			s.t.Errorf("%s: there is no test %s", feature, test)
		}
		switch place {
		case "fake":
			fake = true
		case "model":
			model = true
		case "peer":
			peer = true
		case "guest":
			_, name := s.split(test)
			if !strings.HasPrefix(name, "TestGuest") || only != "" && !slices.Contains(s.full, only) {
				s.t.Errorf("%s: %s runs in no guest of the suite", feature, e)
			}
			if only != "" {
				kernels = append(kernels, only)
			} else {
				kernels = append(kernels, s.full...)
			}
		case "smoke":
			if !slices.Contains(s.parts, test) {
				s.t.Errorf("%s: the suite has no part %s", feature, test)
			}
			kernels = append(kernels, strings.Replace(test, "arm64", "6.12 arm64", 1))
		case "silicon":
			if _, err := os.Stat(filepath.Join(root(s.t), "testdata", "silicon", test)); err != nil {
				s.t.Errorf("%s: %v", feature, err)
			}
			silicon = true
		case "else":
			others = append(others, strings.ReplaceAll(words, "_", " "))
		default:
			s.t.Errorf("%s: %s is no evidence", feature, e)
		}
	}
	slices.SortFunc(kernels, func(a, b string) int { return rank(a) - rank(b) })
	var all []string
	if fake {
		all = append(all, "fake kernel")
	}
	if kernels = slices.Compact(kernels); len(kernels) > 0 {
		all = append(all, "soft-RoCE on "+strings.Join(kernels, ", "))
	}
	if peer {
		all = append(all, "rdma-core as peer on "+strings.Join(s.full, ", "))
	}
	if model {
		all = append(all, "model")
	}
	all = append(all, others...)
	if silicon {
		all = append(all, "silicon")
	}
	return strings.Join(all, "; ")
}

// rank orders kernels.
func rank(kernel string) int {
	return slices.Index([]string{"5.10", "6.1", "6.12", "6.12 arm64"}, kernel)
}

// split takes PACKAGE.TEST apart.
func (s *support) split(test string) (pkg, name string) {
	i := strings.LastIndexByte(test, '.')
	if i < 0 {
		s.t.Fatalf("support.txt: %q is no PACKAGE.TEST", test)
	}
	return test[:i], test[i+1:]
}

// exists says whether a package has a test.
func (s *support) exists(test string) bool {
	pkg, name := s.split(test)
	names, ok := s.tests[pkg]
	if !ok {
		files, err := filepath.Glob(filepath.Join(root(s.t), filepath.FromSlash(pkg), "*_test.go"))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, d := range f.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					names = append(names, f.Name.Name)
				}
			}
		}
		s.tests[pkg] = names
	}
	return slices.Contains(names, name)
}
