// Package waitreport is what verbs waiting has measured: as JSON, as text, and as a drawing.
//
//	r := waitreport.New()
//	r.Rows = append(r.Rows, waitreport.Row{Workload: "paced", Way: "busy", Batch: 32, P50: waitreport.EstimateOf(times)})
//	err := r.WriteText(os.Stdout)
//	err = waitreport.WriteSVG(file, r)
package waitreport

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/internal/paired"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/uname"
)

// A Report is what was measured in one run on one device.
type Report struct {
	Machine
	Device      string  `json:"device"`
	Devices     string  `json:"setup"`      // which devices and processes there are, in words
	Slice       float64 `json:"slice_usec"` // how long a variant was measured in a round
	Outstanding int     `json:"outstanding"`
	Bytes       int     `json:"bytes"`
	Interrupted bool    `json:"interrupted"` // it is less than was asked for

	Rows        []Row        `json:"rows"`
	Comparisons []Comparison `json:"comparisons"`
	Notes       []string     `json:"notes,omitempty"`
}

// A Machine is where and when it was measured.
type Machine struct {
	Date       string  `json:"date"`
	Processor  string  `json:"processor"`
	CPUs       int     `json:"cpus"`
	System     string  `json:"system"` // and its version
	Load       float64 `json:"load"`   // average of the last minute when it began; -1: not known
	Emulated   bool    `json:"emulated"`
	Go         string  `json:"go"`
	GOMAXPROCS int     `json:"gomaxprocs"`
}

// A Row is one variant.
type Row struct {
	Workload string  `json:"workload"`            // paced or flood
	Way      string  `json:"way"`                 // of waiting
	Batch    int     `json:"batch"`               // completions that are taken at a time
	Pace     float64 `json:"pace_usec,omitempty"` // between messages; of paced
	Messages uint64  `json:"messages"`
	// The quantiles of the round trip are in microseconds.
	P50  Estimate `json:"p50_usec"`
	P99  Estimate `json:"p99_usec"`
	P999 Estimate `json:"p999_usec"`
	Rate Estimate `json:"messages_per_second"`
	CPU  Estimate `json:"processors"` // that the waiting side kept busy
}

// resolves says whether a round has enough messages for a quantile, which is else the longest time
// of a round.
func (r Row) resolves(q float64) bool {
	return float64(r.Messages) >= float64(r.Rate.N)/(1-q)*0.999
}

// An Estimate is the median of rounds.
type Estimate struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"` // 90% interval; with less than five rounds the extremes
	High   float64 `json:"high"`
}

// EstimateOf is the median of at least one number. The interval is that of the order statistics,
// which assumes nothing of how numbers are distributed.
func EstimateOf(x []float64) Estimate {
	s := slices.Clone(x)
	slices.Sort(s)
	n := len(s)
	// The median lies below the k-th least number with the probability that fewer than k of n
	// tosses of a coin are heads: up to a twentieth on either side.
	k, below, toss := 0, 0.0, math.Pow(0.5, float64(n))
	for k+1 <= n/2 && below+toss <= 0.05 {
		below += toss
		toss *= float64(n-k) / float64(k+1)
		k++
	}
	k = max(k, 1)
	return Estimate{N: n, Median: paired.Median(s), Low: s[k-1], High: s[n-k]}
}

// A Comparison is a ratio of two variants over the rounds.
type Comparison struct {
	What string  `json:"what"` // one to the other
	N    int     `json:"n"`
	Mean float64 `json:"ratio"` // geometric mean
	Low  float64 `json:"low"`   // 90% interval of the mean
	High float64 `json:"high"`
}

// Compare is the ratio of two series; false if there are less than two rounds, or there is
// no ratio.
func Compare(what string, of, to []float64) (Comparison, bool) {
	n := min(len(of), len(to))
	r, err := paired.New(of[:n], to[:n], math.Inf(1))
	return Comparison{what, r.N, r.Mean, r.Low, r.High}, err == nil
}

// String is the ratio and how sure it is.
func (c Comparison) String() string {
	return fmt.Sprintf("%s: %.2f (90%% interval %.2f to %.2f, n %d)", c.What, c.Mean, c.Low, c.High, c.N)
}

// ThisMachine is the machine that the program runs on, now.
func ThisMachine() Machine {
	m := Machine{Date: time.Now().UTC().Format("2006-01-02"), Processor: runtime.GOARCH, CPUs: runtime.NumCPU(), System: runtime.GOOS, Load: -1,
		Emulated: os.Getenv("GOVERBS_GUEST_ACCEL") == "tcg", Go: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0)}
	// What these files do not tell is left as it is.
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Processor = strings.TrimSpace(value)
				break
			}
		}
	}
	if release, _ := uname.Read(); release != "" {
		m.System = "Linux " + release
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		var load float64
		if _, err := fmt.Sscan(string(b), &load); err == nil {
			m.Load = load
		}
	}
	return m
}

// New is an empty report of this machine.
func New() *Report { return &Report{Machine: ThisMachine()} }

// String says where and when.
func (m Machine) String() string {
	text := fmt.Sprintf("%s, %s, %s, %s, GOMAXPROCS %d, %s", m.Processor, plural.Of(m.CPUs, "CPU"), m.System, m.Go, m.GOMAXPROCS, m.Date)
	if m.Load >= 0 {
		text += fmt.Sprintf(", load %.1f before", m.Load)
	}
	if m.Emulated {
		text += "; EMULATED: times say nothing about hardware"
	}
	return text
}

// WriteJSON writes the report as one object.
func (r *Report) WriteJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}
