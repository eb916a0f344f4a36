//go:build linux

package main

import (
	"fmt"
	"slices"
)

// Without a flag that says otherwise, -instructions measures so many pairs of a row. Before them it
// lets both programs run once and leaves that out: the first runs of a guest take 2% more. Some later
// ones do as well, in all their messages: more runs show that, and longer ones do not mend it.
const (
	instructionPairs  = 6
	instructionWarmup = 1
)

// nsecPerSec are also the instructions of a second of a guest whose clock counts them.
const nsecPerSec = 1e9

// countInstructions makes the guest one whose clock counts instructions.
func (c *guestConfig) countInstructions() {
	c.cpus, c.instructions = 1, true
}

// warmup is how many pairs of a row are left out.
func (b *perfBench) warmup() int {
	if b.instructions {
		return instructionWarmup
	}
	return 0
}

// byInstructions are the cases that such a guest can tell something of. There is one processor: in
// tests of send both programs poll, and each spins its whole slice of time away before the other one
// gets to answer. Waiting costs nothing on that clock, so latencies are none.
func byInstructions(all []perfCase) []perfCase {
	all = slices.DeleteFunc(all, func(c perfCase) bool { return c.latency || c.verb == "send" })
	for i := range all {
		all[i].instructions = true
	}
	return all
}

// instructions is how many a message took, of the program and of the kernel.
func (f perfFigure) instructions() float64 { return nsecPerSec / f.rate }

// instructionsHead says what is measured by -instructions.
func (b *perfBench) instructionsHead(v *vm) error {
	_, err := fmt.Fprintf(b.out, `verbs perf and perftest by turns, each against itself, in one guest whose clock counts instructions, 1 ns each: Linux %s, 1 CPU, %s.
Both: -t %d -Q %d -u %d, no inline data, no warm-up; the first pair of each row is left out.
Instructions are the client's, the server's and the kernel's together; a rate is 1e9 of them by those of a message, no processor's.
Without send_bw (on one CPU its two programs spin by turns), latencies and starts: this clock says nothing about these.
Ratios are verbs / perftest.
`, v, v.accel(), perfSendDepth, perfSignalEvery, perfTimeout)
	return err
}
