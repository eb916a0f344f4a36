package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/internal/tty"
	"github.com/goverbs/goverbs/tools/verbs/internal/perf"
	"github.com/goverbs/goverbs/tools/verbs/internal/present"
)

// cmdPerf is verbs perf. Its exit status is 2 where other flags would help, and 1 for
// everything else that goes wrong, an interrupt included.
func cmdPerf(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parsePerf(args, stdout)
	if err == nil {
		err = measurePerf(ctx, o, stdout, stderr)
	}
	return exitStatus(ctx, "perf", err, stderr)
}

// measurePerf measures as one side, or as both on the model.
func measurePerf(ctx context.Context, o *perfOptions, stdout, stderr io.Writer) (err error) {
	if o.drawing, err = openResult("svg", o.svg); err != nil {
		return err
	}
	defer o.drawing.discard()
	if isSimulated(o.config.Device) {
		return measureSimulated(ctx, o, stdout, stderr)
	}
	dev, err := openDevice(o.config.Device)
	if err != nil {
		return err
	}
	s, err := perf.Open(dev, o.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var conn net.Conn
	if err := present.While(ctx, dev, func(ctx context.Context) (err error) {
		conn, err = o.connect(ctx, stdout, stderr)
		return err
	}); err != nil {
		if conn != nil {
			conn.Close()
		}
		return err
	}
	if err := s.Meet(ctx, conn); err != nil {
		return err
	}
	return o.sizes(ctx, s, stdout, stderr)
}

// connect finds the other side.
func (o *perfOptions) connect(ctx context.Context, stdout, stderr io.Writer) (net.Conn, error) {
	c := &o.config
	if c.Server != "" {
		return perf.Dial(ctx, c.Server, c.Port)
	}
	listening := func() {
		if !o.json && o.text.Only == "" {
			const waits = "************************************"
			fmt.Fprintf(stdout, "\n%s\n* Waiting for client to connect... *\n%s\n", waits, waits)
		}
	}
	return perf.Listen(ctx, c.Port, listening, func(err error) { fmt.Fprintf(stderr, "verbs perf: %s\n", printable.Error(err)) })
}

// sizes measures all sizes, and prints each when it is there: also one that was
// interrupted.
func (o *perfOptions) sizes(ctx context.Context, s *perf.Side, stdout, stderr io.Writer) (err error) {
	c := s.Config()
	if !o.json {
		if err := o.text.WriteHead(stdout, s); err != nil {
			return err
		}
	}
	var reports []*perf.Report
	for _, size := range s.Sizes() {
		count, stop := o.count, func() {}
		if tty.Is(stderr) {
			if count == nil {
				count = new(atomic.Int64)
			}
			stop = showProgress(stderr, func(elapsed time.Duration) string { return perfProgressLine(count.Load(), &c, size, elapsed) })
		}
		var r *perf.Report
		r, err = s.Measure(ctx, size, count)
		stop()
		if r != nil {
			reports = append(reports, r)
			if o.json {
				err = errors.Join(err, r.WriteJSON(stdout))
			} else {
				err = errors.Join(err, o.text.WriteResult(stdout, &c, r))
			}
		}
		if err != nil {
			break
		}
	}
	if !o.json {
		err = errors.Join(err, o.text.WriteTail(stdout))
	}
	return errors.Join(err, o.draw(reports))
}

// draw draws the reports, if that is asked for.
func (o *perfOptions) draw(reports []*perf.Report) error {
	if len(reports) == 0 {
		return nil
	}
	return o.drawing.keep(func(w io.Writer) error { return perf.WriteSVG(w, reports) })
}
