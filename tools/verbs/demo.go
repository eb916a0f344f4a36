package main

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

const demoUsage = `usage: verbs demo [-d DEVICE] [-n ROUNDS] [-json]
Plays ping-pong, busy and in event mode, reads remote memory, makes one request
fail and says what that means: between two queue pairs of the first RDMA device
that can be used, or, where there is none, between two devices of a ConnectX in
software, which needs nothing at all. The first line says which, and what
succeeding there proves.
Exit status: 0 if every step held, 1 if one did not, 2 for wrong flags and
unknown devices.
`

// realKernel is the command that shows the same on a real kernel.
const realKernel = "go run ./tools/rxevm demo"

// demoOptions are the flags of verbs demo.
type demoOptions struct {
	device string
	rounds int
	json   bool
}

// maxRounds keeps the times of all rounds in little memory.
const maxRounds = 1_000_000

// cmdDemo is verbs demo.
func cmdDemo(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return demo(ctx, thisSystem{}, args, stdout, stderr)
}

// demo is verbs demo on the devices of a system, or on the model.
func demo(ctx context.Context, from system, args []string, stdout, stderr io.Writer) int {
	o, err := parseDemo(args, stdout)
	if err != nil {
		return exitStatus(ctx, "demo", err, stderr)
	}
	st, err := chooseStage(from, o.device)
	if err != nil {
		return exitStatus(ctx, "demo", withoutDevice(err, o.device), stderr)
	}
	out := demoOutput{text: !o.json, w: stdout}
	out.begin(st)
	play(ctx, st, o.rounds, out.step)
	err = errors.Join(out.end(), ctx.Err())
	if err == nil && !out.report.OK {
		return 1 // which the steps have told
	}
	return exitStatus(ctx, "demo", err, stderr)
}

func parseDemo(args []string, help io.Writer) (o demoOptions, err error) {
	f := flag.NewFlagSet("verbs demo", flag.ContinueOnError)
	f.StringVar(&o.device, "d", "", "use this `device`; "+simulatedHelp)
	f.IntVar(&o.rounds, "n", 10000, "play this many `rounds` of ping-pong in each mode")
	f.BoolVar(&o.json, "json", false, "write one JSON object instead of text")
	_, err = parseFlags(f, args, demoUsage, help)
	if err == nil && (o.rounds < 1 || o.rounds > maxRounds) {
		err = usage.Errorf("number of rounds (-n) %d: allowed are 1 to %d", o.rounds, maxRounds)
	}
	return o, err
}

// play plays the steps one after another until one fails, and then gives back what
// the stage holds, which is a step too. It tells each as soon as it is done, except
// for one that ctx ended.
func play(ctx context.Context, st *stage, rounds int, tell func(demoStep)) {
	p, err := newPair(ctx, st)
	if err != nil && ctx.Err() == nil {
		tell(demoStep{Name: "connect two queue pairs", Error: printable.Error(err)})
	}
	if err == nil {
		for _, s := range []struct {
			name string
			run  func(context.Context, *pair, *demoStep) error
		}{
			{"busy ping-pong", func(ctx context.Context, p *pair, s *demoStep) error { return busyPingpong(ctx, p, rounds, s) }},
			{"event ping-pong", func(ctx context.Context, p *pair, s *demoStep) error { return eventPingpong(ctx, p, rounds, s) }},
			{"RDMA READ", readAll},
			{"injected error", wrongKey},
		} {
			step := demoStep{Name: s.name}
			err := p.watched(ctx, func(ctx context.Context) error { return s.run(ctx, p, &step) })
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				step.Error = printable.Error(err)
			}
			tell(step)
			if err != nil {
				break
			}
		}
	}
	step := demoStep{Name: "afterwards"}
	if err := errors.Join(p.close(), st.check(&step)); err != nil {
		step.Error = printable.Error(err)
	}
	if ctx.Err() == nil || step.Error != "" {
		tell(step)
	}
}
