package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/doctor"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

const doctorUsage = `usage: verbs doctor [-d DEVICE] [-memlock SIZE] [-pollers N] [-pid PID]
                    [-skip CHECKS] [-timeout TIME] [-json] [-v]
Looks at this machine and process from top to bottom and says what keeps RDMA from
working, or from working well: what is wrong, how that was seen, and the command
that mends it. It changes nothing and needs no privilege; what it may not look at
it says. The exit status is 0 when nothing worse than a note was found, 1 for
warnings, 3 for faults, and 2 for wrong flags.

  verbs doctor                     all devices, and this process
  verbs doctor -d mlx5_0 -v        one device, with all that was looked at
  verbs doctor -memlock 64G        is that much memory allowed to be registered?
  verbs doctor -pid 4711           the limits of a running program
  verbs doctor -skip fork,mtu      without what is known and borne
  verbs doctor -json               for programs

`

// doctorOptions are the flags of verbs doctor.
type doctorOptions struct {
	device        string
	memlock       byteSize
	pollers, pid  int
	skip          skippedChecks
	timeout       time.Duration
	json, verbose bool
}

// cmdDoctor is verbs doctor.
func cmdDoctor(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return examine(ctx, doctor.Host(), args, stdout, stderr)
}

func examine(ctx context.Context, n *doctor.Node, args []string, stdout, stderr io.Writer) int {
	o, err := parseDoctor(args, stdout)
	if err == nil {
		n.Device, n.Memlock, n.Pollers, n.PID = o.device, uint64(o.memlock), o.pollers, o.pid
		if bad := n.Validate(); bad != nil {
			err = usage.Errorf("%v", bad)
		}
	}
	if err != nil {
		return exitStatus(ctx, "doctor", err, stderr)
	}
	report := doctor.Examine(ctx, n, o.skip.left(), &doctor.Options{Patience: o.timeout})
	if o.json {
		err = report.WriteJSON(stdout)
	} else {
		err = report.WriteText(stdout, o.verbose)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintf(stderr, "verbs doctor: %v\n", err)
		return max(1, report.Status())
	}
	return report.Status()
}

func parseDoctor(args []string, stdout io.Writer) (o doctorOptions, err error) {
	f := flag.NewFlagSet("verbs doctor", flag.ContinueOnError)
	f.StringVar(&o.device, "d", "", "look at this `device` only")
	f.Var(&o.memlock, "memlock", "the program is to register this much memory: a `size` such as 512M or 64G")
	f.IntVar(&o.pollers, "pollers", 0, "the program is to poll busily in this many goroutines: a `number`")
	f.IntVar(&o.pid, "pid", 0, "look at the limits of the process with this `number`; by default at those of this one")
	f.Var(&o.skip, "skip", "leave out the checks with these `names`, separated by commas; -v lists all")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "wait no longer than this `time` for the kernel: what hangs is reported")
	f.BoolVar(&o.json, "json", false, "write JSON, with keys that stay")
	f.BoolVar(&o.verbose, "v", false, "list every check, what it saw, and what follows from other findings")
	switch given, bad := parseFlags(f, args, doctorUsage, stdout); {
	case bad != nil:
		err = bad
	case given["pollers"] && (o.pollers < 1 || o.pollers > 1<<16):
		err = usage.Errorf("-pollers %d: the number of polling goroutines is 1 to %d; leave it out where none polls", o.pollers, 1<<16)
	case given["memlock"] && o.memlock == 0:
		err = usage.Errorf("-memlock 0: leave it out where nothing is to be registered, or say how much is")
	case o.timeout <= 0:
		err = usage.Errorf("-timeout %v: it takes some time to look; leave it out for 30 seconds", o.timeout)
	case isSimulated(o.device):
		err = usage.Errorf("-d %s: that device is in software, in the memory of one process: nothing of this machine keeps it from working", o.device)
	case given["pid"] && (o.pid < 1 || o.pid > 1<<22):
		err = usage.Errorf("-pid %d: a process has a number of 1 to %d; leave it out for this one", o.pid, 1<<22)
	}
	return o, err
}

// byteSize is a flag: a number of bytes, with K, M, G or T for powers of 1024.
type byteSize uint64

// String is the number as Set reads it.
func (b *byteSize) String() string { return strconv.FormatUint(uint64(*b), 10) }

// Set reads the number.
func (b *byteSize) Set(s string) error {
	digits, unit := strings.TrimRight(s, "iB"), uint64(1)
	if digits != "" {
		if i := strings.IndexByte("kmgt", digits[len(digits)-1]|0x20); i >= 0 {
			digits, unit = digits[:len(digits)-1], 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return errors.New("a size is a number of bytes, or with a unit: 65536, 512M, 64G")
	}
	*b = byteSize(n * unit)
	return nil
}
