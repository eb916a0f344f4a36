package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// processors are those that this process may use.
func processors() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var all []int
	for i := range 1024 { // as many as the set has
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all, nil
}

// pin keeps the thread, which the caller has locked, on a processor.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processor %d: sched_setaffinity: %w", cpu, err)
	}
	return nil
}

// smallPages has the process get no huge pages that it did not ask for.
func smallPages() error {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl of huge pages: %w", err)
	}
	return nil
}
