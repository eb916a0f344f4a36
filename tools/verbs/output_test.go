package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command whose output went nowhere has failed, whichever it is.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("declared skip: this system has no /dev/full")
	}
	defer full.Close()
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("status 12 vendor err 129\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"decode " + log,
		"-h", "--version", "version", "help perf", "perf --version", "selftest -list", "selftest -d sim0 -quick -only inline", "devinfo -d sim0",
		"demo -n 1", "perf send_bw -d sim0 -n 10", "pingpong -d sim0 -n 10", "waiting -d sim0 -n 1 -slice 1ms -ways event -batches 8 -pace 100us",
	} {
		var errs strings.Builder
		if code := runFiles(t.Context(), strings.Fields(args), full, &errs); code == 0 || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: status %d, %q", args, code, errs.String())
		}
	}
	// To ask for help was no wrong use.
	for _, c := range commands {
		var errs strings.Builder
		want := "no space left on device\n"
		if code := runFiles(t.Context(), []string{c.name, "-h"}, full, &errs); code != 1 || !strings.HasSuffix(errs.String(), want) {
			t.Errorf("%s -h: status %d, %q", c.name, code, errs.String())
		}
	}
	var errs strings.Builder
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if code := runFiles(t.Context(), []string{"selftest", "-list"}, null, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("status %d, %q", code, errs.String())
	}
}
