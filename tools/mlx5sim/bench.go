package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/tools/internal/flags"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

const benchUsage = `usage: mlx5sim bench [-json | -md] [-quick] [-n ROUNDS] [-run REGEXP]

Measures how long goverbs and libibverbs take to poll and to post on a ConnectX in
software, which stays out of the way: it completes requests when it is told to, all at
once, while the program waits, and then the program polls them. The programs, three in C
and one in Go, take turns on one processor.

In C they are: plain, with ibv_poll_cq and ibv_post_send; single, the same with
MLX5_SINGLE_THREADED=1; and ex, with that and ibv_start_poll and ibv_wr_start on objects
for one thread. All add up the ids and look at the statuses of what they poll. Lists for
ibv_post_send were made before, but for the ids. The C is compiled with -O2.

A row is poll (of sends that succeeded), receive, error (flushed sends), empty or post.
Behind it stand the completions or requests at a time (batch), the queue pairs, which
complete in turn (qps), and the entries of the ring, which is filled; with one queue pair,
up to 4096 of it. Then comes who wrote it: warm is the processor that polls, just before;
cold is another one. Posts are of 64 bytes inline. Both sides ring the same way: a request
alone is copied to a BlueFlame register, and a batch ends with a store of eight bytes to
it; the register is ordinary memory here. No side gets huge pages.

Times are in ns for each completion, request or empty poll: medians of the rounds. Ratios
are those of a round, goverbs to libibverbs, with the 90% interval of their mean; JSON has
the extremes too. The fastest is that of the three forms with the least median. A target
that the interval straddles is undecided, not met. -quick measures what there are targets
for, in fewer rounds.

It takes gcc, libc6-dev and libibverbs-dev.

`

type benchOptions struct {
	json, md, quick bool
	rounds          int
	only            *regexp.Regexp
}

// parseBench reads the flags.
func parseBench(args []string, stdout io.Writer) (*benchOptions, error) {
	o := new(benchOptions)
	fs := flag.NewFlagSet("mlx5sim bench", flag.ContinueOnError)
	fs.BoolVar(&o.json, "json", false, "print an object of JSON a row instead of a table")
	fs.BoolVar(&o.md, "md", false, "print the table as Markdown")
	fs.BoolVar(&o.quick, "quick", false, "measure only what there are targets for, in 5 rounds")
	fs.IntVar(&o.rounds, "n", 0, "how many `ROUNDS` there are, 2 or more; 0 is 15, or 5 with -quick")
	only := fs.String("run", "", "measure only the rows that match `REGEXP`")
	err := flags.Parse(fs, args, benchUsage+"flags:\n", stdout)
	switch {
	case err != nil:
		return nil, err
	case fs.NArg() > 0:
		return nil, fmt.Errorf("%q is no flag", fs.Arg(0))
	case o.json && o.md:
		return nil, errors.New("-json and -md: choose one")
	case o.rounds < 0 || o.rounds == 1:
		return nil, fmt.Errorf("-n %d: want 2 or more", o.rounds)
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	if o.rounds == 0 {
		if o.rounds = 15; o.quick {
			o.rounds = 5
		}
	}
	return o, nil
}

// cmdBench is mlx5sim bench. A missed target is a result, and no failure of the command.
func cmdBench(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == "client" {
		// It is one of the programs that are measured.
		cpu, err := strconv.Atoi(args[1])
		if err == nil {
			err = runBenchClient(cpu, stdin, stdout)
		}
		if err != nil {
			fmt.Fprintf(stdout, "error %v\n", err)
			return 1
		}
		return 0
	}
	o, err := parseBench(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "mlx5sim bench: %v\nmlx5sim bench -h lists the flags.\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	code, err := o.run(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "mlx5sim bench: %v\n", err)
	}
	return code
}

// run measures what the options say, and prints it.
func (o *benchOptions) run(ctx context.Context, stdout, stderr io.Writer) (code int, err error) {
	cpus, err := processors()
	if err != nil {
		return exitSystem, err
	}
	missing := 0
	groups := chooseRows(benchRows(), func(r *benchRow) bool {
		if o.quick && r.plain == 0 && r.fastest == 0 || !o.only.MatchString(r.String()) {
			return false
		}
		if r.Cold && len(cpus) < 2 {
			missing++
			return false
		}
		return true
	})
	if missing > 0 {
		fmt.Fprintf(stderr, "mlx5sim bench: with one processor there is no other to write the ring: %s left out\n", plural.Of(missing, "row"))
	}
	if len(groups) == 0 {
		return exitUsage, fmt.Errorf("no row matches %q", o.only)
	}
	dir, err := os.MkdirTemp("", "mlx5sim-bench-")
	if err != nil {
		return exitSystem, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	client, err := benchFiles(ctx, dir)
	if err != nil {
		return exitSystem, err
	}
	results, err := o.measure(ctx, groups, client, cpus)
	if err != nil {
		return exitSystem, err
	}
	switch {
	case o.json:
		e := json.NewEncoder(stdout)
		for i := range results {
			if err := e.Encode(&results[i]); err != nil {
				return exitSystem, err
			}
		}
	case o.md:
		err = printBenchMarkdown(stdout, results)
	default:
		err = printBench(stdout, results)
	}
	return 0, err
}

// measure runs the programs and measures them.
func (o *benchOptions) measure(ctx context.Context, groups []benchGroup, client string, cpus []int) (results []benchResult, err error) {
	m, err := model.New(model.DeviceConfig{Name: "mlx5_0", Ports: []model.PortConfig{{InfiniBand: true}}})
	if err != nil {
		return nil, err
	}
	s, err := simproc.Serve(m, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := startBench(s, m, client, cpus)
	if err != nil {
		return nil, err
	}
	var times [][][][]float64 // by group, row, program and round
	for _, g := range groups {
		rows := make([][][]float64, len(g.rows))
		for i := range rows {
			rows[i] = make([][]float64, len(contenderForms))
		}
		times = append(times, rows)
	}
	for round := range o.rounds {
		for i := range groups {
			if err == nil {
				err = b.group(ctx, &groups[i], round, func(row, c int, ns float64) { times[i][row][c] = append(times[i][row][c], ns) })
			}
		}
	}
	if err = errors.Join(err, b.end()); err != nil {
		return nil, err
	}
	if v := m.Violations(); len(v) > 0 {
		return nil, fmt.Errorf("a correct program does not do this: %s", v[0])
	}
	for i, g := range groups {
		for k, row := range g.rows {
			r, err := newBenchResult(row, times[i][k])
			if err != nil {
				return nil, fmt.Errorf("%v: %w", &row, err)
			}
			results = append(results, r)
		}
	}
	return results, nil
}
