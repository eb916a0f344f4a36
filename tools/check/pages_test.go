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
	name := regexp.MustCompile(`^(?:poll\.|cq\.)?[A-Z]\w*[a-z]\w*(?:\.[A-Z]\w*)?$`)
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if name.MatchString(m[1]) && !names[m[1]] {
			t.Errorf("goverbs has no %s", m[1])
		}
	}
}
