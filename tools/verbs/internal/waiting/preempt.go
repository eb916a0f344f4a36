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
func RunPreempt(ctx context.Context, c LoopConfig, command []string, tell func(done, of int)) (r *waitreport.LoopReport, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var children [2]*loopChild // with, without signals
	for i := range children {
		if children[i], err = startLoops(command, fmt.Sprintf("asyncpreemptoff=%d", i)); err != nil {
			break
		}
		defer func() { err = errors.Join(err, children[i].close()) }()
	}
	if err != nil {
		return nil, err
	}
	all := allLoops()
	if runtime.GOMAXPROCS(0) == 1 {
		all = slices.DeleteFunc(all, func(l loop) bool { return l.name == "busy" }) // which poll.Busy refuses
	}
	rates := [2][][]float64{make([][]float64, len(all)), make([][]float64, len(all))}
	var costs []float64
	standing := [2]map[string][][3]float64{{}, {}}
	err = func() error {
		for round := range c.Rounds {
			for i, l := range all {
				if tell != nil {
					tell(round*len(all)+i, c.Rounds*len(all))
				}
				var pair [2]float64
				for k := range pair {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					k = (k + round) % 2
					if err := children[k].numbers(pair[k:k+1], "run %s %d", l.name, c.Slice); err != nil {
						return err
					}
				}
				rates[0][i], rates[1][i] = append(rates[0][i], pair[0]), append(rates[1][i], pair[1])
			}
			var cost [1]float64
			if err := children[0].numbers(cost[:], "signal once %d", c.Slice); err != nil {
				return err
			}
			costs = append(costs, cost[0]*1e6)
			for _, how := range standings {
				for k := range children {
					k = (k + round) % 2
					var s [3]float64
					if err := children[k].numbers(s[:], "stands %s %d", how, c.Slice); err != nil {
						return err
					}
					standing[k][how] = append(standing[k][how], s)
				}
			}
		}
		return nil
	}()
	if len(rates[1][len(all)-1]) == 0 {
		return nil, err
	}
	r = waitreport.NewLoops("without signals", "with signals", usec(c.Slice))
	for i, l := range all {
		r.Add(l.name, l.what, l.model, rates[1][i], rates[0][i])
	}
	for _, how := range standings {
		for k, name := range []string{"with signals", "without signals"} {
			if s := standing[k][how]; len(s) > 0 {
				r.Stands = append(r.Stands, waitreport.Stand{Thread: how, Signals: name, PerSecond: column(s, 0, 1), Lost: column(s, 1, 1e6), Median: column(s, 2, 1e6)})
			}
		}
	}
	if len(costs) > 0 {
		e := waitreport.EstimateOf(costs)
		r.Signal = &e
	}
	r.Note("Claimed of another binding: without the signals (GODEBUG=asyncpreemptoff=1) it does twice as much. Seen: the ratios above.")
	r.Interrupted = ctx.Err() != nil
	return r, err
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
