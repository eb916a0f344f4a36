package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mutate runs the command in a folder.
func mutate(t *testing.T, dir string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = command(t.Context(), dir, args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestUsage(t *testing.T) {
	dir := writeModule(t, map[string]string{"testdata/mutations/two.patch": mutationPatch("TestOne")})
	for _, c := range []struct {
		args string
		want string
	}{
		{"-j 0", "-j 0: want 1 or more"},
		{"-timeout 1ms", "-timeout 1ms: want a second or more"},
		{"-run (", "-run: error parsing regexp"},
		{"-run nothing", "none of the 1 mutations in testdata/mutations matches"},
		{"two", `"two" is no flag`},
		{"-fast", "there is no flag -fast"},
	} {
		code, out, errs := mutate(t, dir, strings.Fields(c.args)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("mutate %s: status %d, prints %q and %q, want status 2 and %q", c.args, code, out, errs, c.want)
		}
	}
	code, out, errs := mutate(t, dir, "-h")
	if code != 0 || errs != "" || !strings.HasPrefix(out, "usage: mutate") || !strings.Contains(out, "-keep") {
		t.Errorf("mutate -h: status %d, prints %q and %q", code, out, errs)
	}
}

func TestList(t *testing.T) {
	dir := writeModule(t, map[string]string{"testdata/mutations/two.patch": mutationPatch("TestOne", "env: A=b", "hang: yes")})
	code, out, errs := mutate(t, filepath.Join(dir, "tiny"), "-list")
	if want := "two: One is two.\n\ttiny TestOne A=b (hangs)\n"; code != 0 || errs != "" || out != want {
		t.Errorf("mutate -list: status %d, prints %q and %q, want %q", code, out, errs, want)
	}
	code, out, _ = mutate(t, dir, "-list", "-json")
	if want := `{"name":"two","what":"One is two.","package":"tiny","test":"TestOne","env":["A=b"],"hang":true}` + "\n"; code != 0 || out != want {
		t.Errorf("mutate -list -json: status %d, prints %q, want %q", code, out, want)
	}
}

func TestNoModule(t *testing.T) {
	code, _, errs := mutate(t, string(filepath.Separator))
	if code != exitSystem || !strings.Contains(errs, "is in no module") {
		t.Errorf("status %d, prints %q", code, errs)
	}
}

// A patch that says nothing, too much or what nobody understands is no mutation.
func TestBadPatches(t *testing.T) {
	good := mutationPatch("TestOne")
	for _, c := range []struct{ from, to, want string }{
		{"what: One is two.\n", "", "no line what"},
		{"package: tiny\n", "", "no line package"},
		{"test: TestOne\n", "", "no line test"},
		{"test: TestOne", "test: TestOne\ntest: TestTwo", "test: is there twice"},
		{"test: TestOne", "test: Test(", "test: error parsing regexp"},
		{"package: tiny", "package: ../tiny", "package: ../tiny: want a folder of the module"},
		{"package: tiny", "package:", "a line before the diff is key: value"},
		{"package: tiny", "package tiny", "a line before the diff is key: value"},
		{"package: tiny", "packet: tiny", "the keys are what, package, test, env and hang"},
		{"test: TestOne", "test: TestOne\nenv: A", "env: A: want NAME=VALUE"},
		{"test: TestOne", "test: TestOne\nhang: no", "hang: no: want yes"},
		{"--- a/tiny/tiny.go", "--- a/../tiny.go", "want a file of the module"},
		{"--- a/tiny/tiny.go", "--- /dev/null", "want a file of the module"},
		{"+++ b/tiny/tiny.go", "+++ /dev/null", "a bug is a change of a file"},
		{"tiny/tiny.go", "tiny/tiny_test.go", "it changes tiny/tiny_test.go"},
		{"@@ -", "@ -", "it has no diff"},
	} {
		if !strings.Contains(good, c.from) {
			t.Fatalf("no %q in the patch", c.from)
		}
		dir := writeModule(t, map[string]string{"testdata/mutations/bad.patch": strings.ReplaceAll(good, c.from, c.to)})
		code, _, errs := mutate(t, dir, "-list")
		if code != exitUsage || !strings.Contains(errs, "bad.patch: ") || !strings.Contains(errs, c.want) {
			t.Errorf("%q for %q: status %d, prints %q, want %q", c.to, c.from, code, errs, c.want)
		}
	}
	dir := writeModule(t, map[string]string{"testdata/mutations/README": "nothing"})
	if code, _, errs := mutate(t, dir); code != exitUsage || !strings.Contains(errs, "there is no patch in") {
		t.Errorf("without patches: status %d, prints %q", code, errs)
	}
}

// Who ends mutate is left without folders and processes of its.
func TestInterrupt(t *testing.T) {
	dir := writeModule(t, map[string]string{"testdata/mutations/two.patch": mutationPatch("TestHangs")})
	temp, started := t.TempDir(), filepath.Join(t.TempDir(), "started")
	t.Setenv("TMPDIR", temp)
	t.Setenv("TINY_STARTED", started)
	ctx, cancel := context.WithCancelCause(t.Context())
	var stdout, stderr bytes.Buffer
	ended := make(chan int)
	go func() { ended <- command(ctx, dir, nil, &stdout, &stderr) }()
	pid := waitForPID(t, started)
	cancel(os.ErrDeadlineExceeded)
	if code := <-ended; code != exitInterrupted || !strings.Contains(stderr.String(), os.ErrDeadlineExceeded.Error()) || stdout.Len() > 0 {
		t.Errorf("status %d, prints %q and %q", code, stdout.String(), stderr.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the folder of temporary files: %v, %v", left, err)
	}
	if alive(t, pid) {
		t.Errorf("the test's process %d is still there", pid)
	}
}
