package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/api"
)

// page reads a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var quoted = regexp.MustCompile("`([^`]+)`")

// rows are the cells of a page's tables, without their headers.
func rows(text string) [][]string {
	var all [][]string
	table := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			table = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if strings.HasPrefix(strings.TrimSpace(cells[0]), "---") {
			table = true
			continue
		}
		if table {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			all = append(all, cells)
		}
	}
	return all
}

// exported are the names of the stable packages: those of uverbs plain, others with the package.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, pkg := range stablePackages {
		text, err := os.ReadFile(apiFile(t, pkg))
		if err != nil {
			t.Fatal(err)
		}
		prefix := ""
		if pkg != "./uverbs" {
			prefix = filepath.Base(pkg) + "."
		}
		for name := range api.Names(string(text)) {
			names[prefix+name] = true
			// The aliases of uverbs have the fields and methods of cq's types.
			if rest, ok := strings.CutPrefix(name, "WC."); ok && prefix == "cq." {
				names["WC."+rest] = true
			}
		}
	}
	return names
}

// Every call of libibverbs in the tables has a counterpart that exists, and stands there once.
func TestLibibverbsPage(t *testing.T) {
	names := exported(t)
	text := page(t, "uverbs/FROM-LIBIBVERBS.md")
	seen := map[string]bool{}
	calls := 0
	for _, cells := range rows(text) {
		if len(cells) != 3 {
			continue // the table of programs
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			if seen[m[1]] && strings.HasPrefix(m[1], "ibv_") {
				t.Errorf("%s stands there twice", m[1])
			}
			seen[m[1]] = true
			calls++
		}
		here := quoted.FindAllStringSubmatch(cells[1], -1)
		if len(here) == 0 {
			t.Errorf("%s: no Go name", cells[0])
		}
		for _, m := range here {
			if !names[m[1]] {
				t.Errorf("%s: goverbs has no %s", cells[0], m[1])
			}
		}
	}
	if calls < 100 {
		t.Errorf("only %d names of libibverbs in the tables", calls)
	}
	// In the text, what looks like a name of Go is one.
	name := regexp.MustCompile(`^(?:poll\.|cq\.)?(?:[A-Z]\w*[a-z]\w*(?:\.[A-Z]\w*)?|[A-Z]+\.[A-Z]\w*)$`)
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if name.MatchString(m[1]) && !names[m[1]] {
			t.Errorf("goverbs has no %s", m[1])
		}
	}
}

// pages are those of the documentation.
var pages = []string{
	"README.md", "mlx5/SPEED.md", "poll/POLLING.md", "tools/decode/ERRORS.md", "tools/verbs/NIGHT.md", "tools/verbs/TOOLS.md",
	"uverbs/CONTAINERS.md", "uverbs/FROM-LIBIBVERBS.md", "uverbs/uverbstest/TESTING.md",
}

// Links in pages lead to files that are there, and README.md leads to all pages.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)
	linked := map[string]bool{}
	for _, name := range pages {
		for _, m := range link.FindAllStringSubmatch(page(t, name), -1) {
			target := filepath.Join(filepath.Dir(filepath.FromSlash(name)), filepath.FromSlash(m[1]))
			if _, err := os.Stat(filepath.Join(root(t), target)); err != nil {
				t.Errorf("%s leads to %s: %v", name, m[1], err)
			}
			if name == "README.md" {
				linked[filepath.ToSlash(target)] = true
			}
		}
	}
	for _, name := range pages[1:] {
		if !linked[name] {
			t.Errorf("README.md does not lead to %s", name)
		}
	}
}

// The programs and packages of this module that pages name exist.
func TestNamedPackages(t *testing.T) {
	named := regexp.MustCompile(`(?:github\.com/goverbs/goverbs|\.)/((?:tools|uverbs|mlx5|poll|cq|rxe|abi)(?:/[a-z0-9]+)*)`)
	for _, name := range pages {
		for _, m := range named.FindAllStringSubmatch(page(t, name), -1) {
			if _, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s: %s: %v", name, m[0], err)
			}
		}
	}
}

// The workflow to copy runs commands that exist, on kernels that there are.
func TestWorkflow(t *testing.T) {
	_, text, _ := strings.Cut(page(t, "uverbs/uverbstest/TESTING.md"), "```yaml\n")
	text, _, _ = strings.Cut(text, "\n```")
	s := support{t: t}
	s.readSuite()
	// Kernels and QEMU are packages of Debian, and the tool asks the machine's own apt.
	if !regexp.MustCompile(`(?m)^    container: golang:[0-9.]+-(?:bookworm|trixie)$`).MatchString(text) {
		t.Error("the workflow does not run in a container of Debian with Go")
	}
	commands := 0
	built := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:- )?run: (.+)$`).FindAllStringSubmatch(text, -1) {
		commands++
		f := strings.Fields(strings.ReplaceAll(m[1], `"`, ""))
		if f[0] != "go" {
			t.Errorf("%s: not a command of go", m[1])
		}
		for i, word := range f[:len(f)-1] {
			switch next := f[i+1]; word {
			case "-o":
				built[next] = true
			case "-exec":
				if !built[next] {
					t.Errorf("%s: nothing built %s", m[1], next)
				}
			case "-kernel":
				found := false
				for _, k := range s.full {
					found = found || k == next
				}
				if !found {
					t.Errorf("%s: the suite does not test on %s", m[1], next)
				}
			}
		}
	}
	if commands < 4 {
		t.Errorf("only %d commands in the workflow", commands)
	}
}
