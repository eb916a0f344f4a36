//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/waitreport"
)

// The test's binary is also the processes that verbs waiting starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "waiting" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// runWaiting runs the command.
func runWaiting(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cmdWaiting(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// Mistakes end with status 2, one line that says what is wrong, and a hint.
func TestWaitingBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-x":                    "-x",
		"now":                   `unexpected argument "now"`,
		"-d=":                   "-d has nothing in it",
		"-svg=":                 "-svg has nothing in it",
		"-n 0":                  "0 rounds",
		"-n many":               "many",
		"-slice 1":              "-slice",
		"-slice 1h":             "slices of 1h0m0s: allowed are 1ms to 1m",
		"-pace 0s":              "a message each 0s",
		"-pace 10us,soon":       `"soon" is no time, such as 100us`,
		"-batches 8,x":          `"x" is no number`,
		"-batches 0":            "batch 0: allowed are 1 to 128",
		"-batches 8,8":          "batch 8 is given twice",
		"-ways lazily":          `"lazily": there are busy, event, adaptive`,
		"-outstanding 1000000":  "1000000 writes under way: allowed are 1 to 2048",
		"-gc -preempt":          "choose one",
		"-gc -d sim0":           "-d means nothing to -gc",
		"-preempt -svg x":       "-svg means nothing to",
		"-gc -n -1":             "-1 rounds",
		"-preempt -slice 100us": "slices of 100µs",
	} {
		code, out, errs := runWaiting(t.Context(), strings.Fields(args)...)
		lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
		if code != 2 || out != "" || len(lines) != 2 || !strings.Contains(lines[0], want) || lines[1] != "verbs waiting -h lists the flags." {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want 2 and a line with %q", args, code, out, errs, want)
		}
	}
	if code, out, errs := runWaiting(t.Context(), "-d", "nothing0"); code != 2 || out != "" || !strings.Contains(errs, `"nothing0"`) {
		t.Errorf("-d nothing0: status %d, stdout %q, stderr %q", code, out, errs)
	}
}

// The help names every flag and says what is measured.
func TestWaitingHelp(t *testing.T) {
	code, out, errs := runWaiting(t.Context(), "-h")
	if code != 0 || errs != "" {
		t.Errorf("status %d, %s", code, errs)
	}
	for _, want := range strings.Fields("-d -json -svg -ways -batches -outstanding -pace -n -slice -gc -preempt busy event adaptive event-thread getrusage sim0") {
		if !strings.Contains(out, want) {
			t.Errorf("the help lacks %s", want)
		}
	}
}

// brief are flags with which a measurement takes little time.
var brief = []string{"-n", "2", "-slice", "2ms", "-batches", "1,8", "-pace", "1ms", "-ways", "event,adaptive"}

// A run on the model, as JSON and drawn, and as text.
func TestWaiting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.svg")
	code, out, errs := runWaiting(t.Context(), append([]string{"-json", "-d", "sim1", "-svg", file}, brief...)...)
	var r waitreport.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || errs != "" {
		t.Fatalf("status %d, %v, stderr %q", code, err, errs)
	}
	if len(r.Rows) != 2+2*2 || r.Device != "sim0" || r.Interrupted {
		t.Errorf("%+v", r)
	}
	drawing, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(drawing)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"event", "adaptive", "128 writes under way"} {
		if !bytes.Contains(drawing, []byte(want)) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
	code, out, errs = runWaiting(t.Context(), append([]string{"-d", "sim0"}, brief...)...)
	if code != 0 || errs != "" || strings.Count(out, "\n  adaptive") != 3 || !strings.Contains(out, "client and server in one process") {
		t.Errorf("status %d, stderr %q\n%s", code, errs, out)
	}
}

func TestWaitingInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, out, errs := runWaiting(ctx, "-d", "sim0"); code != 1 || out != "" || errs != "verbs waiting: interrupted\n" {
		t.Errorf("status %d, stdout %q, stderr %q", code, out, errs)
	}
}

// The loops, in processes as a user has them.
func TestWaitingLoops(t *testing.T) {
	for _, mode := range []string{"-gc", "-preempt"} {
		code, out, errs := runWaiting(t.Context(), mode, "-n", "2", "-slice", "1ms")
		if code != 0 || errs != "" || !strings.Contains(out, "\n  empty ") || !strings.Contains(out, "\n  spin ") {
			t.Errorf("%s: status %d, stderr %q\n%s", mode, code, errs, out)
		}
	}
}

// On soft-RoCE the server is a process of its own, and the way that needs a descriptor is measured.
func TestGuestWaiting(t *testing.T) {
	guestOnly(t)
	args := append([]string{"-json", "-d", "rxe0"}, brief...)
	args = append(args, "-ways", "event,event-thread", "-slice", "50ms", "-pace", "10ms", "-outstanding", "16")
	code, out, errs := runWaiting(t.Context(), args...)
	var r waitreport.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || errs != "" {
		t.Fatalf("status %d, %v, stderr %q", code, err, errs)
	}
	if len(r.Rows) != 2+2*2 || r.Device != "rxe0" || len(r.Notes) > 0 || !strings.Contains(r.Devices, "in a process each") {
		t.Errorf("%+v", r)
	}
}
