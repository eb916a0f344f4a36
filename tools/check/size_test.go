package check

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/ldflags"
)

// build builds a package of the module, or a file, for Linux without cgo and
// returns the binary.
func build(t *testing.T, what string, flags ...string) string {
	t.Helper()
	return buildFor(t, "amd64", what, flags...)
}

// buildFor does so for an architecture.
func buildFor(t *testing.T, arch, what string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), what)...)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", what, err, text)
	}
	return out
}

// static fails unless the binary runs without a dynamic linker.
func static(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a %v segment: it is not static", path, p.Type)
		}
	}
	if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
		t.Errorf("%s needs %v", path, libs)
	}
}

func size(t *testing.T, path string, limit int64) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f MB of at most %.2f", float64(fi.Size())/1e6, float64(limit)/1e6)
	if fi.Size() > limit {
		t.Errorf("%d bytes, more than %d", fi.Size(), limit)
	}
}

// idleStart fails unless the module's packages do little when verbs starts, which they do
// whatever it is to do: they make patterns and tables when they use them.
func idleStart(t *testing.T, verbs string) {
	t.Helper()
	cmd := exec.Command(verbs, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const most = 4096 // small tables: the model's, of its methods, is the largest
	began := regexp.MustCompile(`(?m)^init (main|github\.com/goverbs/goverbs/\S+) @.* clock, (\d+) bytes, \d+ allocs$`).FindAllSubmatch(out, -1)
	for _, m := range began {
		if n, err := strconv.Atoi(string(m[2])); err != nil || n > most {
			t.Errorf("package %s takes %s bytes of memory at each start, more than %d: GODEBUG=inittrace=1 verbs version shows it", m[1], m[2], most)
		}
	}
	if len(began) < 5 {
		t.Errorf("%d packages begin: what says what they take?\n%s", len(began), out)
	}
}

func TestVerbsIsStatic(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			verbs := buildFor(t, arch, "./tools/verbs", "-ldflags="+ldflags.Program)
			static(t, verbs)
			size(t, verbs, 12e6)
			if runtime.GOOS == "linux" && runtime.GOARCH == arch {
				idleStart(t, verbs)
			}
		})
	}
}

// A program that imports only uverbs and poll stays small. Without -trimpath the size
// would depend on where the tree and Go are.
func TestSmallProgram(t *testing.T) {
	program := build(t, "./tools/check/testdata/small/main.go", "-trimpath", "-ldflags=-s -w")
	static(t, program)
	size(t, program, 3e6)
	// What a program does not use, it does not carry: it waits with poll.Event.
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const poll = "github.com/goverbs/goverbs/poll."
	if !bytes.Contains(text, []byte(poll+"(*event)")) {
		t.Errorf("no %s(*event) in the binary: what says what it contains?", poll)
	}
	for _, name := range []string{"(*adaptive)", "(*busy)", "(*forecast)", "(*Waiter).SetStrategy", "(*Waiter).takeTurn", "(*Waiter).Stats", "(*Group)", "NewGroup"} {
		if bytes.Contains(text, []byte(poll+name)) {
			t.Errorf("the binary contains %s%s, which the program does not use", poll, name)
		}
	}
}
