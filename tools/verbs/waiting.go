package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/internal/tty"
	"github.com/goverbs/goverbs/tools/internal/waitreport"
	"github.com/goverbs/goverbs/tools/verbs/internal/waiting"
)

// cmdWaiting is verbs waiting.
func cmdWaiting(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == waitingServer {
		// It is the server's process of another verbs waiting.
		if err := waiting.Serve(thisSystem{}.open, os.Stdin, stdout); err != nil {
			fmt.Fprintf(stderr, "verbs waiting server: %s\n", printable.Error(err))
			return 1
		}
		return 0
	}
	if len(args) == 1 && args[0] == waitingLoops {
		if err := waiting.ServeLoops(os.Stdin, stdout); err != nil {
			fmt.Fprintf(stderr, "verbs waiting loops: %s\n", printable.Error(err))
			return 1
		}
		return 0
	}
	o, err := parseWaiting(args, stdout)
	if err == nil {
		err = measureWaiting(ctx, o, stdout, stderr)
	}
	return exitStatus(ctx, "waiting", err, stderr)
}

// The words that make verbs waiting another program: those that it measures.
const (
	waitingServer = "server"
	waitingLoops  = "loops"
)

// measureWaiting measures, and prints what there is, also when ctx has ended it.
func measureWaiting(ctx context.Context, o *waitingOptions, stdout, stderr io.Writer) error {
	tell, told := progressOf(stderr)
	switch {
	case o.gc:
		r, err := waiting.RunGC(ctx, o.loops, tell)
		told()
		return writeReport(r, r != nil, err, o.json, stdout)
	case o.preempt:
		self, err := os.Executable()
		if err != nil {
			return err
		}
		r, err := waiting.RunPreempt(ctx, o.loops, []string{self, "waiting", waitingLoops}, tell)
		told()
		return writeReport(r, r != nil, err, o.json, stdout)
	}
	st, err := chooseStage(thisSystem{}, o.device)
	if err != nil {
		return withoutDevice(err, o.device)
	}
	drawing, err := openResult("svg", o.svg)
	if err != nil {
		return err
	}
	defer drawing.discard()
	c := o.config
	c.Open, c.Devices = st.from.open, st.names
	if st.model == nil {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		c.Server = []string{self, "waiting", waitingServer}
	}
	r, err := waiting.Run(ctx, c, tell)
	told()
	if r != nil && len(r.Rows) > 0 {
		err = errors.Join(err, drawing.keep(func(w io.Writer) error { return waitreport.WriteSVG(w, r) }))
	}
	return writeReport(r, r != nil && len(r.Rows) > 0, err, o.json, stdout)
}

// report is what a measurement came to.
type report interface {
	WriteText(io.Writer) error
	WriteJSON(io.Writer) error
}

// writeReport writes a report, if there is one, and joins the error of the measurement.
func writeReport(r report, there bool, err error, asJSON bool, w io.Writer) error {
	if !there {
		return err
	}
	write := r.WriteText
	if asJSON {
		write = r.WriteJSON
	}
	return errors.Join(err, write(w))
}

// progressOf shows on a terminal how far a measurement is.
func progressOf(w io.Writer) (tell func(done, of int), end func()) {
	if !tty.Is(w) {
		return nil, func() {}
	}
	return func(done, of int) { fmt.Fprint(w, tty.Line(fmt.Sprintf("%d of %d", done, of))) }, func() { fmt.Fprint(w, tty.Erase) }
}
