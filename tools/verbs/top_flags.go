package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

const topUsage = `usage: verbs top [-d DEVICE] [-i SECONDS] [-n COUNT] [-once] [-json]
                 [-listen ADDRESS] [-trace=auto|off] [-events] [-syscalls] [-cqe]
Shows every RDMA object of this machine, whoever owns it, and what moves: ports
and their counters, processes, completion queues, queue pairs, connections. On a
terminal the view renews itself; q or Ctrl-C ends it. Elsewhere it is text, or
with -json one object a line.

Everybody sees objects, owners, counters and packet rates. Root sees more of
completion queues, by probes that cost the programs nothing: how full those of
soft-RoCE are, whether they are armed, events a second, errors. Three more
levels have probes where data passes, and have to be asked for. The lines at the
top say what is live, and why the rest is not.

  verbs top                         watch
  verbs top -once -json             one object, with rates over one second
  verbs top -n 10 -i 0.5            ten looks, half a second apart
  verbs top -cqe -events -d rxe0    all that can be known of rxe0's queues
  verbs top -listen localhost:9400  OpenMetrics at http://localhost:9400/metrics

Columns: OCC completions that nobody has polled, % of the ring, HIGH the most
there ever were, CQE/s completions, EV/s events read, ERR overruns, PEND an event
waits, WAKE and P99 from the event to the end of its read, VEC the vector.
SQ-PKT/s and RQ-PKT/s are by the sequence numbers of connected queue pairs.
Exit status: 0, 1 when something went wrong, 2 for wrong flags and unknown devices.

`

// topOptions are the flags of verbs top.
type topOptions struct {
	device                string
	interval              time.Duration
	count                 int
	once, json            bool
	listen, trace         string
	events, syscalls, cqe bool
}

const (
	topInterval       = time.Second
	topListenInterval = 10 * time.Second
	topLeastInterval  = 100 * time.Millisecond
	topMostInterval   = time.Hour
)

func parseTop(args []string, stdout io.Writer) (o topOptions, err error) {
	f := flag.NewFlagSet("verbs top", flag.ContinueOnError)
	f.StringVar(&o.device, "d", "", "look at this `device` only")
	f.Func("i", "look every so many `seconds`, or a time such as 500ms (1, with -listen 10)", func(s string) error {
		o.interval, err = parseTopInterval(s)
		return err
	})
	f.IntVar(&o.count, "n", 0, "end after `count` looks; 0 goes on")
	f.BoolVar(&o.once, "once", false, "one look, after one interval, and no renewal on terminals")
	f.BoolVar(&o.json, "json", false, "write JSON, one object a look, with keys that stay")
	f.StringVar(&o.listen, "listen", "", "serve OpenMetrics at /metrics of this `address`, host:port, and show nothing")
	f.StringVar(&o.trace, "trace", "auto", "`whether` to look into the kernel: auto, where that is allowed, or off")
	f.BoolVar(&o.events, "events", false, "measure how long readers of completion events take to wake: two probes for each event")
	f.BoolVar(&o.syscalls, "syscalls", false, "count calls to uverbs by process and method: two probes for each call")
	f.BoolVar(&o.cqe, "cqe", false, "count each completion of soft-RoCE: a probe for each")
	given, err := parseFlags(f, args, topUsage, stdout)
	switch {
	case err != nil:
		return o, err
	case o.once && o.count == 0 && given["n"]:
		return o, usage.Errorf("-once is one look, and -n 0 goes on: leave one of them out")
	}
	return o, o.check()
}

// parseTopInterval reads seconds, or a time with its unit.
func parseTopInterval(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if seconds, err2 := strconv.ParseFloat(s, 64); err2 == nil {
		// What is too large, or no number, is not between the limits
		// either.
		d, err = time.Duration(min(max(seconds, 0), 1e6)*float64(time.Second)), nil
	}
	if err != nil || d < topLeastInterval || d > topMostInterval {
		return 0, fmt.Errorf("%q is not a time from %v to %v, such as 0.5 or 500ms", s, topLeastInterval, topMostInterval)
	}
	return d, nil
}

// check refuses flags that contradict each other.
func (o *topOptions) check() error {
	if o.interval == 0 {
		o.interval = topInterval
		if o.listen != "" {
			o.interval = topListenInterval
		}
	}
	switch {
	case o.count < 0:
		return usage.Errorf("-n %d: the number of looks is 0, for no end, or more", o.count)
	case o.once && o.count > 1:
		return usage.Errorf("-once is one look, and -n %d are more", o.count)
	case o.trace != "auto" && o.trace != "off":
		return usage.Errorf("-trace=%s: it is auto or off", o.trace)
	case o.trace == "off" && (o.events || o.syscalls || o.cqe):
		return usage.Errorf("-events, -syscalls and -cqe need what -trace=off turns off")
	case o.listen != "" && (o.once || o.json || o.count > 0):
		return usage.Errorf("-listen goes on until Ctrl-C and writes metrics: -once, -json and -n do not go with it")
	}
	if o.listen != "" {
		_, port, err := net.SplitHostPort(o.listen)
		if err != nil || port == "" {
			return usage.Errorf("-listen %q: an address is host:port, such as 127.0.0.1:9400 or [::1]:9400, or :9400 for all interfaces", o.listen)
		}
		if _, err := net.LookupPort("tcp", port); err != nil {
			return usage.Errorf("-listen %q: a port is a number up to 65535, and 0 takes one that is free", o.listen)
		}
	}
	if o.once {
		o.count = 1
	}
	return nil
}

// topListen listens. Its errors say what to do about them.
func topListen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-listen %s: %w%s", address, err, topListenHint(err))
	}
	return l, nil
}

// topListenHint says what to do about an address that cannot be had.
func topListenHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "; another program has that port: take another one"
	case errors.Is(err, syscall.EACCES):
		return "; ports below 1024 (sysctl net.ipv4.ip_unprivileged_port_start) are root's: take a higher one"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; no interface here has that address: ip address lists them"
	case errors.Is(err, syscall.EINVAL):
		return "; an address of one link, which begins with fe80, needs its interface: [fe80::1%eth0]:9400"
	}
	return ""
}
