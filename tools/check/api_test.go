package check

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/api"
)

var update = flag.Bool("update", false, "write testdata/api anew")

// stablePackages are those whose exported API is under semantic versioning. README.md lists
// them, and what else is covered.
var stablePackages = []string{"./uverbs", "./cq", "./poll", "./uverbs/sim", "./uverbs/uverbstest"}

// apiFile is where the text of a package is.
func apiFile(t testing.TB, pkg string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-")
	return filepath.Join(root(t), "testdata", "api", name+".txt")
}

// The exported API is what testdata/api says, so that no change of it goes unnoticed.
func TestAPI(t *testing.T) {
	texts, err := api.Read(t.Context(), root(t), stablePackages)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range stablePackages {
		file := apiFile(t, pkg)
		if *update {
			if err := os.WriteFile(file, []byte(texts[pkg]), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		old, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		c := api.Compare(string(old), texts[pkg])
		if len(c.Breaking) > 0 {
			t.Errorf("%s: breaking: this needs a new major version, from v1 on:\n%s", pkg, strings.Join(c.Breaking, "\n"))
		}
		if len(c.Added) > 0 {
			t.Errorf("%s: added, which needs a new minor version:\n%s", pkg, strings.Join(c.Added, "\n"))
		}
		if len(c.Breaking)+len(c.Added) > 0 {
			t.Errorf("%s: if that is meant: go test ./tools/check -run API -update, and commit testdata/api", pkg)
		} else if string(old) != texts[pkg] {
			t.Errorf("%s: the lines are the same, in another order: go test ./tools/check -run API -update", pkg)
		}
	}
}
