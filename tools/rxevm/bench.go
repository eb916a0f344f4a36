//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/goverbs/goverbs/tools/internal/paired"
	"github.com/goverbs/goverbs/tools/internal/plural"
)

// A benchLine is one comparison; as JSON it is a line's worth of figures.
type benchLine struct {
	Mode  string `json:"mode"` // busy or event
	Bytes int    `json:"bytes"`
	Iters int    `json:"iterations"`
	// VerbsUsec and RDMACoreUsec are medians, in microseconds per iteration.
	VerbsUsec    float64 `json:"verbs_usec"`
	RDMACoreUsec float64 `json:"rdma_core_usec"`
	paired.Ratio
	Verdict  string `json:"verdict"`
	Kernel   string `json:"kernel"`
	Emulated bool   `json:"emulated"`
}

// Targets of the design: ratios of verbs' time to rdma-core's.
const (
	targetBusy  = 1.05
	targetEvent = 1.10
)

// benchTimeout is how long measuring may take unless the flags say otherwise.
const benchTimeout = 2 * time.Hour

// cmdBench is rxevm bench. A missed target is a result, not a failure of the command.
func cmdBench(ctx context.Context, args []string) (int, error) {
	if len(args) > 0 && args[0] == "starts" {
		return 0, cmdStarts(args[1:], os.Stdout) // in the guest
	}
	fs := flag.NewFlagSet("rxevm bench", flag.ContinueOnError)
	g := guestFlags{}
	addGuestFlags(fs, &g)
	asJSON := fs.Bool("json", false, "print one JSON object per line instead of text")
	waiting := fs.Bool("waiting", false, "measure ways to wait instead, with verbs waiting: here on the model, and in the guest")
	rounds := fs.Int("n", 12, "with -waiting: measure so many `rounds`")
	svg := fs.String("svg", "", "with -waiting: draw the result into `FILE`, too")
	pairs := fs.Int("pairs", 12, "`number` of alternating pairs per comparison; unless given 3 with -quick, 6 with -instructions")
	iters := fs.Int("iters", 1000, "`number` of iterations per game, or of round trips of a latency")
	perf := fs.Bool("perf", false, "let verbs perf and perftest alternate, and programs in Go and C that begin")
	quick := fs.Bool("quick", false, "with -perf: less of everything, about three minutes under emulation")
	instructions := fs.Bool("instructions", false, "with -perf: measure rates of write_bw and read_bw in a guest whose clock counts instructions, which a busy machine does not disturb; two to three minutes, always emulated, on one CPU, where send_bw, latencies and starts cannot be measured")
	only := fs.String("run", "", "with -perf: only the rows whose name matches this `regexp`, such as 'send_bw 64' or starts")
	if err := parseFlags(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() != 0 {
		return 0, exitError{exitUsage, fmt.Errorf("bench takes no arguments besides flags, not %q", fs.Args())}
	}
	if *pairs < 2 || *iters < 1 {
		return 0, exitError{exitUsage, fmt.Errorf("-pairs %d -iters %d: at least 2 pairs and 1 iteration", *pairs, *iters)}
	}
	if *waiting && *rounds < 1 {
		return 0, exitError{exitUsage, fmt.Errorf("-n %d: at least 1 round", *rounds)}
	}
	if *perf && *waiting {
		return 0, exitError{exitUsage, errors.New("-perf and -waiting: choose one")}
	}
	if !*perf && (*quick || *only != "" || *instructions) {
		return 0, exitError{exitUsage, errors.New("-quick, -instructions and -run: only -perf has these")}
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return 0, exitError{exitUsage, fmt.Errorf("-run: %w", err)}
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !*waiting && (given["svg"] || given["n"]) {
		return 0, exitError{exitUsage, errors.New("-svg and -n: only -waiting has these")}
	}
	if *waiting && (given["pairs"] || given["iters"]) {
		return 0, exitError{exitUsage, errors.New("-pairs and -iters: -waiting has -n")}
	}
	if *instructions {
		if *quick || given["iters"] {
			return 0, exitError{exitUsage, errors.New("-quick and -iters: -instructions measures rates only, and has -pairs and -run")}
		}
		if given["smp"] && g.cpus != 1 {
			return 0, exitError{exitUsage, fmt.Errorf("-smp %d: with -instructions the guest has 1 CPU", g.cpus)}
		}
		g.countInstructions()
	}
	if !*waiting {
		g.with = "rdma-core"
	}
	if err := g.check(); err != nil {
		return 0, err
	}
	g.verbs, g.vdsoClock = true, true
	if !given["timeout"] {
		g.timeout = benchTimeout
	}
	switch {
	case given["pairs"]:
	case *quick:
		*pairs = 3
	case *instructions:
		*pairs = instructionPairs
	}
	h, err := newHost(g.install)
	if err != nil {
		return 0, err
	}
	ctx, cancel := withDeadline(ctx, g.timeout)
	defer cancel()
	if *perf {
		b := perfBench{host: h, guest: g.guestConfig, out: os.Stdout, json: *asJSON, quick: *quick, instructions: *instructions, pairs: *pairs, iters: *iters, only: match}
		return 0, b.run(ctx)
	}
	if *waiting {
		b := waitingBench{host: h, guest: g.guestConfig, rounds: *rounds, json: *asJSON, svg: *svg}
		return 0, b.run(ctx)
	}
	v, err := h.boot(ctx, g.guestConfig)
	if err != nil {
		return 0, err
	}
	if !*asJSON {
		fmt.Printf("verbs pingpong against itself and ibv_rc_pingpong against itself, alternating, in one guest: Linux %s, %s, %s.\nRatios are verbs / rdma-core, less is better.\n", v, plural.Of(v.machine.cpus, "CPU"), v.accel())
		if !v.machine.kvm {
			fmt.Println("EMULATED TIMING: absolute times say nothing about hardware.")
		}
	}
	for _, events := range []bool{false, true} {
		for _, size := range []int{64, 4096} {
			line, berr := v.bench(ctx, events, size, *iters, *pairs)
			if berr != nil {
				return 0, errors.Join(exitError{exitBroken, berr}, v.close(ctx))
			}
			if *asJSON {
				err = json.NewEncoder(os.Stdout).Encode(line)
			} else {
				_, err = fmt.Printf("%-5s %5d bytes: verbs %8.1f usec, rdma-core %8.1f usec, ratio %v\n", line.Mode, size, line.VerbsUsec, line.RDMACoreUsec, line.Ratio)
			}
			if err != nil {
				return 0, errors.Join(err, v.close(ctx))
			}
		}
	}
	return 0, v.close(ctx)
}

// bench makes one comparison. Which program begins a pair alternates, too, so that warming up
// favours neither.
func (v *vm) bench(ctx context.Context, events bool, size, iters, pairs int) (benchLine, error) {
	players := [2]player{playVerbs, playRDMA}
	var usec [2][]float64
	port := uint16(18600)
	for i := range pairs {
		for k := range 2 {
			p := (i + k) % 2
			g := game{server: players[p], client: players[p], events: events, size: size, iters: iters, timeout: 5 * time.Minute}
			s, err := v.play(ctx, g, port)
			if err != nil {
				return benchLine{}, err
			}
			usec[p] = append(usec[p], s.usecPerIter)
			port++
		}
	}
	target, mode := targetBusy, "busy"
	if events {
		target, mode = targetEvent, "event"
	}
	r, err := paired.New(usec[0], usec[1], target)
	if err != nil {
		return benchLine{}, err
	}
	return benchLine{Mode: mode, Bytes: size, Iters: iters, VerbsUsec: paired.Median(usec[0]), RDMACoreUsec: paired.Median(usec[1]), Ratio: r, Verdict: r.Verdict(),
		Kernel: v.release, Emulated: !v.machine.kvm}, nil
}
