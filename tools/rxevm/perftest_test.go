//go:build linux

package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The files are what perftest 6.06 printed in a guest.
func TestParsePerftest(t *testing.T) {
	for name, want := range map[string]perftestRow{
		"send_bw":         {Bytes: 64, Iterations: 2000, MessagesPerSec: 23127},
		"read_bw":         {Bytes: 64, Iterations: 2000, MessagesPerSec: 14431},
		"send_lat":        {Bytes: 64, Iterations: 1000, Min: 11.81, Max: 60550.24, Typical: 12.75, Average: 547.72, P99: 12761.86, P999: 60550.24},
		"send_lat_events": {Bytes: 64, Iterations: 1000, Min: 142.56, Max: 46081.27, Typical: 1983.36, Average: 2364.10, P99: 8228.82, P999: 46081.27},
		// With -U. The longest of 19 is 2796.6, and is in none of perftest's own columns.
		"write_lat_unsorted": {Bytes: 64, Iterations: 20, Min: 15.37, Max: 183.02, Typical: 16.44, Average: 17.91, P99: 183.02, P999: 183.02, OfAll: 3284.1041 / 19},
	} {
		rows, err := parsePerftest(perftestOutput(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff([]perftestRow{want}, rows, cmpopts.EquateApprox(0, 1e-9)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func perftestOutput(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/perftest/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// In these tables perftest's clock has failed for some sizes.
func TestPerftestClock(t *testing.T) {
	for _, name := range []string{"send_bw_all", "send_lat_all"} {
		out := perftestOutput(t, name)
		if rows, err := parsePerftest(out); !errors.Is(err, errPerftestClock) || rows != nil {
			t.Errorf("%s: %v, %v", name, rows, err)
		}
		good, lines := "", 0
		for line := range strings.Lines(out) {
			if strings.Contains(line, " inf ") || strings.Contains(line, "0.000000") {
				continue
			}
			good += line
			if f := strings.Fields(line); len(f) > 4 && (f[1] == "200" || f[1] == "100") {
				lines++
			}
		}
		rows, err := parsePerftest(good)
		if err != nil || len(rows) != lines || lines < 15 {
			t.Fatalf("%s without these: %d rows of %d, %v", name, len(rows), lines, err)
		}
		if rows[0].Bytes != 2 || rows[len(rows)-1].Bytes != 1<<23 {
			t.Errorf("%s goes from %d to %d bytes", name, rows[0].Bytes, rows[len(rows)-1].Bytes)
		}
	}
}

// What is no table is an error that says what was found.
func TestParsePerftestRefuses(t *testing.T) {
	const head = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
	for text, says := range map[string]string{
		"":                                   "no table",
		perftestOutput(t, "refused"):         "no table",
		head:                                 "no table",
		head + " 64 2000 2.7 1.4\n":          "5 columns, and a line of 4",
		head + " 64 2000 2.7 1.4 0.02 oh\n":  "a line of 6",
		head + " 64 2000 2.7 1.4 fast\n":     `"fast" for MsgRate[Mpps]`,
		head + " 64 2000 2.7 1.4 -0.1\n":     `"-0.1" for MsgRate[Mpps]`,
		head + " 64 2000 2.7 1.4 -inf\n":     `"-inf" for MsgRate[Mpps]`,
		" #bytes #iterations Wonder[usec]\n": `a column "Wonder[usec]"`,
		head + " 64 2000 2.7 1.4 0.000000\n": errPerftestClock.Error(),
		head + " 64 2000 2.7 1.4 inf\n":      errPerftestClock.Error(),
		head + " 64 2000 2.7 1.4 -nan\n":     errPerftestClock.Error(),
		head + " 64 2000 2.7 1.4 nan\n":      errPerftestClock.Error(),
		head + "#, usec\n1, inf\n":           errPerftestClock.Error(),
		head + "#, usec\n1, nan\n":           errPerftestClock.Error(),
		head + "#, usec\n1, oh\n":            `"1, oh"`,
		head + "#, cycles\n1, 5\n":           `"#, cycles"`,
	} {
		if rows, err := parsePerftest(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v; want an error with %q", text, rows, err, says)
		}
	}
}
