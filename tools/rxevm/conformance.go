//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/conformance"
)

// conformanceTable is what testdata/conformance.md says.
func (s *suite) conformanceTable() ([]conformance.Row, error) {
	b, err := os.ReadFile(filepath.Join(s.root, conformance.File))
	if err != nil {
		return nil, err
	}
	return conformance.Parse(string(b))
}

// conforms returns a judge of the tests of package uverbs in a guest: they are to come out as
// the table says.
func (s *suite) conforms(place conformance.Place) func(passed []string, skips []skip) error {
	return func(passed []string, skips []skip) error {
		rows, err := s.conformanceTable()
		if err != nil {
			return err
		}
		results := make(conformance.Results)
		for _, test := range passed {
			results["uverbs."+test] = conformance.Pass
		}
		for _, k := range skips {
			results["uverbs."+k.test] = conformance.Skip
		}
		return disagreement(rows, place, results)
	}
}

func disagreement(rows []conformance.Row, place conformance.Place, results conformance.Results) error {
	if wrong := conformance.Compare(rows, place, results); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// conformance runs what the table says of the ConnectX in software: our tests, and rdma-core's.
func (s *suite) conformance(ctx context.Context, where string) {
	const what = conformance.File + " on a ConnectX in software"
	if devices, err := os.ReadDir("/sys/class/infiniband"); err == nil && len(devices) > 0 {
		s.notRun(where, what, "this machine has RDMA devices, on which the tests run instead")
	} else {
		s.step(where, what, func() (string, error) {
			rows, err := s.conformanceTable()
			if err != nil {
				return "", err
			}
			results := make(conformance.Results)
			for folder, tests := range conformance.Names(rows) {
				pattern := "-run=^(" + strings.Join(slices.Sorted(maps.Keys(tests)), "|") + ")$"
				out, err := s.goTool(ctx, nil, "test", testPatience, vetted, "-count=1", "-v", pattern, "./"+folder)
				if err != nil {
					return "", err
				}
				results.Read(folder, out)
			}
			return fmt.Sprintf("%d tests of ours, with subtests", len(results)), disagreement(rows, conformance.Model, results)
		})
	}
	const upstream = "rdma-core's test suite on a ConnectX in software, as " + conformance.File + " says"
	start := time.Now()
	env := []string{"GOVERBS_PYVERBS=1"}
	// The suite of the machine, if any, will do where Debian's cannot be had.
	if core, err := s.host.refereeTree(ctx, refereeReleases[0]); err == nil && runtime.GOARCH == "amd64" {
		env = append(env, (&refereeFolder{core: core}).environment()...)
	}
	out, err := s.goTool(ctx, env, "test", testPatience, vetted, "-count=1", "-v", "-run=^TestConformancePyverbs$", "./tools/mlx5sim")
	if _, why, skipped := strings.Cut(out, "declared skip: "); err == nil && skipped {
		why, _, _ = strings.Cut(why, "\n")
		s.notRun(where, upstream, why)
		return
	}
	s.step(where, upstream, func() (string, error) {
		return fmt.Sprintf("in %.1f s", time.Since(start).Seconds()), err
	})
}
