//go:build linux

package main

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"
)

// A program of this machine runs on it; one whose header names a machine that there is not does not,
// wherever that is tried. So is chosen where tests of 386 run.
func TestRuns(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !runs(t.Context(), self, "-test.run=^$") {
		t.Error("this machine is said not to run the program that it runs")
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	const atMachine = elf.EI_NIDENT + 2 // e_machine, behind e_ident and e_type
	program[atMachine], program[atMachine+1] = 0xff, 0xff
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := os.WriteFile(foreign, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if runs(t.Context(), foreign, "-test.run=^$") {
		t.Error("this machine is said to run programs of a machine that there is not")
	}
}
