//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
)

// plantedPackage has the tests that plant faults for verbs doctor. They take the guest apart, so
// they run in guests of their own.
const plantedPackage = "./tools/verbs/internal/planted"

// leastFaults is how many of them the doctor has to find at least.
const leastFaults = 12

// doctorKernels are the series on which they are planted. 5.10 is never healthy: what is wrong with
// it is looked for in the guest that it gets anyway.
var doctorKernels = []string{"6.1", "6.12"}

// doctorPart plants faults, one after the other, and wants verbs doctor to name each, and to be
// silent once it is undone.
func (s *suite) doctorPart(ctx context.Context) {
	for _, kernel := range doctorKernels {
		where := "doctor " + kernel
		s.withPlanted(ctx, where, "^TestGuestDoctor$", func(t guestTest) {
			// Loading modules and attaching programs to cgroups patches the kernel's code.
			c := guestConfig{kernel: kernel, arch: "amd64", cpus: 2, memMiB: 1024, verbs: true, files: t.run.inputs(), oneThread: true}
			s.inGuest(ctx, where, c, func(v *vm) { s.planted(ctx, where, v, t) })
		})
	}
}

// withPlanted compiles the tests and hands over those that are to run.
func (s *suite) withPlanted(ctx context.Context, where, tests string, use func(guestTest)) {
	bins, err := s.host.scratch()
	if err != nil {
		s.step(where, "build", func() (string, error) { return "", err })
		return
	}
	defer os.RemoveAll(bins)
	bin := filepath.Join(bins, "planted.test")
	if s.step(where, "build "+plantedPackage, func() (string, error) {
		_, err := s.goTool(ctx, []string{"GOARCH=amd64"}, "test", "-c", "-o", bin, plantedPackage)
		return "", err
	}) {
		args := []string{"-test.paniconexit0", "-test.timeout=30m", "-test.run=" + tests}
		use(guestTest{pkg: plantedPackage, run: newTestRun(bin, filepath.Join(s.root, plantedPackage), args)})
	}
}

// planted runs the tests of faults in a guest.
func (s *suite) planted(ctx context.Context, where string, v *vm, t guestTest) {
	s.step(where, "verbs doctor finds each fault, and nothing else", func() (string, error) {
		faults := 0
		t.run.judge = func(passed []string, _ []skip) error {
			for _, name := range passed {
				if strings.Contains(name, "/") {
					faults++
				}
			}
			if faults < leastFaults {
				return fmt.Errorf("only %d faults were planted: there are to be %d", faults, leastFaults)
			}
			return nil
		}
		_, err := v.guestTest(ctx, t)
		return plural.Of(faults, "fault"), err
	})
}

// oldKernelPart looks at Linux 5.10, and wants verbs doctor to say what is wrong with it.
func (s *suite) oldKernelPart(ctx context.Context) {
	const kernel = "5.10"
	s.withPlanted(ctx, "guest "+kernel, "^TestGuestDoctorOldKernel$", func(t guestTest) { s.smokePart(ctx, kernel, "amd64", t) })
}
