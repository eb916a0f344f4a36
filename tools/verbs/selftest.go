package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tty"
	"github.com/goverbs/goverbs/tools/internal/uname"
	"github.com/goverbs/goverbs/tools/verbs/internal/selftest"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
)

const selftestUsage = `usage: verbs selftest [-d DEVICE] [-peer HOST[:PORT]] [-quick] [-record FILE] [-json]
       verbs selftest -serve [-d DEVICE]
       verbs selftest -list

Tries all that the library does on a device, in two minutes: every operation,
rings that go round, errors, events, what becomes of queue pairs that fail; and
prints a table of what passed, what failed, and what the device, its driver or its
kernel cannot do.

  verbs selftest -d mlx5_0                     both ends on one device
  verbs selftest -d mlx5_0 -peer node2         the other end on another machine,
  verbs selftest -serve -d mlx5_0              where this runs
  verbs selftest -d mlx5_0 -record mlx5.json   and a file to send to the authors
  verbs selftest -d sim0                       a ConnectX in software

What -record writes: version of this program, kernel, driver, firmware, board, the
device's limits, the table, and of each test the bytes of work requests and of
completions as they stood in memory. What it does not write: data of messages,
which are made up anyway, keys, memory addresses, GIDs, GUIDs, LIDs, MAC and IP
addresses, host names, serial numbers. They are zeros, or numbers that count: the
first key 1, the second 2. The file is text: look at it.

-serve takes orders from whoever connects, for one run: to send and receive in
memory of its own. Use it in networks that you trust.

Exit status: 0 nothing failed, 1 something did or could not be run, 2 wrong use.

`

// selftestOptions are the flags of verbs selftest.
type selftestOptions struct {
	device, peer, record string
	serve, list          bool
	quick, json          bool
	port, rounds         int
	patience             time.Duration
	only                 []string
}

// cmdSelftest is verbs selftest.
func cmdSelftest(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseSelftest(args, stdout)
	switch {
	case err != nil:
	case o.list:
		for _, name := range selftest.Names() {
			fmt.Fprintln(stdout, name)
		}
	default:
		if err = o.run(ctx, stdout, stderr); errors.Is(err, errSelftestFailed) {
			return 1
		}
	}
	return exitStatus(ctx, "selftest", err, stderr)
}

// errSelftestFailed: the table has told it all.
var errSelftestFailed = errors.New("something failed")

func parseSelftest(args []string, help io.Writer) (o selftestOptions, err error) {
	f := flag.NewFlagSet("verbs selftest", flag.ContinueOnError)
	var only string
	f.StringVar(&o.device, "d", "", "test this `device` (the first that can be used); "+simulatedHelp)
	f.StringVar(&o.peer, "peer", "", "the other end is served on this `host`, with a port if not the usual one")
	f.BoolVar(&o.serve, "serve", false, "be the other end, for one run")
	f.IntVar(&o.port, "port", selftest.Port, "with -serve: listen on this TCP `port`")
	f.BoolVar(&o.quick, "quick", false, "do everything less often: seconds in the place of minutes")
	f.IntVar(&o.rounds, "rounds", 0, "do what is done often at most `N` times; 0: as often as each test likes")
	f.DurationVar(&o.patience, "patience", 10*time.Second, "how long a completion or event may take, a `time`; more for devices under emulation")
	f.StringVar(&only, "only", "", "run the tests whose names contain one of these `words`, separated by commas")
	f.BoolVar(&o.list, "list", false, "list the tests and leave")
	f.StringVar(&o.record, "record", "", "write a `file` for those who compare devices; - is standard output, in the place of the table")
	f.BoolVar(&o.json, "json", false, "write one JSON object instead of a table")
	given, err := parseFlags(f, args, selftestUsage, help)
	switch {
	case err != nil:
		return o, err
	case o.port < 1 || o.port > 65535:
		return o, usage.Errorf("-port %d: allowed are 1 to 65535", o.port)
	case given["port"] && !o.serve:
		return o, usage.Errorf("-port is for -serve; -peer takes HOST:PORT")
	case o.rounds < 0 || o.rounds > 1_000_000:
		return o, usage.Errorf("-rounds %d: allowed are 0 to 1000000", o.rounds)
	case o.patience < 100*time.Millisecond || o.patience > 5*time.Minute:
		return o, usage.Errorf("-patience %v: allowed are 100ms to 5m", o.patience)
	case o.json && o.record == "-":
		return o, usage.Errorf("-json and -record - both write to standard output: choose one")
	}
	if delete(given, "list"); o.list && len(given) > 0 {
		return o, usage.Errorf("-list runs nothing: -%s does not go with it", slices.Min(slices.Collect(maps.Keys(given))))
	}
	if o.serve {
		for _, other := range []string{"peer", "record", "only", "json", "quick", "rounds", "patience"} {
			if given[other] {
				return o, usage.Errorf("-serve does what the other end says: -%s is for that one", other)
			}
		}
	}
	if isSimulated(o.device) && (o.serve || o.peer != "") {
		return o, usage.Errorf("%s is in this process: it can have no other end elsewhere", o.device)
	}
	if o.peer != "" {
		if o.peer, err = hostPort(o.peer); err != nil {
			return o, err
		}
	}
	if given["only"] {
		for word := range strings.SplitSeq(only, ",") {
			if word = strings.TrimSpace(word); word != "" {
				o.only = append(o.only, word)
			}
		}
		if len(o.only) == 0 {
			return o, usage.Errorf("-only: no words")
		}
	}
	return o, nil
}

// hostPort adds the usual port to a host that has none.
func hostPort(host string) (string, error) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if name == "" {
			return "", usage.Errorf("-peer %q: there is no host before the port", host)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "", usage.Errorf("-peer %q: the port is none of 1 to 65535", host)
		}
		return host, nil
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.ContainsAny(bare, "[] /") || strings.Contains(bare, ":") && !isAddress(bare) {
		return "", usage.Errorf("-peer %q: it is neither a host nor HOST:PORT", host)
	}
	return net.JoinHostPort(bare, strconv.Itoa(selftest.Port)), nil
}

// isAddress tells whether s is an IP address, also one that names its interface: fe80::1%eth0.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// run runs the tests, or serves.
func (o *selftestOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	open, proves, err := o.opener()
	if err != nil {
		return err
	}
	if o.serve {
		return o.other(ctx, open, stdout, stderr)
	}
	var file *resultFile
	if o.record != "-" {
		if file, err = openResult("record", o.record); err != nil {
			return err
		}
		defer file.discard()
	}
	first, err := open()
	if err != nil {
		return err
	}
	place := placeOf(first)
	place.Peer, place.Quick, place.Proves = o.peer, o.quick, proves
	about := selftest.Describe(first)
	err = selftest.Room(first)
	first.Close()
	if err != nil {
		return err
	}
	c := selftest.Config{Open: open, Peer: o.peer, Quick: o.quick, Rounds: o.rounds, Only: o.only, Record: o.record != "", Patience: o.patience}
	table := stdout
	if o.json || o.record == "-" {
		table = io.Discard
	}
	live := tty.Is(stdout) && table == stdout
	if live {
		c.Begin = func(name string) { fmt.Fprint(stdout, tty.Line("...            "+name)) }
	}
	c.Tell = func(r selftest.Row) {
		if live {
			fmt.Fprint(stdout, tty.Erase)
		}
		fmt.Fprintln(table, r.Line())
	}
	fmt.Fprintln(table, place.Title())
	result, err := selftest.Run(ctx, c)
	if err != nil {
		return err
	}
	report := result.Report(*place)
	fmt.Fprintln(table, report.Summary())
	if o.json {
		err = report.WriteJSON(stdout)
	}
	if o.record != "" {
		record := result.Record(report, about)
		if file == nil {
			err = errors.Join(err, record.Write(stdout))
		} else {
			err = errors.Join(err, file.keep(record.Write))
		}
		if err == nil && file != nil && !o.json {
			fmt.Fprintf(stdout, "%s has the bytes of requests and completions, and no data, keys, addresses or names: look at it, and send it along.\n", o.record)
		}
	}
	if err == nil && !report.OK && report.Failed+report.NotRun > 0 {
		return errSelftestFailed
	}
	return err
}

// opener finds the device. What it returns opens it anew each time.
func (o *selftestOptions) opener() (open func() (*uverbs.Device, error), proves string, err error) {
	if isSimulated(o.device) {
		m, err := newSimulatedSystem()
		return func() (*uverbs.Device, error) { return m.open(o.device) }, modelProves, err
	}
	name := o.device
	if name == "" {
		list, err := uverbs.Devices()
		for _, d := range list {
			if err = d.Err; err == nil {
				if err = usable(thisSystem{}, d.Name); err == nil {
					name = d.Name
					break
				}
			}
		}
		if name == "" {
			return nil, "", withoutDevice(err, "")
		}
	} else if err := usable(thisSystem{}, name); err != nil {
		return nil, "", withoutDevice(err, name)
	}
	return func() (*uverbs.Device, error) { return uverbs.Open(name, nil) }, "this device, its driver and this kernel with the library, as far as each row says", nil
}

// placeOf says what a device is.
func placeOf(d *uverbs.Device) *selftest.Place {
	info, attr := d.Info(), d.Attr()
	p := &selftest.Place{Tool: toolVersion(), Device: d.Name(), Driver: info.Driver.String(), Firmware: attr.Firmware, Kernel: uname.System()}
	for n := 1; n <= attr.Ports; n++ {
		if port, err := d.PortAttr(n); err == nil && port.State == uverbs.PortActive {
			p.Link = port.LinkLayer.String()
			break
		}
	}
	return p
}

// other is the other end.
func (o *selftestOptions) other(ctx context.Context, open func() (*uverbs.Device, error), stdout, stderr io.Writer) error {
	d, err := open()
	if err != nil {
		return err
	}
	err = selftest.Room(d)
	d.Close()
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(o.port))
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "verbs selftest: the other end of one run, on TCP port %d; Ctrl-C ends it\n", l.Addr().(*net.TCPAddr).Port)
	err = selftest.Serve(ctx, l, open, func(s string) { fmt.Fprintf(stderr, "verbs selftest: %s\n", s) })
	if err == nil {
		fmt.Fprintln(stdout, "verbs selftest: the run is over")
	}
	return err
}
