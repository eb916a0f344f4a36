package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// measured runs mlx5sim bench, where the machine has what it takes.
func measured(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	c := exec.CommandContext(ctx, program(t, "mlx5sim"), append([]string{"bench"}, args...)...)
	c.Env = append(coreEnvironment(), env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := tied.Run(c)
	if ctx.Err() != nil {
		t.Fatalf("%q hangs:\n%s%s", args, out.Bytes(), errs.Bytes())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// The programs in C and in Go are built, get the completions that they wait for, all of them and no
// others, and ask the device for nothing meanwhile: the bench itself holds it to that, and fails
// otherwise. What comes out has every row. How long it takes is not the test's to say.
func TestBench(t *testing.T) {
	const rows = "^poll/batch=32/.*/ring=256/|^empty|^post|^(error|receive)/batch=32/qps=64"
	out, errs, code := measured(t, nil, "-json", "-n", "2", "-run", rows)
	if code == exitSystem {
		for _, reason := range []string{"install the package", "may not make namespaces", "it takes Linux 5.19", "a sandbox that forbids it"} {
			if strings.Contains(errs, reason) {
				t.Skip("declared skip: ", errs)
			}
		}
	}
	if code != 0 {
		t.Fatalf("exit status %d: %s%s", code, out, errs)
	}
	cpus, err := processors()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, g := range chooseRows(benchRows(), func(r *benchRow) bool { return !(r.Cold && len(cpus) < 2) }) {
		for _, r := range g.rows {
			if regexp.MustCompile(rows).MatchString(r.String()) {
				want = append(want, r.String())
			}
		}
	}
	var got []string
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var r struct {
			Name  string
			NS    []float64
			Plain struct{ N int } `json:"to_plain"`
		}
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Name)
		for _, ns := range r.NS {
			if ns <= 0 || len(r.NS) != 4 || r.Plain.N != 2 {
				t.Errorf("%s: %v ns in %d rounds", r.Name, r.NS, r.Plain.N)
			}
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// Who lacks a compiler, or asks for what there is not, is told.
func TestBenchRefuses(t *testing.T) {
	if _, errs, code := measured(t, []string{"CC=no-such-compiler"}, "-quick"); code != exitSystem || !strings.Contains(errs, "install the packages gcc and libc6-dev") {
		t.Errorf("without a compiler: exit status %d: %s", code, errs)
	}
	if _, errs, code := measured(t, nil, "-run", "nothing"); code != exitUsage || !strings.Contains(errs, `no row matches "nothing"`) {
		t.Errorf("no row: exit status %d: %s", code, errs)
	}
	if out, _, code := measured(t, nil, "client", "none"); code != 1 || !strings.HasPrefix(out, "error ") {
		t.Errorf("a client on no processor: exit status %d: %s", code, out)
	}
}
