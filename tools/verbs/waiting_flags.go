package main

import (
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/tools/verbs/internal/waiting"
)

const waitingUsage = `usage: verbs waiting [-d DEVICE] [flags]
       verbs waiting -gc | -preempt [flags]
Measures what it gives and costs to wait for completions in one way or another.

  paced   a client sends a message of 64 bytes each -pace and polls for the answer; a
          server, which waits in the way that is measured, sends it back: the latency
          of the round trip. On a device the server is a process of its own. On the
          model (sim0, or where there is no device) both are in this process, of which
          the client's thread is subtracted; what the model carries out counts
  flood   -outstanding writes of 64 bytes are under way. Up to a batch of completions
          are taken at a time, and as many writes posted behind one doorbell: messages
          per second, and the time from the post of a write to its completion

The processors are utime+stime of the waiting process (getrusage) over the time that
went by: 1 is one processor. What the kernel does in interrupts and workers for
soft-RoCE is not in it. All variants are measured in turn in each round; figures are
medians of the rounds with their 90% interval, quantiles are those of a round and
exact to one part in 32.

  -gc       how fast loops run that poll, while another goroutine allocates flat out
            and the garbage collector works without rest, in proportion to without
            both; and the same of a loop that does nothing, which shows what the
            processors themselves lack
  -preempt  how fast they run without the signals by which the runtime interrupts
            a goroutine each 10 ms, in proportion to with them (in processes with
            GODEBUG=asyncpreemptoff=1 and without); and how often and how long a
            loop that does nothing stands still

Ctrl-C ends the measurement and prints what there is. It needs Linux.
Exit status: 0, 1 when something went wrong, 2 for wrong flags and unknown devices.
`

// waitingOptions are the flags of verbs waiting.
type waitingOptions struct {
	device      string
	json        bool
	svg         string
	gc, preempt bool
	config      waiting.Config
	loops       waiting.LoopConfig // of -gc and -preempt
}

// parseWaiting reads the flags.
func parseWaiting(args []string, help io.Writer) (*waitingOptions, error) {
	o := &waitingOptions{config: waiting.Default(), loops: waiting.DefaultLoops()}
	c := &o.config
	ways, batches, paces, rounds := strings.Join(c.Ways, ","), joined(c.Batches), joined(c.Paces), 0
	f := flag.NewFlagSet("verbs waiting", flag.ContinueOnError)
	f.StringVar(&o.device, "d", "", "use this `device`; "+simulatedHelp)
	f.BoolVar(&o.json, "json", false, "write one JSON object instead of text")
	f.StringVar(&o.svg, "svg", "", "draw the result into `FILE`, too")
	f.StringVar(&ways, "ways", ways, "measure these `ways` to wait:\n"+strings.Join(waiting.Ways(), " "))
	f.StringVar(&batches, "batches", batches, "measure these `batches` of completions")
	f.IntVar(&c.Outstanding, "outstanding", c.Outstanding, "`writes` under way of a flood")
	f.StringVar(&paces, "pace", paces, "`times` between paced messages")
	f.IntVar(&rounds, "n", 0, fmt.Sprintf("measure so many `rounds` (default %d; %d with -gc and -preempt)", c.Rounds, o.loops.Rounds))
	f.DurationVar(&c.Slice, "slice", c.Slice, fmt.Sprintf("measure each variant, or loop, for this `time` in a round;\nwith -gc and -preempt %v", o.loops.Slice))
	f.BoolVar(&o.gc, "gc", false, "measure what the garbage collector costs loops that poll")
	f.BoolVar(&o.preempt, "preempt", false, "measure what the runtime's signals cost them")
	given, err := parseFlags(f, args, waitingUsage+"flags:\n", help)
	if err != nil {
		return nil, err
	}
	if given["n"] {
		c.Rounds, o.loops.Rounds = rounds, rounds
	}
	if given["slice"] {
		o.loops.Slice = c.Slice
	}
	if o.gc && o.preempt {
		return nil, usage.Errorf("-gc and -preempt: choose one")
	}
	if o.gc || o.preempt {
		for _, name := range []string{"d", "svg", "ways", "batches", "outstanding", "pace"} {
			if given[name] {
				return nil, usage.Errorf("-%s means nothing to -gc and -preempt, which measure on the model", name)
			}
		}
		return o, o.loops.Validate()
	}
	c.Ways = strings.Split(ways, ",")
	c.Batches = nil
	for _, text := range strings.Split(batches, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, usage.Errorf("-batches %q: %q is no number", batches, text)
		}
		c.Batches = append(c.Batches, n)
	}
	c.Paces = nil
	for _, text := range strings.Split(paces, ",") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, usage.Errorf("-pace %q: %q is no time, such as 100us", paces, text)
		}
		c.Paces = append(c.Paces, d)
	}
	return o, c.Validate()
}

// joined is values with commas between.
func joined[T any](all []T) string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ",")
}
