package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
)

// runPingpong runs the command.
func runPingpong(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cmdPingpong(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// Both sides play in one process, and say so.
func TestPingpongSimulated(t *testing.T) {
	text := regexp.MustCompile(`^  no network: both sides play in this process, the client on sim1 and the server on sim0 of the model
  client's address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:10\.0\.1\.1
  server's address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:10\.0\.0\.1
12800 bytes in [0-9.]+ seconds = [0-9.]+ Mbit/sec
100 iters in [0-9.]+ seconds = [0-9.]+ usec/iter
$`)
	for _, mode := range []string{"-c", "-e"} {
		code, out, errs := runPingpong(t.Context(), "-d", "sim1", "-s", "64", "-n", "100", "-r", "3", mode)
		if code != 0 || errs != "" || !text.MatchString(out) {
			t.Errorf("%s: status %d, stderr %q:\n%s", mode, code, errs, out)
		}
	}
}

// Every size in both modes, every byte checked on both sides.
func TestPingpongSimulatedSizes(t *testing.T) {
	for _, mode := range []string{"-c", "-ce"} {
		for _, size := range []string{"0", "1", "64", "4096", "65537"} {
			code, out, errs := runPingpong(t.Context(), "-json", "-d", "sim0", "-s", size, "-n", "20", "-r", "7", mode)
			var r pingpong.Report
			if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || errs != "" {
				t.Errorf("%s %s: status %d, %v, stderr %q", mode, size, code, err, errs)
				continue
			}
			if r.Role != "both" || r.Device != "sim0" || !r.PayloadChecked || r.Iters != 20 || r.Events != strings.Contains(mode, "e") || r.Local.GID != "::ffff:10.0.0.1" || r.Remote.GID != "::ffff:10.0.1.1" {
				t.Errorf("%s %s: %+v", mode, size, r)
			}
		}
	}
}

// What the model cannot do is said.
func TestPingpongSimulatedRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"-d sim0 host1":  "sim0 is a device of the model, which lives in one process and cannot reach host1: without a host both sides play in this process",
		"-d sim1 -g 9":   "no GID for GID index 9 of port 1",
		"-d sim1 -i 2":   "port 2 of sim1: it has ports 1 to 1",
		"-d sim0 -n 0":   "number of iterations 0",
		"-d sim0 -p 0":   "TCP port 0",
		"-d sim0 -r 1e9": `"1e9"`,
	} {
		code, out, errs := runPingpong(t.Context(), strings.Fields(args)...)
		if code != 2 || out != "" || !strings.Contains(errs, want) || !strings.HasSuffix(errs, "\nverbs pingpong -h lists the flags.\n") {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want 2 and %q", args, code, out, errs, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, mode := range []string{"-c", "-e"} {
		code, _, errs := runPingpong(ctx, "-d", "sim0", "-n", "1000000", mode)
		if code != 1 || errs != "verbs pingpong: interrupted\n" {
			t.Errorf("%s, interrupted: status %d, %q", mode, code, errs)
		}
	}
}
