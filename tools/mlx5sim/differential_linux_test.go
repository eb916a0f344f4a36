package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// differed runs mlx5sim differential to its end. It skips the test where there is no compiler or no
// header, or the machine lets nobody run anything.
func differed(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var missing *missingError
	if _, err := buildDifferential(t.Context(), t.TempDir()); errors.As(err, &missing) {
		t.Skip("declared skip: ", missing)
	} else if err != nil {
		t.Fatal(err)
	}
	if out, code := simulated(t, me(), "-nomount", "--", "true"); code != 0 { // skips if need be
		t.Fatalf("status %d: %s", code, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	c := exec.CommandContext(ctx, program(t, "mlx5sim"), append([]string{"differential"}, args...)...)
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := tied.Run(c)
	if ctx.Err() != nil || c.ProcessState == nil {
		t.Fatalf("%q: %v:\n%s", args, err, b.Bytes())
	}
	return b.String(), c.ProcessState.ExitCode()
}

// libmlx5 and goverbs do the same, but for what the table allows, of which each occurs.
func TestDifferential(t *testing.T) {
	out, code := differed(t, "-n", "1200", "-seeds", "2")
	if code != 0 {
		t.Fatalf("status %d:\n%s", code, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := regexp.MustCompile(`^(\d+) requests over 2 seeds in \d+ s, only the named differences: (.*)$`)
	m := want.FindStringSubmatch(lines[len(lines)-1])
	if m == nil || len(lines) != 3 {
		t.Fatalf("it closes with %q", out)
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < 2400 {
		t.Errorf("%s requests, want 2400 or more", m[1])
	}
	for _, d := range differences {
		if !strings.Contains(m[2], d.name+" (") {
			t.Errorf("the difference %q is allowed and does not occur: %s", d.name, m[2])
		}
	}
	t.Log(out)
}

// What programs are to read is JSON.
func TestDifferentialJSON(t *testing.T) {
	out, code := differed(t, "-n", "50", "-seed", "7", "-json")
	var seed struct{ Seed, Requests int }
	var total struct{ Requests, Seeds int }
	first, second, _ := strings.Cut(out, "\n")
	if err := errors.Join(json.Unmarshal([]byte(first), &seed), json.Unmarshal([]byte(second), &total)); err != nil || code != 0 {
		t.Fatalf("status %d, %v:\n%s", code, err, out)
	}
	if seed.Seed != 7 || seed.Requests < 50 || total.Requests != seed.Requests || total.Seeds != 1 {
		t.Errorf("%s", out)
	}
}
