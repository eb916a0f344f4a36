package check

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/goverbs/goverbs"

// root is the module's folder.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err == nil {
		err = readFolders(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// readFolders reads the source's folders. Go keeps the result of a test for as long as the files that
// the test read are the same, and does not know of those that its go list and go build read: go test
// -run API passed when the API had changed.
func readFolders(root string) error {
	return filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // what other tests leave for a moment
		}
		return err
	})
}

// house is what a package may import, besides the standard library. Names are
// relative to the module; a name that ends in /... covers a tree.
type house struct {
	pkg   string
	may   []string
	std   []string // if not nil, the only packages of the standard library
	never []string // of the standard library
}

const (
	xsys    = "golang.org/x/sys/..."
	netlink = "github.com/mdlayher/netlink"
)

// houses is the import table of the design.
var houses = []house{
	{pkg: "abi", std: []string{"structs", "unsafe"}},
	{pkg: "abi/request", may: []string{"abi"}},
	{pkg: "cq"},
	{pkg: "rxe", may: []string{"abi", "cq"}, never: []string{"os", "net", "syscall"}},
	{pkg: "mlx5", may: []string{"abi", "cq", "mlx5/internal/..."}, never: []string{"os", "net", "syscall"}},
	{pkg: "mlx5/model", may: []string{"abi", "abi/request"}, never: []string{"net", "syscall"}},
	{pkg: "mlx5/internal/mmio", std: []string{"runtime", "sync/atomic", "unsafe"}},
	{pkg: "poll", may: []string{"cq", xsys}},
	{pkg: "uverbs", may: []string{"abi", "abi/request", "cq", "mlx5", "rxe", "uverbs/nldev", "uverbs/internal/kernel", "uverbs/internal/bridge"}, never: []string{"testing", "log", "net/http", "encoding/json"}},
	{pkg: "uverbs/sim", may: []string{"abi/request", "mlx5/model", "uverbs", "uverbs/internal/kernel", "uverbs/internal/bridge"}, never: []string{"testing", "log", "net/http"}},
	{pkg: "uverbs/uverbstest", may: []string{"cq", "mlx5/model", "poll", "uverbs", "uverbs/sim"}},
	{pkg: "uverbs/uverbstest/simproc", may: []string{"abi", "abi/request", "mlx5/model", xsys}, never: []string{"testing", "log", "net/http"}},
	{pkg: "uverbs/internal/bridge", may: []string{"uverbs/internal/kernel"}},
	{pkg: "uverbs/nldev", may: []string{"abi", netlink, xsys}},
	{pkg: "uverbs/internal/kernel", may: []string{xsys}},
	{pkg: "uverbs/internal/fakekernel", may: []string{"abi", "abi/request", "uverbs/internal/kernel", "uverbs/nldev", xsys}},
	{pkg: "tools/...", may: []string{"...", "golang.org/x/...", "github.com/..."}},
}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// list runs go list -json for a system.
func list(t *testing.T, goos string, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)...)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := d.Decode(&l); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

// covers says whether pattern names pkg.
func covers(pattern, pkg string) bool {
	if tree, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(pkg, tree) || pkg == strings.TrimSuffix(tree, "/")
	}
	return pattern == pkg
}

func TestHouses(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, goos, "./...") {
			name := strings.TrimPrefix(p.ImportPath, module+"/")
			i := slices.IndexFunc(houses, func(h house) bool { return covers(h.pkg, name) })
			if i < 0 {
				t.Errorf("%s: package %s has no place in the import table", goos, name)
				continue
			}
			h := houses[i]
			for _, imp := range p.Imports {
				local, ours := strings.CutPrefix(imp, module+"/")
				first, _, _ := strings.Cut(imp, "/")
				switch {
				case !ours && !strings.Contains(first, "."):
					if h.std != nil && !slices.Contains(h.std, imp) || slices.Contains(h.never, imp) {
						t.Errorf("%s: %s must not import %s", goos, name, imp)
					}
				case !slices.ContainsFunc(h.may, func(m string) bool { return covers(m, local) }):
					t.Errorf("%s: %s must not import %s", goos, name, imp)
				}
			}
		}
	}
}

// Who imports uverbs and poll links x/sys and netlink, with what that needs
// itself, and nothing else; in particular not the model.
func TestLibraryDependencies(t *testing.T) {
	allowed := []string{"golang.org/x/sys/", netlink, "github.com/mdlayher/socket", "golang.org/x/net/bpf", "golang.org/x/sync/", "golang.org/x/net/internal/"}
	for _, p := range list(t, "linux", "-deps", "./uverbs", "./poll") {
		// A ConnectX in software is for those who import it.
		for _, model := range []string{module + "/mlx5/model", module + "/uverbs/sim", module + "/uverbs/uverbstest"} {
			if p.ImportPath == model {
				t.Errorf("uverbs or poll links %s", p.ImportPath)
			}
		}
		if p.Standard || strings.HasPrefix(p.ImportPath, module) || strings.HasPrefix(p.ImportPath, "vendor/") {
			continue
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(p.ImportPath, a) }) {
			t.Errorf("uverbs or poll links %s", p.ImportPath)
		}
	}
}

// unsafe stands only in files that say so in their name, and in generated ones.
func TestUnsafeIsWhereItSays(t *testing.T) {
	err := filepath.WalkDir(root(t), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := filepath.Base(path)
		if e.IsDir() && strings.HasPrefix(base, ".") && base != "." {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(base, ".go") || strings.HasPrefix(base, "z") || strings.Contains(base, "_unsafe.go") || strings.Contains(base, "_unsafe_") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range f.Imports {
			if p, _ := strconv.Unquote(imp.Path.Value); p == "unsafe" {
				t.Errorf("%s imports unsafe: its name must end in _unsafe.go", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
