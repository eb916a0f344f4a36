package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, 0, "usage: release"},
		{nil, 2, "-o is missing"},
		{[]string{"-o", "x", "-arch", "mips"}, 2, "there are amd64, arm64"},
		{[]string{"-o", "x", "-arch", "arm64,arm64"}, 2, "each once"},
		{[]string{"-o", "release_test.go"}, 1, "nothing can be written there"},
		{[]string{"-o", "x", "more"}, 2, `unexpected argument "more"`},
		{[]string{"-nonsense"}, 2, "-nonsense"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, &out, &errs)
		if text := out.String() + errs.String(); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%v: status %d, %q", c.args, code, text)
		}
	}
}

func TestBill(t *testing.T) {
	a := artifact{
		name: "verbs-linux-amd64", arch: "amd64", id: identity{"v1.2.3+dirty", "abcdef"}, binary: []byte("program"),
		info: &debug.BuildInfo{
			GoVersion: "go1.26.8", Path: "example.org/m/tools/verbs", Main: debug.Module{Path: "example.org/m", Version: "(devel)"},
			Deps: []*debug.Module{
				{Path: "example.org/z", Version: "v1.0.0", Sum: "h1:zzz="},
				{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/a", Version: "v2.0.0", Sum: "h1:aaa="}},
			},
			Settings: []debug.BuildSetting{{Key: "GOARCH", Value: "amd64"}},
		},
	}
	text, err := a.bill()
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := a.bill(); !bytes.Equal(text, again) {
		t.Error("two bills of one binary differ")
	}
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range b.Components {
		names = append(names, c.PURL)
	}
	const want = "pkg:golang/example.org/a@v2.0.0 pkg:golang/example.org/z@v1.0.0 pkg:golang/std@1.26.8"
	if got := strings.Join(names, " "); got != want || strings.Join(b.Dependencies[0].DependsOn, " ") != want {
		t.Errorf("components %s, dependencies %v", got, b.Dependencies)
	}
	main := b.Metadata.Component
	if main.PURL != "pkg:golang/example.org/m@v1.2.3%2Bdirty#tools/verbs" || main.Hashes[0].Content != a.sum() || b.Dependencies[0].Ref != main.Ref {
		t.Errorf("%+v", main)
	}
	if p := b.Components[0].Properties; len(p) != 1 || p[0] != (property{"go:h1", "h1:aaa="}) {
		t.Errorf("%+v", p)
	}
}

// git runs git in a repository that asks for nothing of the user's.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestIdentity(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("declared skip: no git here")
	}
	dir := t.TempDir()
	made := filepath.Join(dir, "made*")
	if id, note := identify(t.Context(), dir, made); id != (identity{Version: "(devel)"}) || note == "" {
		t.Errorf("without a repository: %+v, %q", id, note)
	}
	git(t, dir, "init", "-q")
	sub := filepath.Join(dir, "sub")
	file := filepath.Join(sub, "file")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "one")
	pseudo := regexp.MustCompile(`^v0\.0\.0-\d{14}-[0-9a-f]{12}$`)
	id, note := identify(t.Context(), dir, made)
	if !pseudo.MatchString(id.Version) || len(id.Commit) != 40 || note != "" {
		t.Errorf("%+v, %q", id, note)
	}
	git(t, dir, "tag", "v1.2.3")
	// What was made is no change.
	if err := errors.Join(os.Mkdir(made, 0o755), os.WriteFile(filepath.Join(made, "verbs"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if id, note := identify(t.Context(), dir, made); id.Version != "v1.2.3" || note != "" {
		t.Errorf("%+v, %q", id, note)
	}
	if err := os.WriteFile(file, []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if id, note := identify(t.Context(), dir, made); id.Version != "v1.2.3+dirty" || !strings.Contains(note, "sub/file") {
		t.Errorf("%+v, %q", id, note)
	}
	if id, note := identify(t.Context(), sub, made); id != (identity{Version: "(devel)"}) || note == "" {
		t.Errorf("in somebody's repository: %+v, %q", id, note)
	}
}

// Of go's settings, those change nothing of the binaries that the user wrote into a file.
func TestUserSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("GOPRIVATE=example.org\nGOAMD64=v3\nGOEXPERIMENT=arenas\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", file)
	t.Setenv("GOPRIVATE", "")
	t.Setenv("GOEXPERIMENT", "")
	settings, err := userSettings(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "env", "GOPRIVATE", "GOAMD64", "GOEXPERIMENT")
	cmd.Env = append(append(os.Environ(), environment("amd64")...), settings...)
	out, err := cmd.Output()
	if err != nil || string(out) != "example.org\nv1\n\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// What is delivered is whole: sums of all files, and nothing else.
func TestDeliver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	a := artifact{name: "verbs-linux-amd64", id: identity{Version: "v1.2.3"}, binary: []byte("program"), info: &debug.BuildInfo{GoVersion: "go1.26.8"}}
	for range 2 { // the second time over the first
		if err := deliver(dir, []artifact{a}); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || sha256Hex(content) != sum {
			t.Errorf("%s: %v, or not %s", name, err, sum)
		}
		n++
	}
	files, err := os.ReadDir(dir)
	if err != nil || n != 2 || len(files) != 3 {
		t.Errorf("%d sums of %v, %v", n, files, err)
	}
	if st, err := os.Stat(filepath.Join(dir, a.name)); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}
