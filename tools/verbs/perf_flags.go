package main

import (
	"flag"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/perf"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

const perfUsage = `usage: verbs perf TEST [flags]         wait for a client
       verbs perf TEST [flags] HOST    measure with the server on HOST

TEST is send_bw, send_lat, write_bw, write_lat, read_bw, read_lat, atomic_bw or
atomic_lat: what perftest's program of that name, with ib_ before it, measures, with the
same numbers by default. Both sides are verbs perf, and are given the same TEST, -c, -s,
-n, -q, -b, -D and -A. With -d sim0 or sim1, a ConnectX in software, both sides run in
this process. Flags, in perftest's letters:
  -d, --ib-dev DEVICE       RDMA device (the first that can be opened)
  -i, --ib-port PORT        port of the device (1)
  -x, --gid-index INDEX     local GID (RoCE v2, IPv4 before others; verbs devinfo lists them)
  -p, --port PORT           TCP port of the server (18515)
  -c, --connection TYPE     RC, UC or UD (RC)
  -s, --size BYTES          length of a message, also as 64K or 1M (bw 65536, lat 2; UD at
                            most the MTU)
  -a, --all                 all powers of two from 2 to 2^23
  -n, --iters NUMBER        messages of each queue pair (1000; write_bw 5000)
  -D, --duration SECONDS    measure for so long, in place of -n
  -m, --mtu BYTES           path MTU (that of the port)
  -I, --inline_size BYTES   carry messages up to this size in the request (bw 0; lat 236,
                            write_lat 220, UD 188, or 0 where the device takes less)
  -u, --qp-timeout EXP      4.096 us * 2^EXP without an acknowledgement: repeat (14)
  -S, --sl LEVEL            service level (0)
  -L, --hop_limit NUMBER    hop limit (64)
      --tclass NUMBER       traffic class (0)
  -r, --rx-depth NUMBER     receives that stand ready (512; UC and UD bw: up to 16000)
      --recv_post_list N    receives posted at a time (a quarter of -r, at most 64)
  -o, --outs NUMBER         reads and atomics under way (the most of the device)
  -A, --atomic_type TYPE    FETCH_AND_ADD or CMP_AND_SWAP (FETCH_AND_ADD)
      --use_hugepages       messages in huge pages
  of tests of bandwidth:
  -b, --bidirectional       both sides send
  -q, --qp NUMBER           queue pairs (1)
  -t, --tx-depth NUMBER     requests under way on each (128)
  -l, --post_list NUMBER    requests behind one doorbell (1)
  -Q, --cq-mod NUMBER       requests for one completion (100; -l; 1 above 8192 bytes)
  -N, --noPeak              do not look for the best stretch (so above 20000 iterations)
      --report_gbits        Gb/s in place of MiB/s (2^20 bytes)
  of tests of latency:
  -H, --report-histogram    print all latencies, sorted
  -U, --report-unsorted     print them in the order in which they came
  -histogram                draw how they are spread
  how to wait, each side for itself (busy without):
  -e, --events              sleep until there is a completion
  -adaptive                 spin while completions are near, and sleep while they are not
  -X, --vector NUMBER       completion vector of the events (0)
  and
  -warmup NUMBER            messages of each queue pair before it counts (100; 0: none)
      --cpu_util            a column of processor time: 100% is one processor
      --output FIGURE       print bandwidth, message_rate or latency alone
  -json                     print one JSON object a size in place of text
  -svg FILE                 draw the results, too
  -F, -f, --perform_warm_up, --use_old_post_send, --disable_pcie_relaxed mean nothing here
  and are accepted.

Of latencies send_lat and write_lat measure half a round trip, read_lat and atomic_lat all
of the operation. Ctrl-C ends the measurement on both sides, and both print what there is.
Exit status: 0, 1 when something went wrong or was interrupted, 2 for wrong flags.
Examples:
  verbs perf send_lat -d sim0                  both sides here, without a device
  verbs perf write_bw -d mlx5_0                on one host, and on the other:
  verbs perf write_bw -d mlx5_0 10.0.0.1
  verbs perf send_bw -s 64 -l 32 -q 4 -D 10 --report_gbits 10.0.0.1
  verbs perf read_lat -a -json 10.0.0.1 >read.json
`

// perfMissing are flags of perftest that verbs perf does not have, and why or what to
// use.
var perfMissing = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"R": "rdma_cm is not spoken: leave out -R, and name the GID with -x", "rdma_cm": "see R",
		"z": "rdma_cm is not spoken: addresses go over TCP", "comm_rdma_cm": "see z", "com_rdma_cm": "see z",
		"T": "it is of rdma_cm: use --tclass", "tos": "see T", "retry_count": "it is of rdma_cm; requests are repeated without end, as perftest does",
		"C": "times are in microseconds", "report-cycles": "see C",
		"g": "multicast is not measured", "mcg": "see g", "M": "see g", "MGID": "see g",
		"O": "one port is measured at a time: run it for each port", "dualport": "see O", "report-per-port": "see O",
		"w": "compare bandwidth_mb_s of -json", "limit_bw": "see w", "y": "compare messages_per_s of -json", "limit_msgrate": "see y",
		"W": "counters are in /sys/class/infiniband/DEVICE/ports/PORT", "report-counters": "see W",
		"out_json": "use -json, which prints to standard output", "out_json_file": "see out_json",
		"use-srq": "receive queues are the queue pairs' own", "run_infinitely": "use -D with a long time: Ctrl-C prints what there is",
		"report-both": "use -json on both sides", "reversed": "start the client on the other host",
		"ipv6": "choose the GID with -x", "ipv6-addr": "HOST may be an IPv6 address", "source_ip": "choose the GID with -x", "bind_source_ip": "see source_ip",
		"pkey_index": "index 0 is used", "dlid": "the other side tells it", "dont_xchg_versions": "the exchange is verbs perf's own",
		"force-link": "the link is what the port says", "latency_gap": "messages follow each other at once", "mr_per_qp": "all queue pairs share a memory region",
		"odp": "memory is registered in full", "rate_limit": "rates are not limited", "burst_size": "see rate_limit", "rate_units": "see rate_limit",
		"rate_limit_type": "see rate_limit", "typical_pkt_size": "see rate_limit", "wait_destroy": "everything is closed at once",
		"inline_recv": "receives go to memory", "use_cuda": "messages are in the host's memory", "use_rocm": "see use_cuda", "mmap": "see use_cuda", "mmap-offset": "see use_cuda",
		"aes_xts": "messages are not encrypted", "aes_block_size": "see aes_xts", "encrypt_on_tx": "see aes_xts", "sig_before": "see aes_xts", "kek_path": "see aes_xts",
		"credentials_path": "see aes_xts", "data_enc_keys_number": "see aes_xts", "data_enc_key_app_path": "see aes_xts",
		"log_dci_streams": "it is of DC: choose RC, UC or UD with -c", "log_active_dci_streams": "see log_dci_streams",
		"cqe_poll": "up to 64 completions are taken at a time", "pin_cores": "use taskset",
	}
})

// perfOptions are the flags of verbs perf.
type perfOptions struct {
	config  perf.Config
	text    perf.Text
	json    bool
	svg     string
	drawing *resultFile   // of svg
	count   *atomic.Int64 // of messages so far, or nil: nobody else than a terminal is to know
}

// parsePerf reads the test, the flags and the server's name.
func parsePerf(args []string, help io.Writer) (o *perfOptions, err error) {
	o = &perfOptions{config: perf.Default(perf.Test{})}
	c := &o.config
	f := newGetopt("verbs perf")
	var events, adaptive, ignored, version bool
	var margin int
	f.word(&c.Device, "d", "ib-dev")
	f.number(&c.IBPort, "i", "ib-port")
	f.number(&c.GIDIndex, "x", "gid-index")
	f.number(&c.Port, "p", "port")
	f.word(&c.Transport, "c", "connection")
	f.bytes(&c.Size, "s", "size")
	f.toggle(&c.All, "a", "all")
	f.number(&c.Iters, "n", "iters")
	f.seconds(&c.Duration, 365*24*time.Hour, "D", "duration")
	f.number(&c.MTU, "m", "mtu")
	f.number(&c.Inline, "I", "inline_size")
	f.number(&c.Timeout, "u", "qp-timeout")
	f.number(&c.ServiceLevel, "S", "sl")
	f.number(&c.HopLimit, "L", "hop_limit")
	f.number(&c.TrafficClass, "", "tclass")
	f.number(&c.RecvDepth, "r", "rx-depth")
	f.number(&c.RecvList, "", "recv_post_list")
	f.number(&c.ReadDepth, "o", "outs")
	f.word(&c.Atomic, "A", "atomic_type")
	f.toggle(&c.HugePages, "", "use_hugepages")
	f.toggle(&c.Bidirectional, "b", "bidirectional")
	f.number(&c.QPs, "q", "qp")
	f.number(&c.SendDepth, "t", "tx-depth")
	f.number(&c.PostList, "l", "post_list")
	f.number(&c.SignalEvery, "Q", "cq-mod")
	f.toggle(&c.NoPeak, "N", "noPeak")
	f.toggle(&o.text.Gbits, "", "report_gbits")
	f.toggle(&o.text.Sorted, "H", "report-histogram")
	f.toggle(&o.text.Unsorted, "U", "report-unsorted")
	f.toggle(&o.text.Bars, "", "histogram")
	f.toggle(&events, "e", "events")
	f.toggle(&adaptive, "", "adaptive")
	f.number(&c.Vector, "X", "vector")
	f.number(&c.Warmup, "", "warmup")
	f.toggle(&o.text.CPU, "", "cpu_util")
	f.word(&o.text.Only, "", "output")
	f.toggle(&o.json, "", "json")
	f.word(&o.svg, "", "svg")
	f.toggle(&version, "V", "version")
	f.toggle(&ignored, "F", "CPU-freq")
	f.number(&margin, "f", "margin")
	for _, name := range []string{"perform_warm_up", "use_old_post_send", "disable_pcie_relaxed"} {
		f.toggle(&ignored, "", name)
	}
	hosts, err := f.parse(args)
	if err == flag.ErrHelp {
		fmt.Fprint(help, perfUsage)
		return nil, errHelp
	} else if err != nil {
		return nil, perfFlagError(err)
	}
	if version {
		fmt.Fprintf(help, "verbs perf %s; it speaks to itself only, with the flags of perftest 6\n", toolVersion())
		return nil, errHelp
	}
	if len(hosts) == 0 {
		return nil, usage.Errorf("say what to measure: %s", strings.Join(perf.TestNames(), ", "))
	}
	if c.Test, err = perf.ParseTest(hosts[0]); err != nil {
		return nil, err
	}
	c.Samples = o.text.Sorted || o.text.Unsorted || o.text.Bars
	return o, o.finish(hosts[1:], events, adaptive, givenFlags(f.FlagSet))
}

// finish checks what flags cannot.
func (o *perfOptions) finish(hosts []string, events, adaptive bool, given map[string]bool) error {
	c := &o.config
	any := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return given[n] })
	}
	switch {
	case len(hosts) > 1:
		return usage.Errorf("one server at most, not %s", strings.Join(hosts, " and "))
	case len(hosts) == 1 && hosts[0] == "":
		return usage.Errorf("the server's name is empty")
	case len(hosts) == 1 && !isHost(hosts[0]):
		return usage.Errorf("server %q: it is a name or an address, without a port, which is given with -p", hosts[0])
	case c.Test.Verb != perf.Atomic && any("A", "atomic_type"):
		return usage.Errorf("-A: %s has no atomics", c.Test)
	case events && adaptive:
		return usage.Errorf("-e and -adaptive: choose one")
	case c.GIDIndex < 0 && any("x", "gid-index"):
		return usage.Errorf("GID index (-x) %d: it begins with 0; verbs devinfo lists them", c.GIDIndex)
	case o.json && (c.Samples || o.text.Only != ""):
		return usage.Errorf("-json has all figures, and a histogram: leave out -H, -U, -histogram and --output")
	}
	for _, f := range []struct {
		value, least int
		short, long  string
	}{{c.Size, 1, "s", "size"}, {c.Iters, perf.FewestIters, "n", "iters"}, {c.MTU, 256, "m", "mtu"}, {c.RecvDepth, 1, "r", "rx-depth"}, {c.RecvList, 1, "", "recv_post_list"},
		{c.ReadDepth, 1, "o", "outs"}, {c.SendDepth, 1, "t", "tx-depth"}, {c.SignalEvery, 1, "Q", "cq-mod"}, {c.Inline, 0, "I", "inline_size"}, {c.Warmup, 0, "", "warmup"}} {
		// What stands for a default is no choice.
		if f.value < min(f.least, 1) && any(f.short, f.long) {
			return usage.Errorf("--%s %d: it is at least %d", f.long, f.value, f.least)
		}
	}
	switch o.text.Only {
	case "", "bandwidth", "message_rate":
	case "latency":
		if !c.Test.Latency {
			return usage.Errorf("--output latency: %s measures none", c.Test)
		}
	default:
		return usage.Errorf("--output %q: choose bandwidth, message_rate or latency", o.text.Only)
	}
	if len(hosts) == 1 {
		c.Server = hosts[0]
	}
	c.Wait = perf.Busy
	if events {
		c.Wait = perf.Event
	} else if adaptive {
		c.Wait = perf.Adaptive
	}
	c.Transport = strings.ToUpper(c.Transport)
	return c.Complete()
}

// isHost says whether a name may be one of a host. An IPv6 address has no brackets.
func isHost(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || !strings.ContainsAny(name, ":/[] ")
}

// perfFlagError says of a flag of perftest's that there is none, and what to use.
func perfFlagError(err error) error {
	name, ok := strings.CutPrefix(err.Error(), "there is no flag -")
	if !ok {
		return usage.Errorf("%v", err)
	}
	why, known := perfMissing()[name]
	if !known && len(name) > 1 {
		// A letter, and its value.
		if w, ok := perfMissing()[name[:1]]; ok && !strings.Contains(name, "-") {
			name, why, known = name[:1], w, true
		}
	}
	if other, ok := strings.CutPrefix(why, "see "); ok {
		why = perfMissing()[other]
	}
	if !known {
		return usage.Errorf("%v", err)
	}
	dash := "-"
	if len(name) > 1 {
		dash = "--"
	}
	return usage.Errorf("%s%s of perftest is not supported: %s", dash, name, why)
}
