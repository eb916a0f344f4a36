package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	_ "embed"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/tools/internal/paired"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

//go:embed testdata/bench/client.c
var benchClientC []byte

// A bench measures the programs.
type bench struct {
	server *simproc.Server
	all    []*contender
	warm   *worker // of the processor that polls
	cold   *worker // of another; nil if there is none
}

// A worker runs functions on a processor.
type worker struct {
	work chan func()
	done chan struct{}
}

func startWorker(cpu int) (*worker, error) {
	w := &worker{make(chan func()), make(chan struct{})}
	pinned := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		pinned <- pin(cpu)
		for f := range w.work {
			f()
			w.done <- struct{}{}
		}
	}()
	return w, <-pinned
}

func (w *worker) run(f func()) {
	w.work <- f
	<-w.done
}

// benchFiles builds the program in C into a folder.
func benchFiles(ctx context.Context, dir string) (client string, err error) {
	source := filepath.Join(dir, "client.c")
	if err := os.WriteFile(source, benchClientC, 0o644); err != nil {
		return "", err
	}
	client = filepath.Join(dir, "client")
	return client, compileC(ctx, client, []string{"-O2"}, source)
}

// startBench starts the programs.
func startBench(s *simproc.Server, m *model.Model, client string, cpus []int) (b *bench, err error) {
	b = &bench{server: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.end())
		}
	}()
	here := cpus[len(cpus)-1] // the first one has more to do for others, as a rule
	if b.warm, err = startWorker(here); err != nil {
		return b, err
	}
	if len(cpus) > 1 {
		if b.cold, err = startWorker(cpus[0]); err != nil {
			return b, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return b, err
	}
	for _, f := range contenderForms {
		argv := []string{client, f.form}
		if f.form == "go" {
			argv = []string{self, "bench", "client"}
		}
		env := slices.DeleteFunc(coreEnvironment(), func(v string) bool { return strings.HasPrefix(v, "MLX5_") || strings.HasPrefix(v, "GODEBUG=") })
		if f.env != "" {
			env = append(env, f.env)
		}
		c, err := startContender(s, m.Devices()[0], f.name, here, env, argv...)
		if err != nil {
			return b, err
		}
		b.all = append(b.all, c)
	}
	return b, nil
}

// end ends the programs and the workers.
func (b *bench) end() (err error) {
	for _, c := range b.all {
		err = errors.Join(err, c.end())
	}
	for _, w := range []*worker{b.warm, b.cold} {
		if w != nil {
			close(w.work)
		}
	}
	return err
}

// timed is how many completions a row is measured with at least, each round.
const timed = 6000

// group measures the rows of a group once, one program after another, the first of them
// another one each round, and gives report what each took in ns.
func (b *bench) group(ctx context.Context, g *benchGroup, round int, report func(row, contender int, ns float64)) error {
	for _, c := range b.all {
		if err := c.setup(g); err != nil {
			return err
		}
		// Once through all memory, so that it is there.
		for n := 0; n < g.ring; n += g.qps * g.depth() {
			if _, err := b.once(c, g, &benchRow{What: "poll", Batch: 32}); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(g.rows, func(r benchRow) bool { return r.What == "receive" }) {
			if _, err := b.once(c, g, &benchRow{What: "receive", Batch: 32}); err != nil {
				return err
			}
		}
	}
	b.server.Rest(true)
	defer b.server.Rest(false)
	calls := b.server.Stats().Calls
	for i := range g.rows {
		for k := range b.all {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			k = (k + round) % len(b.all)
			ns, err := b.row(b.all[k], g, &g.rows[i])
			if err != nil {
				return fmt.Errorf("%v: %w", &g.rows[i], err)
			}
			report(i, k, ns)
		}
	}
	if n := b.server.Stats().Calls - calls; n != 0 {
		return fmt.Errorf("%d system calls for the device while programs were measured: there may be none", n)
	}
	for _, c := range b.all {
		if err := c.teardown(); err != nil {
			return err
		}
	}
	return nil
}

// row measures a row: the median of as many times as make it steady, in ns for each completion,
// request or empty poll.
func (b *bench) row(c *contender, g *benchGroup, r *benchRow) (float64, error) {
	var all []float64
	for n := 0; n < timed; {
		took, err := b.once(c, g, r)
		if err != nil {
			return 0, err
		}
		all = append(all, took)
		n += g.qps * g.depth()
	}
	return paired.Median(all), nil
}

// once measures a row one time.
func (b *bench) once(c *contender, g *benchGroup, r *benchRow) (float64, error) {
	n := g.qps * g.depth()
	p := portionOf(n)
	var o model.FillOptions
	switch r.What {
	case "empty":
		got, err := c.numbers(1, "empty %d %d %d", r.Batch, p.rest, p.block)
		if err != nil {
			return 0, err
		}
		return float64(got[0]) / float64(p.block), nil
	case "post":
		got, err := c.numbers(1, "sends %d %d %d %d", r.Batch, p.lead, p.rest, p.block)
		if err != nil {
			return 0, err
		}
		_, err = c.drain(b.warm.run, r.Batch, p, c.posted(n), o)
		return float64(got[0]) / float64(p.block), err
	case "receive":
		o.Recv = true
		if _, err := c.ask("receives %d", g.depth()); err != nil {
			return 0, err
		}
	default:
		o.Flush = r.What == "error"
		if _, err := c.ask("post %d", g.depth()); err != nil {
			return 0, err
		}
	}
	fill := b.warm
	if r.Cold {
		fill = b.cold
	}
	took, err := c.drain(fill.run, r.Batch, p, c.posted(n), o)
	return float64(took) / float64(p.block), err
}
