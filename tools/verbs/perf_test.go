package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goverbs/goverbs/tools/verbs/internal/perf"
)

// The flags of perftest, by both their names and in all the forms that getopt takes them.
func TestPerfFlags(t *testing.T) {
	type c = perf.Config
	for args, change := range map[string]func(*c){
		"send_bw":                    func(*c) {},
		"ib_send_bw 10.0.0.1":        func(c *c) { c.Server = "10.0.0.1" },
		"-s 64 send_bw host -n 1000": func(c *c) { c.Size, c.Server = 64, "host" },
		"send_bw -d mlx5_0 -i 2 -x 3 -p 5 -c uc -s 6 -n 7 -m 1024 -I 8 -u 9 -S 10 -L 11 --tclass 12 -r 13 --recv_post_list 2 -b -q 14 -t 16 -l 8 -Q 4 -N -e -X 1 -warmup 17 host": func(c *c) {
			*c = perf.Config{Test: c.Test, Atomic: c.Atomic, Device: "mlx5_0", IBPort: 2, GIDIndex: 3, Port: 5, Transport: "UC", Size: 6, Iters: 7, MTU: 1024, Inline: 8, Timeout: 9, ServiceLevel: 10, HopLimit: 11, TrafficClass: 12, RecvDepth: 13, RecvList: 2, Bidirectional: true, QPs: 14, SendDepth: 16, PostList: 8, SignalEvery: 4, NoPeak: true, Wait: perf.Event, Vector: 1, Warmup: 17, Server: "host"}
		},
		"send_bw --ib-dev=mlx5_0 --ib-port=2 --gid-index 3 --port=5 --connection=UC --size=6 --iters=7 --mtu 1024 --inline_size=8 --qp-timeout=9 --sl=10 --hop_limit=11 --rx-depth=13 --bidirectional --qp=14 --tx-depth=16 --post_list=8 --cq-mod=4 --noPeak --events --vector=1": func(c *c) {
			*c = perf.Config{Test: c.Test, Atomic: c.Atomic, Device: "mlx5_0", IBPort: 2, GIDIndex: 3, Port: 5, Transport: "UC", Size: 6, Iters: 7, MTU: 1024, Inline: 8, Timeout: 9, ServiceLevel: 10, HopLimit: 11, RecvDepth: 13, Bidirectional: true, QPs: 14, SendDepth: 16, PostList: 8, SignalEvery: 4, NoPeak: true, Wait: perf.Event, Vector: 1, Warmup: -1}
		},
		"send_bw -D5 -s64 -eb": func(c *c) { c.Duration, c.Size, c.Wait, c.Bidirectional = 5*time.Second, 64, perf.Event, true },
		"read_lat -adaptive -o 4 -U": func(c *c) {
			c.Test = perf.Test{Verb: perf.Read, Latency: true}
			c.Wait, c.ReadDepth, c.Samples = perf.Adaptive, 4, true
		},
		"atomic_bw -A CMP_AND_SWAP":              func(c *c) { c.Test, c.Atomic = perf.Test{Verb: perf.Atomic}, perf.CompareSwap },
		"send_bw fe80::1%eth0":                   func(c *c) { c.Server = "fe80::1%eth0" },
		"send_bw -a -F -f 2 --use_old_post_send": func(c *c) { c.All = true },
		"send_lat --use_hugepages -histogram":    func(c *c) { c.Test.Latency, c.HugePages, c.Samples = true, true, true },
	} {
		want := perf.Default(perf.Test{})
		change(&want)
		if err := want.Complete(); err != nil {
			t.Fatal(err)
		}
		got, err := parsePerf(strings.Fields(args), io.Discard)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if d := cmp.Diff(want, got.config, cmpopts.EquateComparable()); d != "" {
			t.Errorf("%s: %s", args, d)
		}
	}
}

// runPerf runs the command.
func runPerf(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cmdPerf(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// perftestFlags are the flags of perftest 6.06 that are words, of all its programs.
const perftestFlags = `
CPU-freq MGID aes_block_size aes_xts all atomic_type bidirectional burst_size com_rdma_cm connection cpu_util cq-mod
credentials_path data_enc_key_app_path data_enc_keys_number disable_pcie_relaxed dlid dont_xchg_versions dualport duration
encrypt_on_tx events force-link gid-index help hop_limit ib-dev ib-port inline_recv inline_size ipv6 iters kek_path latency_gap
limit_bw limit_msgrate log_active_dci_streams log_dci_streams margin mcg mmap mmap-offset mr_per_qp mtu noPeak odp out_json
out_json_file output outs perform_warm_up pkey_index port post_list qp qp-timeout rate_limit rate_limit_type rate_units rdma_cm
recv_post_list report-both report-counters report-cycles report-histogram report-per-port report-unsorted report_gbits
retry_count reversed run_infinitely rx-depth sig_before size sl source_ip tclass tos tx-depth typical_pkt_size use-srq
use_hugepages use_old_post_send vector version wait_destroy`

// Every flag of perftest's, letters and words, is one here too, or its error says what to use.
func TestPerftestFlags(t *testing.T) {
	for _, name := range append(strings.Fields(perftestFlags), strings.Split("ACDFHILMNOQRSTUVWXabcdefghilmnopqrstuwxyz", "")...) {
		flag := "-" + name
		if len(name) > 1 {
			flag = "--" + name
		}
		_, err := parsePerf([]string{"send_bw", flag}, io.Discard)
		if err != nil && strings.Contains(err.Error(), "there is no flag") {
			t.Error(err)
		}
		if err != nil && strings.Contains(err.Error(), "of perftest is not supported") && (!strings.HasPrefix(err.Error(), flag+" ") || strings.HasSuffix(err.Error(), ": ")) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// Mistakes end with status 2, a line that says what is wrong and what to do, and a hint.
// What perftest has and this has not is named.
func TestPerfBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"send_bw -D 18446744075":             "seconds from 1 to 31536000", // more than nanoseconds have room for
		"":                                   "say what to measure: send_bw, send_lat",
		"-s 64":                              "say what to measure",
		"send_tput":                          `there is no test "send_tput": choose one of send_bw`,
		"send_bw -R":                         "-R of perftest is not supported: rdma_cm is not spoken: leave out -R",
		"send_bw --rdma_cm":                  "--rdma_cm of perftest is not supported: rdma_cm is not spoken",
		"send_bw -z":                         "-z of perftest is not supported",
		"send_bw -W a,b":                     "-W of perftest is not supported",
		"send_bw -T5":                        "-T of perftest is not supported: it is of rdma_cm: use --tclass",
		"send_bw --out_json":                 "--out_json of perftest is not supported: use -json",
		"send_bw --out_json_file=x":          "--out_json_file of perftest is not supported: use -json",
		"send_bw --use-srq":                  "--use-srq of perftest is not supported",
		"send_bw --run_infinitely":           "use -D with a long time",
		"write_bw -A FETCH_AND_ADD":          "-A: write_bw has no atomics",
		"send_bw --nosuch":                   "there is no flag -nosuch",
		"send_bw -s":                         "needs an argument",
		"send_bw -s 1e3":                     `invalid value "1e3" for flag -s: it is a number of bytes, such as 65536, 64K or 1M`,
		"send_bw -s 64k":                     `invalid value "64k" for flag -s: it is a number of bytes, such as 65536, 64K or 1M`,
		"send_bw -s K":                       "it is a number of bytes",
		"send_bw -n 1K":                      `invalid value "1K" for flag -n: it is a whole number, without a unit`,
		"send_bw -s 9007199254740992K":       "for flag -s: the number is too large",
		"send_bw --size=-1M":                 "--size -1048576: it is at least 1",
		"send_bw -s 9223372036854775808":     "for flag -s: the number is too large",
		"send_bw -D 1s":                      `"1s" for flag -D: it is a whole number of seconds from 1 to 31536000`,
		"send_bw -D -1":                      `invalid value "-1" for flag -D: it is a whole number of seconds from 1 to 31536000`,
		"send_bw -D 31536001":                `invalid value "31536001" for flag -D: it is a whole number of seconds from 1 to 31536000`,
		"send_bw -D 99999999999s":            `invalid value "99999999999s" for flag -D: it is a whole number of seconds from 1 to 31536000`,
		"send_bw -I -1":                      "--inline_size -1: it is at least 0",
		"send_bw -warmup -1":                 "--warmup -1: it is at least 0",
		"send_bw 10.0.0.1:18515":             `server "10.0.0.1:18515": it is a name or an address, without a port, which is given with -p`,
		"send_bw [::1]":                      `server "[::1]": it is a name or an address`,
		"send_bw rdma://x":                   `server "rdma://x"`,
		"send_bw -s 0":                       "--size 0: it is at least 1",
		"send_bw -n 0":                       "--iters 0: it is at least 5",
		"send_bw -n 3":                       "number of iterations (-n) 3: allowed are 5",
		"send_bw -D 0":                       "from 1 to 31536000",
		"send_bw -x -1":                      "GID index (-x) -1",
		"send_bw -e -adaptive":               "-e and -adaptive: choose one",
		"send_bw a b":                        "one server at most, not a and b",
		"send_bw -d=":                        "-d has nothing in it: leave it out, or say what",
		"send_bw --output=":                  "-output has nothing in it",
		"send_bw --output=latency":           "--output latency: send_bw measures none",
		"send_bw --output=x":                 `--output "x": choose bandwidth, message_rate or latency`,
		"send_bw -H":                         "are of latencies: choose send_lat",
		"send_lat -json -U":                  "-json has all figures",
		"send_bw -c XRC":                     "connection type (-c) XRC is not supported: choose RC, UC or UD",
		"send_bw -d sim0 host":               "sim0 is a device of the model, which lives in one process and cannot reach host",
		"send_bw -d sim0 -i 2":               "port (-i) 2 of sim0: it has ports 1 to 1",
		"send_bw -d sim0 -x 99":              "index 99",
		"send_bw -d sim0 -c UD -s 4097":      "message size (-s) 4097: a datagram is one packet, of 4096 bytes at most",
		"send_bw -d sim0 -t 32767":           "32767 send requests",
		"read_bw -d sim0 -o 99":              "outstanding reads (-o) 99: a queue pair of sim0 takes 16 at most",
		"send_bw -d sim0 -q 4096 -s 1000000": "memory, where",
		"send_bw -d sim0 -e -X 1000":         "completion vector (-X) 1000: sim0 has vectors 0 to",
	} {
		code, out, errs := runPerf(t.Context(), strings.Fields(args)...)
		if code != 2 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 2 || !strings.HasSuffix(errs, "\nverbs perf -h lists the flags.\n") {
			t.Errorf("%s: status %d, stdout %.300q, stderr %q, want 2 and %q", args, code, out, errs, want)
		}
	}
}

// -h lists every flag that there is, and shows examples that are no mistakes.
func TestPerfHelp(t *testing.T) {
	code, out, errs := runPerf(t.Context(), "-h")
	if code != 0 || errs != "" || out != perfUsage {
		t.Fatalf("status %d, %q", code, errs)
	}
	if code, out, _ := runPerf(t.Context(), "send_bw", "-h"); code != 0 || out != perfUsage {
		t.Errorf("send_bw -h: status %d", code)
	}
	_, examples, _ := strings.Cut(out, "Examples:\n")
	for line := range strings.Lines(examples) {
		_, line, _ = strings.Cut(line, "verbs perf ")
		line, _, _ = strings.Cut(line, "      ")
		line, _, _ = strings.Cut(line, " >")
		if _, err := parsePerf(strings.Fields(line), io.Discard); err != nil {
			t.Errorf("example %q: %v", line, err)
		}
	}
	for name, why := range perfMissing() {
		if other, ok := strings.CutPrefix(why, "see "); ok && (perfMissing()[other] == "" || strings.HasPrefix(perfMissing()[other], "see ")) {
			t.Errorf("-%s refers to %q, which says nothing", name, other)
		}
		dashes := "--"
		if len(name) == 1 {
			dashes = "-"
		}
		if _, err := parsePerf([]string{"send_bw", dashes + name}, io.Discard); err == nil || !strings.Contains(err.Error(), "of perftest is not supported: ") {
			t.Errorf("-%s, which is said to be missing: %v", name, err)
		}
	}
}

// Both sides in this process: the table has perftest's columns, for each test.
func TestPerfSimulated(t *testing.T) {
	for _, name := range perf.TestNames() {
		code, out, errs := runPerf(t.Context(), name, "-d", "sim0", "-n", "20", "-warmup", "5")
		if code != 0 || errs != "" {
			t.Errorf("%s: status %d, %q", name, code, errs)
			continue
		}
		checkPerfTable(t, name, out, 20)
	}
}

// checkPerfTable looks for the row of a table, which it returns.
func checkPerfTable(t *testing.T, name, out string, iters int) (row []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 4 || !strings.HasPrefix(lines[len(lines)-3], " #bytes") {
		t.Errorf("%s: no table at the end of\n%s", name, out)
		return nil
	}
	row = strings.Fields(lines[len(lines)-2])
	want := 5
	if strings.HasSuffix(name, "_lat") {
		want = 9
	}
	if len(row) != want || row[1] != strconv.Itoa(iters) {
		t.Errorf("%s: row %q, want %d columns and %d iterations", name, row, want, iters)
	}
	for _, f := range row {
		if v, err := strconv.ParseFloat(f, 64); err != nil || v < 0 {
			t.Errorf("%s: %q is no figure", name, f)
		}
	}
	return row
}

// The other forms of output.
func TestPerfOutput(t *testing.T) {
	run := func(args string) string {
		t.Helper()
		code, out, errs := runPerf(t.Context(), strings.Fields(args)...)
		if code != 0 || errs != "" {
			t.Errorf("%s: status %d, %q", args, code, errs)
		}
		return out
	}
	lines := strings.Split(strings.TrimSpace(run("write_lat -d sim1 -n 5 -warmup 0 -c UC -a -json")), "\n")
	if len(lines) != 23 {
		t.Errorf("%d lines of 23 sizes", len(lines))
	}
	for i, line := range lines {
		var r perf.Report
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Bytes != 2<<i || r.Test != "write_lat" || r.Transport != "UC" || r.Device != "sim1" || r.PeerDevice != "sim0" || r.Role != "both" || r.Latency == nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	for args, most := range map[string]float64{"send_bw -d sim0 -n 10 --output=bandwidth": 1e9, "send_bw -d sim0 -n 10 --output message_rate": 1e9, "read_lat -d sim0 -n 10 --output=latency": 1e12} {
		if v, err := strconv.ParseFloat(strings.TrimSpace(run(args)), 64); err != nil || v <= 0 || v > most {
			t.Errorf("%s: %v, %v", args, v, err)
		}
	}
	out := run("send_lat -d sim0 -n 10 -U -H -histogram --cpu_util")
	for _, want := range []string{"#, usec\n1, ", "\n10, ", "   up to usec      messages\n", "CPU_Util[%]"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// Latencies have six figures, as perftest's, and the heads stand right above their columns again.
	if !regexp.MustCompile(`(?m)^10, [0-9.e+]{1,11}\n`).MatchString(out) || !regexp.MustCompile(`\n-+\n #bytes #iterations .*\n 2 +10 +\S+ .*\n-+\n$`).MatchString(out) {
		t.Error(out)
	}
	if out := run("send_bw -d sim0 -n 10 --report_gbits"); !strings.Contains(out, "BW average[Gb/sec]") {
		t.Error(out)
	}
	if out := run("send_lat -d sim0 -D 1"); !strings.Contains(out, " #bytes        #iterations       t_avg[usec]    tps average\n") {
		t.Error(out)
	}
}

// An interrupt ends it with status 1.
func TestPerfInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("Ctrl-C"))
	for _, args := range []string{"send_bw -d sim0 -D 1000", "send_lat -d sim0 -e"} {
		if code, _, errs := runPerf(ctx, strings.Fields(args)...); code != 1 || errs != "verbs perf: interrupted\n" {
			t.Errorf("%s: status %d, %q", args, code, errs)
		}
	}
}

func TestPerfProgressLine(t *testing.T) {
	c := perf.Default(perf.Test{})
	c.Iters, c.QPs = 100, 2
	if got, want := perfProgressLine(50, &c, 64, 1234*time.Millisecond), "64 bytes: 50 messages of 200, 1.2s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Duration = 5 * time.Second
	if got, want := perfProgressLine(50, &c, 64, 1234*time.Millisecond), "64 bytes: 50 messages, 1.2s of 5s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func Example_perf() {
	var out bytes.Buffer
	code := cmdPerf(context.Background(), []string{"send_bw", "-d", "sim0", "-s", "64", "-n", "100"}, &out, &out)
	fmt.Println(code, strings.Contains(out.String(), "Send BW Test"))
	// Output: 0 true
}
