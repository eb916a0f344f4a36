package waiting

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/goverbs/goverbs/tools/internal/waitreport"
)

// RunPreempt measures how fast loops run without the signals by which the runtime interrupts a
// goroutine each 10 ms, in proportion to with them, and how often and how long a loop stands
// still in either case. command starts a process that runs [ServeLoops]. When ctx ends
// it returns what it has, and the cause.
func RunPreempt(ctx context.Context, c LoopConfig, command []string, tell func(done, of int)) (*waitreport.LoopReport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := preempt{config: c, all: allLoops()}
	if runtime.GOMAXPROCS(0) == 1 {
		p.all = slices.DeleteFunc(p.all, func(l loop) bool { return l.name == "busy" }) // which poll.Busy refuses
	}
	for k := range p.rates {
		p.rates[k], p.standing[k] = make([][]float64, len(p.all)), map[string][][3]float64{}
	}
	var err error
	for round := 0; err == nil && round < c.Rounds; round++ {
		err = p.round(ctx, command, round, tell)
	}
	if len(p.rates[1][len(p.all)-1]) == 0 {
		return nil, err
	}
	r := p.report()
	r.Interrupted = ctx.Err() != nil
	return r, err
}

// preempt is the measurement of RunPreempt. What there is two of is with signals and without.
type preempt struct {
	config   LoopConfig
	all      []loop
	rates    [2][][]float64 // by loop and round
	standing [2]map[string][][3]float64
	costs    []float64 // of a signal, usec
}

// round measures everything once, in processes of the round: where a process has its memory makes
// one some percent faster than another for all its life.
func (p *preempt) round(ctx context.Context, command []string, round int, tell func(done, of int)) (err error) {
	var children [2]*loopChild
	defer func() {
		for _, c := range children {
			if c != nil {
				err = errors.Join(err, c.close())
			}
		}
	}()
	for k := range children {
		if children[k], err = startLoops(command, fmt.Sprintf("asyncpreemptoff=%d", k)); err != nil {
			return err
		}
	}
	for i, l := range p.all {
		if tell != nil {
			tell(round*len(p.all)+i, p.config.Rounds*len(p.all))
		}
		var pair [2]float64
		for k := range pair {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			k = (k + round) % 2
			if err := children[k].numbers(pair[k:k+1], "run %s %d", l.name, p.config.Slice); err != nil {
				return err
			}
		}
		p.rates[0][i], p.rates[1][i] = append(p.rates[0][i], pair[0]), append(p.rates[1][i], pair[1])
	}
	var cost [1]float64
	if err := children[0].numbers(cost[:], "signal once %d", p.config.Slice); err != nil {
		return err
	}
	p.costs = append(p.costs, cost[0]*1e6)
	for _, how := range standings {
		for k := range children {
			k = (k + round) % 2
			var s [3]float64
			if err := children[k].numbers(s[:], "stands %s %d", how, p.config.Slice); err != nil {
				return err
			}
			p.standing[k][how] = append(p.standing[k][how], s)
		}
	}
	return nil
}

// report is what there is.
func (p *preempt) report() *waitreport.LoopReport {
	r := waitreport.NewLoops("without signals", "with signals", usec(p.config.Slice))
	for i, l := range p.all {
		r.Add(l.name, l.what, l.model, p.rates[1][i], p.rates[0][i])
	}
	for _, how := range standings {
		for k, name := range []string{"with signals", "without signals"} {
			if s := p.standing[k][how]; len(s) > 0 {
				r.Stands = append(r.Stands, waitreport.Stand{Thread: how, Signals: name, PerSecond: column(s, 0, 1), Lost: column(s, 1, 1e6), Median: column(s, 2, 1e6)})
			}
		}
	}
	if len(p.costs) > 0 {
		e := waitreport.EstimateOf(p.costs)
		r.Signal = &e
	}
	r.Note("Processes of each kind are started anew for each round.")
	r.Note("Claimed of another binding: without the signals (GODEBUG=asyncpreemptoff=1) it does twice as much. Seen: the ratios above.")
	return r
}

// standings are the kinds of goroutine of which standing still is measured.
var standings = []string{"locked", "unlocked"}

// column is the median of a column of numbers, times a factor.
func column(rows [][3]float64, i int, factor float64) waitreport.Estimate {
	var x []float64
	for _, r := range rows {
		x = append(x, r[i]*factor)
	}
	return waitreport.EstimateOf(x)
}
