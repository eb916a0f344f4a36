package planted

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/doctor"
)

// patience is how long anything may take that the kernel does on its own time.
const patience = 5 * time.Minute

// A fault is one that is planted in the guest.
type fault struct {
	name string
	// plant does it, and returns what undoes it.
	plant func(t *testing.T) (undo func(t *testing.T))
	// args are the flags of verbs doctor, and as what it runs; the same
	// before and after.
	args []string
	as   func(cmd *exec.Cmd)

	check    string
	severity doctor.Severity
	object   string
	words    []string // of what the finding says
}

// guest tells which kernel this guest has, and skips on machines.
func guest(t *testing.T) string {
	t.Helper()
	kernel := os.Getenv("GOVERBS_GUEST")
	if kernel == "" || os.Getuid() != 0 {
		t.Skip("declared skip: it takes the machine apart; run in the guest: rxevm exec")
	}
	return kernel
}

// doctored runs verbs doctor and returns its report and exit status.
func doctored(t *testing.T, args []string, as func(cmd *exec.Cmd)) (*doctor.Report, int) {
	t.Helper()
	program, err := exec.LookPath("verbs")
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append([]string{"doctor", "-json", "-timeout", "10m"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if as != nil {
		as(cmd)
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	var r doctor.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || errOut.Len() > 0 {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, out.Bytes(), errOut.Bytes())
	}
	return &r, cmd.ProcessState.ExitCode()
}

// silent wants nothing to be found.
func silent(t *testing.T, f *fault) {
	t.Helper()
	r, status := doctored(t, f.args, f.as)
	if status != doctor.StatusHealthy || len(r.Findings) > 0 {
		t.Errorf("without a fault: status %d, findings %+v", status, r.Findings)
	}
	for _, l := range r.NotLooked {
		t.Errorf("without a fault: not looked at: %+v", l)
	}
}

// found wants the fault to be found, and nothing else.
func (f *fault) found(t *testing.T) {
	t.Helper()
	r, status := doctored(t, f.args, f.as)
	if want := map[doctor.Severity]int{doctor.Note: doctor.StatusHealthy, doctor.Warning: doctor.StatusWarning, doctor.Fault: doctor.StatusFault}[f.severity]; status != want {
		t.Errorf("status %d, want %d", status, want)
	}
	if len(r.Findings) == 1 {
		g := r.Findings[0]
		t.Logf("%v: %s\n    seen  %s\n    mend  %s", g.Severity, g.What, g.Seen, strings.ReplaceAll(g.Mend, "\n", "\n          "))
		ok := g.Check == f.check && g.Severity == f.severity && g.Object == f.object && g.Seen != "" && g.Mend != ""
		for _, w := range f.words {
			ok = ok && strings.Contains(g.What+"\n"+g.Seen+"\n"+g.Mend, w)
		}
		if ok {
			return
		}
	}
	t.Errorf("want one finding of %s, a %v on %q, that says %q; findings:", f.check, f.severity, f.object, f.words)
	for _, g := range r.Findings {
		t.Errorf("%+v", g)
	}
	for _, h := range r.HeldBack {
		t.Logf("held back: %+v", h)
	}
	for _, l := range r.NotLooked {
		t.Logf("not looked at: %+v", l)
	}
}

// TestGuestDoctor plants every fault.
func TestGuestDoctor(t *testing.T) {
	kernel := guest(t)
	if kernel == "5.10" {
		t.Skip("needs kernel >= 5.11: the older one is never healthy: TestGuestDoctorOldKernel")
	}
	silent(t, &fault{})
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			// To read the kernel's types takes longer than all else, in
			// emulation, so it is done where it matters and at the ends.
			if f.check != "abi" {
				f.args = append(f.args, "-skip", "abi")
			}
			undo := f.plant(t)
			f.found(t)
			undo(t)
			silent(t, &f)
		})
	}
	silent(t, &fault{})
}

// await waits until something is so.
func await(t *testing.T, what string, is func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
