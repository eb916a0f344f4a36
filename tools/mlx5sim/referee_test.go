package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestRefereeUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		code   int
		out    string
		stdout bool
	}{
		{[]string{"-h"}, 0, "-pyverbs", true},
		{[]string{"-long"}, 2, "-long", false},
		{[]string{"rc"}, 2, `"rc" is no flag`, false},
		{[]string{"-run", "("}, 2, "missing closing", false},
		{[]string{"-pyverbs", "-short"}, 2, "choose modules with -run", false},
		{[]string{"-pyverbs", "-verbs", "x"}, 2, "does not play with it", false},
		{[]string{"-verbs", filepath.Join(t.TempDir(), "none")}, 2, "-verbs", false},
	} {
		var stdout, stderr bytes.Buffer
		code := command(append([]string{"referee"}, c.args...), nil, &stdout, &stderr)
		said, other := &stderr, &stdout
		if c.stdout {
			said, other = other, said
		}
		if code != c.code || !strings.Contains(said.String(), c.out) || other.Len() > 0 {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestRefereeCasesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	short := 0
	for _, c := range refereeCases() {
		name := c.name()
		if seen[name] {
			t.Errorf("twice: %s", name)
		}
		seen[name] = true
		if strings.ContainsAny(name, "\n\t") || strings.Contains(name, "PORT") || strings.Contains(name, "localhost") {
			t.Errorf("name %q", name)
		}
		if c.short {
			short++
		}
		args, err := c.arguments("20001", func(name string) ([]string, error) { return []string{"/bin/" + name}, nil })
		if err != nil {
			t.Fatal(err)
		}
		if o, err := parse(args, nil); err != nil || len(o.programs) != len(c.lines) {
			t.Errorf("%s: mlx5sim run refuses %q: %v", name, args, err)
		}
	}
	if short == 0 || short == len(seen) {
		t.Errorf("%d of %d cases are short", short, len(seen))
	}
	for _, want := range []string{
		"devinfo, ib, dynamic: ibv_devinfo -v",
		"rc, ib, dynamic: ibv_rc_pingpong -e against ibv_rc_pingpong -e",
		"rc, eth, static: verbs pingpong -e against verbs pingpong -e",
		"perftest, eth, dynamic, 2 devices: ib_write_bw -n 200 -x 1 against ib_write_bw -n 200 -x 1",
	} {
		if !seen[want] {
			t.Errorf("no case %q", want)
		}
	}
}

// someCases are for a referee that plays nothing.
func someCases() []refereeCase {
	a, b := pair("rc", "", "a -p PORT", "a -p PORT", "played"), pair("uc", "-uar static", "b -p PORT", "verbs -p PORT", "played", "#")
	a.short = true
	return []refereeCase{a, b}
}

func TestRefereeStatus(t *testing.T) {
	well := outcome{out: "played played #"}
	for _, c := range []struct {
		name    string
		short   bool
		only    string
		missing string // a program
		first   []outcome
		code    int
		err     string
		out     []string
	}{
		{name: "all pass", out: []string{"s rc, ib, dynamic: a against a\n", "s uc, ib, static: b against verbs\n", "\n2 passed, 0 failed ("}},
		{name: "short", short: true, out: []string{"1 passed, 0 failed ("}},
		{name: "chosen", only: "static", out: []string{"1 passed, 0 failed ("}},
		{name: "none chosen", only: "token ring", code: 2, err: `no case matches "token ring"`, out: []string{"0 passed, 0 failed ("}},
		{name: "one is not there", missing: "verbs", out: []string{"skip       uc, ib, static: b against verbs: there is no verbs\n", "1 passed, 0 failed, 1 skipped for want of verbs ("}},
		{name: "none is there", missing: "a", short: true, code: 1, err: "nothing could be played", out: []string{"0 passed, 0 failed, 1 skipped for want of a ("}},
		{name: "fails", first: []outcome{{code: 7, err: "dropped my card\n"}}, code: 1, out: []string{"rc, ib, dynamic: a against a: exit status 7\n     mlx5sim run ", "\n     | dropped my card\n", "1 passed, 1 failed ("}},
		{name: "only one plays", first: []outcome{{out: "played"}}, code: 1, out: []string{`"played" is printed 1 time, want 2`, "1 passed, 1 failed ("}},
		{name: "no result", first: []outcome{well, {out: "played played"}}, code: 1, out: []string{`"#" is printed 0 times, want 1`}},
		{name: "hangs", first: []outcome{{code: -1, hung: true}}, code: 1, out: []string{"hangs: ended after 5m0s", "1 passed, 1 failed ("}},
		{name: "no clock", first: []outcome{{code: 1, err: "Can't produce a report"}}, out: []string{"2 passed, 0 failed ("}},
		{name: "system", first: []outcome{{broken: errors.New("no processes")}}, code: exitSystem, err: "no processes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout bytes.Buffer
			find := func(name string) ([]string, error) {
				if name == c.missing {
					return nil, &missingError{name, "there is no " + name}
				}
				return []string{"/bin/loader", "/bin/" + name}, nil
			}
			r := &referee{short: c.short, stdout: &stdout, find: find, verbs: func() (string, error) {
				begin, err := find("verbs")
				return strings.Join(begin, " "), err
			}}
			if c.only != "" {
				r.only = regexp.MustCompile(c.only)
			}
			r.play = func(string, []string) outcome {
				if len(c.first) == 0 {
					return well
				}
				o := c.first[0]
				c.first = c.first[1:]
				return o
			}
			code, err := r.cases(someCases())
			if code != c.code || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("status %d, error %v; want %d, %q", code, err, c.code, c.err)
			}
			for _, w := range c.out {
				if !strings.Contains(stdout.String(), w) {
					t.Errorf("no %q in\n%s", w, stdout.String())
				}
			}
		})
	}
}

// A machine on which perftest never finds a clock is told so.
func TestRefereeGivesUp(t *testing.T) {
	plays := 0
	var stdout bytes.Buffer
	r := &referee{stdout: &stdout, find: func(name string) ([]string, error) { return []string{name}, nil }, play: func(string, []string) outcome {
		plays++
		return outcome{code: 1, err: "Can't produce a report"}
	}}
	if code, err := r.cases(someCases()[:1]); code != 1 || err != nil || plays != steadyTries {
		t.Errorf("status %d, error %v, %d tries:\n%s", code, err, plays, stdout.String())
	}
}

func TestCopySuite(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "tests")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("packed")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"run_tests.py": "plain", "test_cq.py.gz": packed.String(), "README": "not it"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copySuite(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"run_tests.py": "plain", "test_cq.py": "packed"} {
		if b, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if e, err := os.ReadDir(to); err != nil || len(e) != 2 {
		t.Errorf("%v, %v", e, err)
	}
	if err := os.WriteFile(filepath.Join(from, "test_qp.py.gz"), []byte("not packed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copySuite(from, to+"2"); err == nil || !strings.Contains(err.Error(), "test_qp.py.gz") {
		t.Errorf("a file that is not packed: %v", err)
	}
}

// Where the suite is not, a sentence says what to install.
func TestNoSuite(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(coreVar, dir)
	if _, err := findSuite(); err == nil || !strings.Contains(err.Error(), "install python3-pyverbs") {
		t.Errorf("%v", err)
	}
	suite := filepath.Join(dir, suiteFolders[1])
	if err := os.MkdirAll(suite, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(suite, "run_tests.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := findSuite(); err != nil || got != suite {
		t.Errorf("%q, %v", got, err)
	}
}

// Programs of an unpacked folder run with its C library if it has one, and then what else
// is started must not.
func TestFindToolInFolder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(coreVar, dir)
	t.Setenv("LD_LIBRARY_PATH", "/of/the/tester")
	const lib = "usr/lib/x86_64-linux-gnu"
	for _, folder := range []string{"usr/bin", lib + "/libibverbs"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ibv_devinfo", "python3"} {
		if err := os.WriteFile(filepath.Join(dir, "usr/bin", name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	last := func(name string) (value string) {
		for _, v := range toolEnvironment() {
			if v, is := strings.CutPrefix(v, name+"="); is {
				value = v
			}
		}
		return value
	}
	path, drivers := filepath.Join(dir, "usr/bin/ibv_devinfo"), filepath.Join(dir, lib, "libibverbs")
	libraries := drivers + ":" + filepath.Join(dir, lib)
	if got, want := last("IBV_DRIVERS"), filepath.Join(drivers, "libmlx5"); got != want {
		t.Errorf("the driver is %q, want %q", got, want)
	}
	if got, err := findTool("ibv_devinfo"); err != nil || !slices.Equal(got, []string{path}) {
		t.Errorf("without a loader: %q, %v", got, err)
	}
	if got := last("LD_LIBRARY_PATH"); got != libraries {
		t.Errorf("without a loader: libraries in %q, want %q", got, libraries)
	}
	if got := suitePython(); !slices.Equal(got, []string{python}) || last("PYTHONHOME") != "" {
		t.Errorf("without a loader: Python %q, %q", got, last("PYTHONHOME"))
	}
	loader := filepath.Join(dir, lib, "ld-linux-x86-64.so.2")
	if err := os.WriteFile(loader, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	begin := []string{loader, "--library-path", libraries}
	if got, err := findTool("ibv_devinfo"); err != nil || !slices.Equal(got, append(begin, path)) {
		t.Errorf("with a loader: %q, %v", got, err)
	}
	if got := last("LD_LIBRARY_PATH"); got != "/of/the/tester" {
		t.Errorf("with a loader: libraries in %q", got)
	}
	if got := suitePython(); !slices.Equal(got, append(begin, filepath.Join(dir, "usr/bin/python3"))) || last("PYTHONHOME") != filepath.Join(dir, "usr") {
		t.Errorf("with a loader: Python %q, %q", got, last("PYTHONHOME"))
	}
	var absent *missingError
	if _, err := findTool("ib_send_bw"); !errors.As(err, &absent) {
		t.Errorf("a program that is not there: %v", err)
	}
}
