package perf

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/printable"
)

// The text is perftest's, column by column, so that what reads its tables reads these.

const rule = "---------------------------------------------------------------------------------------\n"

// Text says how to write results.
type Text struct {
	Gbits bool // Gb/s in place of MiB/s
	CPU   bool // a column of processor time
	// Only, if not empty, is the one figure to write: "bandwidth", "message_rate" or
	// "latency".
	Only string
	// Sorted and Unsorted write every latency before the result, Bars draws them.
	Sorted, Unsorted, Bars bool
}

// WriteHead writes what is measured, with whom, and the heads of the columns.
func (t *Text) WriteHead(w io.Writer, s *Side) error {
	if t.Only != "" {
		return nil
	}
	c := &s.cfg
	var b strings.Builder
	b.WriteString(rule)
	title := verbTitles[c.Test.Verb]
	if c.Test.Verb == Atomic {
		title += " " + c.Atomic
	}
	if c.Bidirectional {
		title += " Bidirectional"
	}
	if c.PostList > 1 {
		title += " Post List"
	}
	if c.Test.Latency {
		title += " Latency"
	} else {
		title += " BW"
	}
	fmt.Fprintf(&b, "                    %s Test\n", title)
	if c.Wait != Busy {
		fmt.Fprintf(&b, " Test with events. Using %s_comp%d\n", s.dev.Name(), c.Vector)
	}
	pair := func(name string, value any, name2 string, value2 any) {
		fmt.Fprintf(&b, " %-16s: %v\t\t%-15s: %v\n", name, value, name2, value2)
	}
	line := func(name string, value any) { fmt.Fprintf(&b, " %-16s: %v\n", name, value) }
	pair("Dual-port", "OFF", "Device", s.dev.Name())
	pair("Number of qps", c.QPs, "Transport type", "IB")
	pair("Connection type", c.Transport, "Using SRQ", "OFF")
	line("Wait", c.Wait)
	if c.sends() {
		line("TX depth", c.SendDepth)
	}
	if c.PostList > 1 {
		line("Post List", c.PostList)
	}
	if c.receives() {
		line("RX depth", c.RecvDepth)
	}
	if !c.Test.Latency {
		line("CQ Moderation", c.SignalEvery)
	}
	line("Mtu", fmt.Sprintf("%d[B]", s.mtu))
	line("Link type", s.port.LinkLayer)
	line("GID index", s.Source().Index)
	if c.Test.answers() {
		line("Outstand reads", s.reads)
	} else {
		line("Max inline data", fmt.Sprintf("%d[B]", s.inline))
	}
	line("rdma_cm QPs", "OFF")
	method := "Ethernet"
	if c.Together {
		method = "one process"
	}
	line("Data ex. method", method)
	b.WriteString(rule)
	for _, side := range []struct {
		name string
		o    *offer
	}{{"local", &s.offer}, {"remote", &s.peer}} {
		for _, e := range side.o.Endpoints {
			fmt.Fprintf(&b, " %s address: LID %04x QPN 0x%04x PSN 0x%06x\n GID: %s\n", side.name, side.o.LID, e.QPN, e.PSN, printable.Short(side.o.GID))
		}
	}
	b.WriteString(rule)
	b.WriteString(t.columns(c))
	_, err := io.WriteString(w, b.String())
	return err
}

// columns are the heads of the columns.
func (t *Text) columns(c *Config) string {
	var head string
	unit := "MiB/sec"
	if t.Gbits {
		unit = "Gb/sec"
	}
	switch {
	case !c.Test.Latency:
		head = fmt.Sprintf(" #bytes     #iterations    BW peak[%[1]s]    BW average[%[1]s]   MsgRate[Mpps]", unit)
	case c.Duration > 0:
		head = " #bytes        #iterations       t_avg[usec]    tps average"
	default:
		head = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
	}
	if t.CPU {
		head += "    CPU_Util[%]"
	}
	return head + "\n"
}

// scale is how many bytes a second are one in the unit of the table.
func (t *Text) scale() float64 {
	if t.Gbits {
		return 1e9 / 8
	}
	return 1 << 20
}

// WriteResult writes the line of a report.
func (t *Text) WriteResult(w io.Writer, c *Config, r *Report) error {
	var b strings.Builder
	if r.times != nil && (t.Sorted || t.Unsorted || t.Bars) {
		t.latencies(&b, r)
		if t.Only == "" { // the heads are far up now
			b.WriteString(rule + t.columns(c))
		}
	}
	lat := r.Latency
	if lat == nil {
		lat = &Latency{}
	}
	average, peak := r.BandwidthMBps*1e6/t.scale(), r.PeakBandwidthMBps*1e6/t.scale()
	switch {
	case t.Only == "bandwidth":
		fmt.Fprintf(&b, "%f", average)
	case t.Only == "message_rate":
		fmt.Fprintf(&b, "%f", r.MessagesPerSec/1e6)
	case t.Only == "latency":
		fmt.Fprintf(&b, "%f", lat.Avg)
	case !c.Test.Latency && t.Gbits:
		fmt.Fprintf(&b, " %-7d    %d           %-7.6f            %-7.6f            %-7.6f", r.Bytes, r.Iterations, peak, average, r.MessagesPerSec/1e6)
	case !c.Test.Latency:
		fmt.Fprintf(&b, " %-7d    %-10d       %-7.2f            %-7.2f             %-7.6f", r.Bytes, r.Iterations, peak, average, r.MessagesPerSec/1e6)
	case c.Duration > 0:
		fmt.Fprintf(&b, " %-7d       %d            %-7.2f        %-7.2f", r.Bytes, r.Iterations, lat.Avg, r.MessagesPerSec)
	default:
		fmt.Fprintf(&b, " %-7d %d          %-7.2f        %-7.2f      %-7.2f             %-7.2f        %-7.2f         %-7.2f                %-7.2f",
			r.Bytes, r.Iterations, lat.Min, lat.Max, lat.Typical, lat.Avg, lat.Stdev, lat.P99, lat.P999)
	}
	if t.CPU && t.Only == "" {
		share := 0.0
		if r.CPU != nil {
			share = 100 * (r.CPU.UserSec + r.CPU.SystemSec) / r.Seconds
		}
		fmt.Fprintf(&b, "      %-3.2f", share)
	}
	b.WriteString("\n")
	if r.Partial && t.Only == "" {
		fmt.Fprintf(&b, " (partial: interrupted after %.2f s)\n", r.Seconds)
	}
	if r.Lost > 0 && t.Only == "" {
		fmt.Fprintf(&b, " (%s lost, as %s may lose them)\n", plural.Of(r.Lost, "message"), r.Transport)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteTail writes the end of the table.
func (t *Text) WriteTail(w io.Writer) error {
	if t.Only != "" {
		return nil
	}
	_, err := io.WriteString(w, rule)
	return err
}

// latencies writes all latencies, as far as that is asked for.
func (t *Text) latencies(b *strings.Builder, r *Report) {
	list := func(all []int64) {
		b.WriteString("#, usec\n")
		for i, d := range all {
			fmt.Fprintf(b, "%d, %.6g\n", i+1, r.times.usec(float64(d), r.parts))
		}
		if !r.times.all() {
			fmt.Fprintf(b, "(the first %d of %d)\n", len(all), r.times.tally().n)
		}
	}
	if t.Unsorted {
		list(r.times.each)
	}
	if t.Sorted {
		list(slices.Sorted(slices.Values(r.times.each)))
	}
	if t.Bars {
		bars(b, r.Histogram)
	}
}

// bars draws a histogram. What lies within a tenth is one line.
func bars(b *strings.Builder, all []Bucket) {
	const width = 50
	var merged []Bucket
	var most, total int64
	from := 0.0
	for _, h := range all {
		if n := len(merged); n > 0 && h.Usec <= from*1.1 {
			merged[n-1].Usec = h.Usec
			merged[n-1].Count += h.Count
		} else {
			merged = append(merged, h)
			from = h.Usec
		}
		most = max(most, merged[len(merged)-1].Count)
		total += h.Count
	}
	b.WriteString("   up to usec      messages\n")
	for _, h := range merged {
		n := int(h.Count * width / most)
		fmt.Fprintf(b, " %12.2f  %12d %5.1f%% %s\n", h.Usec, h.Count, 100*float64(h.Count)/float64(total), strings.Repeat("#", max(n, 1)))
	}
}
