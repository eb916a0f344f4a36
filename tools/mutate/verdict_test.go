package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tinyModule is the source that the tests of this file put bugs into.
var tinyModule = map[string]string{
	"go.mod": "module tiny\n\ngo 1.26.0\n",
	"tiny/tiny.go": `package tiny

func One() int {
	return 1
}

func two() int {
	return 2
}
`,
	"tiny/tiny_test.go": `package tiny

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestOne(t *testing.T) {
	if One() != 1 {
		t.Errorf("One is %d", One())
	}
}

func TestParts(t *testing.T) {
	t.Log("a remark")
	t.Run("one", TestOne)
	t.Run("two", func(t *testing.T) { t.Log(two()) })
}

func TestCrashes(t *testing.T) {
	if One() != 1 {
		done := make(chan bool)
		go func() { _ = []int{1}[One()] }()
		<-done
	}
}

func TestOther(t *testing.T) {}

func TestSkips(t *testing.T) {
	if One() != 1 {
		t.Skip("today")
	}
}

func TestHangs(t *testing.T) {
	if One() != 1 {
		_ = os.WriteFile(os.Getenv("TINY_STARTED"), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o666)
		for {
			time.Sleep(time.Hour)
		}
	}
}

func TestEnvironment(t *testing.T) {
	if One() != 1 && os.Getenv("TINY") == "yes" && os.Getenv("GOVERBS_ROUNDS") == "" {
		t.Error("One is wrong")
	}
}

func TestExits(t *testing.T) {
	if One() != 1 {
		os.Exit(7)
	}
}

func TestFails(t *testing.T) { t.Error("always") }

func TestNever(t *testing.T) { t.Skip("never") }
`,
	"empty/empty.go": "package empty\n",
	// Another module's idea of what is no source of it.
	".git/HEAD": "nonsense",
}

// mutationPatch is a patch of the tiny module that is for a test.
func mutationPatch(test string, more ...string) string {
	return "what: One is two.\npackage: tiny\ntest: " + test + "\n" + strings.Join(append(more, ""), "\n") + `
--- a/tiny/tiny.go
+++ b/tiny/tiny.go
@@ -3,3 +3,3 @@
 func One() int {
-	return 1
+	return 2
 }
`
}

// writeModule makes a folder of the tiny module and some more files.
func writeModule(t *testing.T, more map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, files := range []map[string]string{tinyModule, more} {
		for name, text := range files {
			name = filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// waitForPID waits for a file with the number of a process.
func waitForPID(t *testing.T, name string) int {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(name)
		if line, ok := strings.CutSuffix(string(text), "\n"); err == nil && ok {
			pid, err := strconv.Atoi(line)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("the test was not started")
	return 0
}

// alive says whether a process is there.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	if runtime.GOOS == "windows" {
		return false // it finds no process that has ended
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// Every verdict, in one run: what was caught, and every way not to be.
func TestVerdicts(t *testing.T) {
	patches := map[string]string{
		"compile":     strings.ReplaceAll(mutationPatch("TestOne"), "+\treturn 2", "+\treturn two"),
		"apply":       strings.ReplaceAll(mutationPatch("TestOne"), "-\treturn 1", "-\treturn 3"),
		"missing":     strings.ReplaceAll(mutationPatch("TestOne"), "tiny/tiny.go", "tiny/gone.go"),
		"caught":      mutationPatch("TestOne"),
		"parts":       mutationPatch("^TestParts$/^one$"),
		"crash":       mutationPatch("TestCrashes"),
		"environment": mutationPatch("TestEnvironment", "env: TINY=yes"),
		"without":     mutationPatch("TestEnvironment"),
		"survived":    mutationPatch("TestOther"),
		"skipped":     mutationPatch("TestSkips"),
		"never":       mutationPatch("TestNever"),
		"unsound":     mutationPatch("TestFails"),
		"none":        mutationPatch("TestTwo"),
		"untested":    strings.ReplaceAll(mutationPatch("TestOne"), "package: tiny", "package: empty"),
		"nowhere":     strings.ReplaceAll(mutationPatch("TestOne"), "package: tiny", "package: gone"),
		"exit":        mutationPatch("TestExits"),
	}
	files := map[string]string{}
	for name, text := range patches {
		files["testdata/mutations/"+name+".patch"] = text
	}
	dir := writeModule(t, files)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("GOVERBS_ROUNDS", "1000000")
	code, out, errs := mutate(t, dir)
	if code != exitFailed || errs != "" || !strings.HasSuffix(out, "\n4 passed, 12 failed\n") {
		t.Errorf("status %d, prints %q and\n%s", code, errs, out)
	}
	for name, want := range map[string]string{
		"compile":     "does not compile: tiny/tiny.go:4:9: cannot use two",
		"apply":       "does not apply: mend the patch",
		"missing":     "does not apply: mend the patch",
		"caught":      "caught: TestOne: tiny_test.go:12: One is 2",
		"parts":       "caught: TestParts: tiny_test.go:12: One is 2",
		"crash":       "caught: TestCrashes: panic: runtime error: index out of range [2] with length 1",
		"environment": "caught: TestEnvironment: ",
		"without":     "survived: TestEnvironment passes: One is two.",
		"survived":    "survived: TestOther passes: One is two.",
		"skipped":     "skipped: TestSkips, which proves nothing",
		"never":       "skipped: TestNever, which proves nothing",
		"unsound":     "fails without the bug: TestFails: tiny_test.go:",
		"none":        "no such test: package tiny has none that matches TestTwo",
		"untested":    "no such test: package empty has no test files",
		"nowhere":     "fails without the bug: does not compile: ",
		"exit":        "broken off: exit status 7",
	} {
		state := "FAILED"
		if strings.HasPrefix(want, "caught: ") {
			state = "ok"
		}
		if line := lineOf(out, name); !strings.HasPrefix(line, state) || !strings.Contains(line, "): "+want) {
			t.Errorf("%q, want %s: %s", line, state, want)
		}
	}
	// The hunk that does not apply.
	if !strings.Contains(out, "\tfunc One() int {\n\t\treturn 3\n") {
		t.Errorf("no hunk in\n%s", out)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the folder of temporary files: %v, %v", left, err)
	}
}

// lineOf is the line of a mutation.
func lineOf(out, name string) string {
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == name {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// A test that does not end has caught a bug only where that was said before.
func TestHang(t *testing.T) {
	dir := writeModule(t, map[string]string{
		"testdata/mutations/said.patch":   mutationPatch("TestHangs", "hang: yes"),
		"testdata/mutations/unsaid.patch": mutationPatch("TestHangs"),
	})
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	code, out, errs := mutate(t, dir, "-timeout=1s", "-json", "-keep")
	if code != exitFailed {
		t.Errorf("status %d, prints %q and\n%s", code, errs, out)
	}
	verdicts := map[string]row{}
	var counts struct{ Passed, Failed int }
	for line := range strings.Lines(out) {
		var r row
		var err error
		if strings.HasPrefix(line, `{"passed":`) {
			err = json.Unmarshal([]byte(line), &counts)
		} else {
			err = json.Unmarshal([]byte(line), &r)
			verdicts[r.Name] = r
		}
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if r := verdicts["said"]; r.Verdict != caught || !*r.Passed {
		t.Errorf("a hang that was announced: %+v", r)
	}
	if r := verdicts["unsaid"]; r.Verdict != timedOut || *r.Passed || !strings.Contains(r.Detail, "time.Sleep") {
		t.Errorf("a hang that was not announced: %+v", r)
	}
	if counts.Passed != 1 || counts.Failed != 1 {
		t.Errorf("counts %+v", counts)
	}
	// The copy that was to be kept is the one that was not caught.
	_, kept, ok := strings.Cut(errs, "mutate: what was not caught is in ")
	kept = strings.TrimSpace(kept)
	entries, err := os.ReadDir(kept)
	if !ok || err != nil || len(entries) != 1 || entries[0].Name() != "unsaid" {
		t.Fatalf("kept %v, %v: %q", entries, err, errs)
	}
	text, err := os.ReadFile(filepath.Join(kept, "unsaid", "tiny", "tiny.go"))
	if err != nil || strings.Count(string(text), "return 2") != 2 {
		t.Errorf("the copy does not have the bug: %v\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(kept, "unsaid", ".git")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy has a .git: %v", err)
	}
}
