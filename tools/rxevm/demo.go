//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

// cmdDemo is rxevm demo: the first thing that a newcomer runs.
func cmdDemo(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("rxevm demo", flag.ContinueOnError)
	g := guestFlags{}
	addGuestFlags(fs, &g)
	if err := parseFlags(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() != 0 {
		return 0, exitError{exitUsage, fmt.Errorf("demo takes no arguments besides flags, not %q", fs.Args())}
	}
	g.with = "rdma-core"
	if err := g.check(); err != nil {
		return 0, err
	}
	g.verbs = true
	h, err := newHost(g.install)
	if err != nil {
		return 0, err
	}
	ctx, cancel := withDeadline(ctx, g.timeout)
	defer cancel()
	v, err := h.boot(ctx, g.guestConfig)
	if err != nil {
		return 0, err
	}
	err = v.demo(ctx)
	return 0, errors.Join(err, v.close(ctx))
}

// demo shows the device and plays every combination of roles and waiting.
func (v *vm) demo(ctx context.Context) error {
	fmt.Printf("Linux %s with soft-RoCE, by %s. The device, as verbs sees it:\n\n", v, v.accel())
	code, err := v.run(ctx, job{Args: []string{"verbs", "devinfo"}, Env: v.environ()}, jobIO{stdout: os.Stdout, stderr: os.Stderr})
	if err == nil && code != 0 {
		err = exitError{exitBroken, fmt.Errorf("verbs devinfo ended with status %d", code)}
	}
	if err != nil {
		return err
	}
	fmt.Printf("\nPing-pong between verbs, which is Go without C, and rdma-core's ibv_rc_pingpong; both check every byte:\n\n")
	port := uint16(18515)
	for _, events := range []bool{false, true} {
		for _, roles := range [][2]player{{playRDMA, playVerbs}, {playVerbs, playRDMA}} {
			g := game{server: roles[0], client: roles[1], events: events, size: 4096, iters: 200, check: true, timeout: 2 * time.Minute}
			s, err := v.play(ctx, g, port)
			if err != nil {
				return exitError{exitBroken, err}
			}
			fmt.Printf("  ok  %v: %.0f usec per iteration, %d packets\n", g, s.usecPerIter, s.sent)
			port++
		}
	}
	fmt.Printf("\nAll four games ended well.")
	if !v.machine.kvm {
		fmt.Printf(" The times are those of an emulated processor; only their ratio means something.")
	}
	fmt.Println()
	return nil
}
