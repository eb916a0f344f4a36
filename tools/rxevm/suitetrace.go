//go:build linux

package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Tests that attach probes to the kernel bear one of these names. They get a
// guest with one CPU: under emulation, a kernel with several does not survive
// having its code patched while they run.
var (
	guestTestName = regexp.MustCompile(`func TestGuest\w*`)
	probingTest   = regexp.MustCompile(`func ` + probingNames)
)

const probingNames = "TestGuest(Trace|Top)"

// apartProbing takes the tests that attach probes apart from the others. A
// package may have some of both.
func apartProbing(all []guestTest) (others, probing []guestTest) {
	for _, t := range all {
		if t.probing {
			p := t
			p.run.args = append(slices.Clone(t.run.args), "-test.run=^"+probingNames)
			probing = append(probing, p)
			t.run.args = append(slices.Clone(t.run.args), "-test.skip=^"+probingNames)
		}
		if t.others {
			others = append(others, t)
		}
	}
	return others, probing
}

// probesPart runs the tests that attach probes in a guest of their own.
func (s *suite) probesPart(ctx context.Context, kernel string, tests []guestTest) {
	if len(tests) == 0 {
		return
	}
	where := "probes " + kernel
	c := guestConfig{kernel: kernel, arch: "amd64", cpus: 1, memMiB: 1024, rdmaCore: true, verbs: true, oneThread: true}
	for _, t := range tests {
		c.files = append(c.files, t.run.inputs()...)
	}
	s.inGuest(ctx, where, c, func(v *vm) {
		for _, t := range tests {
			s.step(where, "go test "+t.pkg, func() (string, error) {
				out, err := v.guestTest(ctx, t)
				if out = strings.TrimSpace(strings.TrimSuffix(out, "PASS\n")); out != "" {
					fmt.Fprintf(s.out, "%s: %s prints:%s\n", where, t.pkg, indented(out))
				}
				return "", err
			})
		}
	})
}
