package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// refereed runs mlx5sim referee to its end. It skips the test where the machine does not
// let mlx5sim run anything.
func refereed(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	if out, code := simulated(t, me(), "--", "true"); code != 0 {
		t.Fatalf("status %d: %s", code, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*refereeLimit)
	defer cancel()
	c := exec.CommandContext(ctx, program(t, "mlx5sim"), append([]string{"referee"}, args...)...)
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := tied.Run(c)
	if ctx.Err() != nil || c.ProcessState == nil {
		t.Fatalf("%q: %v:\n%s", args, err, b.Bytes())
	}
	return b.String(), c.ProcessState.ExitCode()
}

// What hangs is ended, and so is all when the referee is to end.
func TestRefereeHangs(t *testing.T) {
	if out, code := simulated(t, me(), "--", "true"); code != 0 { // skips if need be
		t.Fatalf("status %d: %s", code, out)
	}
	forever := []string{"--", "sleep", "1000000"}
	if o := playAlone(t.Context(), 50*time.Millisecond, program(t, "mlx5sim"), "", forever); !o.hung || o.broken != nil || o.code != -1 {
		t.Errorf("hangs: %+v", o)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if o := playAlone(ctx, refereeLimit, program(t, "mlx5sim"), "", forever); o.broken == nil || o.broken.Error() != "enough" {
		t.Errorf("ended: %+v", o)
	}
}

// Two cases of the referee, as who types them sees them.
func TestReferee(t *testing.T) {
	for _, name := range []string{"ibv_devinfo", "ibv_rc_pingpong"} {
		tool(t, name)
	}
	out, code := refereed(t, "-run", "^devinfo, ib, dynamic|^rc, ib, dynamic: ibv_rc_pingpong -n .* against verbs.*-c$")
	want := regexp.MustCompile(`^ok +\d+\.\d\ds devinfo, ib, dynamic: ibv_devinfo -v
ok +\d+\.\d\ds rc, ib, dynamic: ibv_rc_pingpong -n 20 -c against verbs pingpong -n 20 -c
2 passed, 0 failed \(\d+ s\)
$`)
	if code != 0 || !want.MatchString(out) {
		t.Errorf("status %d:\n%s", code, out)
	}
	// What is not chosen well is said, and is no success.
	if out, code := refereed(t, "-run", "token ring"); code != exitUsage {
		t.Errorf("nothing is chosen: status %d:\n%s", code, out)
	}
}

// A module of rdma-core's own suite.
func TestRefereePyverbs(t *testing.T) {
	if _, err := findSuite(); err != nil {
		t.Skip("declared skip: ", err)
	}
	if err := importable(); err != nil {
		t.Skip("declared skip: ", err)
	}
	out, code := refereed(t, "-pyverbs", "-run", "^(addr|pd)$")
	if code != 0 || !regexp.MustCompile(`(?m)^[1-9]\d* run, [1-9]\d* passed, 0 failed, \d+ skipped$`).MatchString(out) {
		t.Errorf("status %d:\n%s", code, out)
	}
}
