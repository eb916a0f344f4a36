package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/tools/verbs/internal/doctor"
)

// runDoctor runs the command on a machine without anything.
func runDoctor(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	n := &doctor.Node{Root: fstest.MapFS{"proc/17/status": {}}, System: "plan9", Release: "4"}
	code = examine(ctx, n, args, &out, &errs)
	return code, out.String(), errs.String()
}

// Wrong flags are answered with what is right.
func TestDoctorUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-x", "there is no flag -x"},
		{"rxe0", `unexpected argument "rxe0"`},
		{"-memlock lots", "a size is a number of bytes, or with a unit: 65536, 512M, 64G"},
		{"-memlock 9000000T", "a size is a number"},
		{"-memlock -1", "a size is a number"},
		{"-memlock M", "a size is a number"},
		{"-memlock 0", "-memlock 0: leave it out"},
		{"-pollers -1", "the number of polling goroutines is 1 to 65536"},
		{"-pollers 0", "-pollers 0: the number of polling goroutines is 1 to 65536; leave it out"},
		{"-pid -7", "a process has a number of 1 to 4194304"},
		{"-pid 0", "-pid 0: a process has a number of 1 to 4194304; leave it out for this one"},
		{"-pid x", `invalid value "x"`},
		{"-timeout 0s", "-timeout 0s: it takes some time to look"},
		{"-timeout soon", `invalid value "soon"`},
		{"-timeout 5", "it is a time with its unit, such as 500ms, 10s or 2m"},
		{"-d sim1", "that device is in software"},
		{"-skip fork,sleep", `"sleep" is no check: there are system, modules, `},
		{"-skip fork,", `"" is no check`},
		{"-d ../..", `"../.." cannot be the name of a device`},
	} {
		code, out, errs := runDoctor(t.Context(), strings.Fields(c.args)...)
		if code != 2 || out != "" || !strings.Contains(errs, c.want) || !strings.HasSuffix(errs, "verbs doctor -h lists the flags.\n") {
			t.Errorf("%s: status %d, stdout %q, stderr %q, which lacks %q", c.args, code, out, errs, c.want)
		}
	}
	code, out, errs := runDoctor(t.Context(), "-h")
	if code != 0 || errs != "" || !strings.Contains(out, "  -memlock size\n") || !strings.Contains(out, "verbs doctor -json") {
		t.Errorf("-h: status %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestByteSize(t *testing.T) {
	for s, want := range map[string]byteSize{"0": 0, "65536": 65536, "4k": 4096, "4K": 4096, "512M": 512 << 20, "64G": 64 << 30, "64GiB": 64 << 30, "2T": 2 << 40, "10B": 10} {
		var b byteSize
		if err := b.Set(s); err != nil || b != want {
			t.Errorf("%q: %d, %v; want %d", s, b, err, want)
		}
	}
}

// What was found decides the exit status, and goes to stdout.
func TestDoctorReports(t *testing.T) {
	code, out, errs := runDoctor(t.Context())
	if code != doctor.StatusFault || errs != "" || !strings.HasPrefix(out, "fault: RDMA verbs need Linux\n    seen  this is plan9\n") || !strings.Contains(out, "\n1 fault; ") {
		t.Errorf("status %d, stdout %q, stderr %q", code, out, errs)
	}
	code, out, errs = runDoctor(t.Context(), "-json")
	var r struct {
		Worst    string
		Status   int
		Findings []doctor.Finding
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if code != 3 || errs != "" || r.Worst != "fault" || r.Status != 3 || len(r.Findings) != 1 || r.Findings[0].Check != "system" {
		t.Errorf("status %d, stderr %q, %+v", code, errs, r)
	}
}

// Checks that are left out find nothing, and are not counted.
func TestDoctorSkip(t *testing.T) {
	code, out, errs := runDoctor(t.Context(), "-skip", "system,devices", "-skip", "memlock,cpu")
	if code != doctor.StatusHealthy || errs != "" || !strings.HasPrefix(out, fmt.Sprintf("nothing found; %d checks", len(doctor.Checks())-4)) {
		t.Errorf("status %d, stdout %q, stderr %q", code, out, errs)
	}
}

// An interrupted examination prints what it has, and fails.
func TestDoctorInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	code, _, errs := runDoctor(ctx)
	if code == 0 || errs != "verbs doctor: interrupted\n" {
		t.Errorf("status %d, stderr %q", code, errs)
	}
}
