//go:build linux

package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A perftestRow is a line of the table that perftest's programs print.
type perftestRow struct {
	Bytes      int
	Iterations int64
	// MessagesPerSec is of tests of bandwidth.
	MessagesPerSec float64
	// Typical, Average and the rest are of tests of latency, in microseconds.
	Min, Max, Typical, Average, P99, P999 float64
	// OfAll is the average of all latencies, where perftest lists them (-U): from Average and
	// Max it leaves out the two longest.
	OfAll float64
}

// errPerftestClock is that perftest has made nonsense of the clock: it takes the frequency of the
// processor's counter from a few measurements, and gives up where they do not lie on a line.
var errPerftestClock = errors.New("perftest did not find out how fast the processor's counter counts, and prints inf or 0")

// perftestColumns are the columns that are read, by the heads that perftest gives them, and where
// they go. Heads have blanks in them: the rule is that two words belong together unless the first
// ends in a bracket or begins with #.
var perftestColumns = map[string]func(*perftestRow, float64){
	"#bytes":                  func(r *perftestRow, x float64) { r.Bytes = int(x) },
	"#iterations":             func(r *perftestRow, x float64) { r.Iterations = int64(x) },
	"MsgRate[Mpps]":           func(r *perftestRow, x float64) { r.MessagesPerSec = x * 1e6 },
	"t_min[usec]":             func(r *perftestRow, x float64) { r.Min = x },
	"t_max[usec]":             func(r *perftestRow, x float64) { r.Max = x },
	"t_typical[usec]":         func(r *perftestRow, x float64) { r.Typical = x },
	"t_avg[usec]":             func(r *perftestRow, x float64) { r.Average = x },
	"99% percentile[usec]":    func(r *perftestRow, x float64) { r.P99 = x },
	"99.9% percentile[usec]":  func(r *perftestRow, x float64) { r.P999 = x },
	"BW peak[MB/sec]":         nil,
	"BW average[MB/sec]":      nil,
	"t_stdev[usec]":           nil,
	"BW peak[Gb/sec]":         nil,
	"BW average[Gb/sec]":      nil,
	"CPU_Util[%]":             nil,
	"tps average":             nil,
	"tps average[operations]": nil,
}

// perftestList is the head of a list of latencies.
const perftestList = "#, usec"

// parsePerftest reads the table of a perftest program's standard output. A row whose numbers come
// from a clock that perftest does not understand is errPerftestClock.
func parsePerftest(out string) (rows []perftestRow, err error) {
	var heads []string
	var sum, listed float64
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if _, time, ok := strings.Cut(line, ", "); ok && heads != nil {
			x, err := strconv.ParseFloat(time, 64)
			switch {
			case line == perftestList:
			case err != nil:
				return nil, fmt.Errorf("perftest's list of latencies has %q", line)
			case math.IsInf(x, 0) || math.IsNaN(x):
				return nil, errPerftestClock
			default:
				sum += x
				listed++
			}
			continue
		}
		switch {
		case strings.HasPrefix(line, "#bytes"):
			if heads, err = perftestHeads(line); err != nil {
				return nil, err
			}
		case heads == nil || line == "":
		case strings.HasPrefix(line, "---"):
			heads = nil
		default:
			row, err := perftestLine(heads, line)
			if err != nil {
				return nil, err
			}
			if listed > 0 {
				row.OfAll, sum, listed = sum/listed, 0, 0
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("perftest printed no table")
	}
	return rows, nil
}

// perftestHeads are the heads of the columns.
func perftestHeads(line string) (heads []string, err error) {
	head := ""
	for _, word := range strings.Fields(line) {
		head = strings.TrimSpace(head + " " + word)
		if strings.HasPrefix(word, "#") || strings.HasSuffix(word, "]") {
			heads, head = append(heads, head), ""
		}
	}
	if head != "" { // the last one may have no unit
		heads = append(heads, head)
	}
	for _, h := range heads {
		if _, ok := perftestColumns[h]; !ok {
			return nil, fmt.Errorf("perftest's table has a column %q, which is not known here", h)
		}
	}
	return heads, nil
}

// perftestLine reads one line of numbers.
func perftestLine(heads []string, line string) (r perftestRow, err error) {
	words := strings.Fields(line)
	if len(words) != len(heads) {
		return r, fmt.Errorf("perftest's table has %d columns, and a line of %d words: %q", len(heads), len(words), line)
	}
	for i, w := range words {
		set := perftestColumns[heads[i]]
		if set == nil {
			continue // the deviation may be -nan in a good row
		}
		x, err := strconv.ParseFloat(strings.TrimPrefix(w, "-"), 64) // of -nan there is no number
		switch {
		case err != nil || w[0] == '-' && !math.IsNaN(x):
			return r, fmt.Errorf("perftest's table has %q for %s in %q", w, heads[i], line)
		case math.IsInf(x, 0) || math.IsNaN(x):
			return r, errPerftestClock
		}
		set(&r, x)
	}
	if r.MessagesPerSec == 0 && r.Average == 0 {
		return r, errPerftestClock
	}
	return r, nil
}
