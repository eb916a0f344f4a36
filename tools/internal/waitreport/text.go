package waitreport

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/svg"
)

// WriteText writes the report as tables.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s.\n%v.\n", r.Device, r.Devices, r.Machine)
	if r.Interrupted {
		b.WriteString("INTERRUPTED: these are the rounds until then.\n")
	}
	r.table(&b, "paced", fmt.Sprintf("paced: a message of %d bytes from time to time; round trip, and the processors that the waiting side keeps busy.", r.Bytes))
	r.table(&b, "flood", fmt.Sprintf("flood: %s of %d bytes under way; up to batch completions at a time are taken, and as many writes posted behind one doorbell. From the post to the completion.", plural.Of(r.Outstanding, "write"), r.Bytes))
	if len(r.Comparisons) > 0 {
		b.WriteString("\nRatios over the rounds:\n")
		for _, c := range r.Comparisons {
			fmt.Fprintf(&b, "  %v\n", c)
		}
	}
	for _, c := range r.Claims() {
		fmt.Fprintf(&b, "\n%s\n", c)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes the rows of a workload.
func (r *Report) table(b *strings.Builder, workload, title string) {
	rows := r.rows(workload)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\nMedians of %s of %s, with their 90%% interval; times in us.\n\n", title, plural.Of(rows[0].Rate.N, "round"), duration(r.Slice))
	tw := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "  wait\t%s\tp50\tp99\tp99.9\tmessages/s\tprocessors\n", map[bool]string{true: "each", false: "batch"}[workload == "paced"])
	for _, row := range rows {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Way, row.key(), row.P50, row.P99, row.P999, row.Rate, row.CPU)
	}
	tw.Flush()
	for _, row := range rows {
		if !row.resolves(0.999) {
			fmt.Fprintf(b, "\n%s, %s: a round has about %s. A quantile that so few do not tell is the longest of the round.\n", row.Way, row.key(), plural.Of(row.Messages/uint64(row.Rate.N), "message"))
		}
	}
}

// key is what tells the rows of a way apart: the batch, or the pace.
func (r Row) key() string {
	if r.Workload == "paced" {
		return duration(r.Pace)
	}
	return strconv.Itoa(r.Batch)
}

// rows are those of a workload.
func (r *Report) rows(workload string) (rows []Row) {
	for _, row := range r.Rows {
		if row.Workload == workload {
			rows = append(rows, row)
		}
	}
	return rows
}

// find is the row of a variant, or nil.
func (r *Report) find(workload, way string, batch int, pace float64) *Row {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Workload == workload && row.Way == way && (batch == 0 || row.Batch == batch) && row.Pace == pace {
			return row
		}
	}
	return nil
}

// Claims are what others have published, and what is seen here.
func (r *Report) Claims() (all []string) {
	if one, many := r.find("flood", "busy", 1, 0), r.find("flood", "busy", 32, 0); one != nil && many != nil {
		all = append(all, fmt.Sprintf("Claimed: a batch of 32 gives +40%% operations per second and costs +2 us of the tail. Seen, busy: %+.0f%% messages per second, p99 %+.1f us, p99.9 %+.1f us, to batch 1.",
			100*(many.Rate.Median/one.Rate.Median-1), many.P99.Median-one.P99.Median, many.P999.Median-one.P999.Median))
	}
	seen := ""
	for _, busy := range r.rows("paced") {
		event := r.find("paced", "event", 0, busy.Pace)
		if busy.Way != "busy" || event == nil {
			continue
		}
		seen += fmt.Sprintf("; each %s: %s us at %.0f%% busy, %s us at %.0f%% with events",
			duration(busy.Pace), svg.Short(busy.P50.Median), 100*busy.CPU.Median, svg.Short(event.P50.Median), 100*event.CPU.Median)
	}
	if seen != "" {
		all = append(all, "Claimed: 3.2 us at 12% of a processor when polling, 3.5 us at 3% with events. Seen, p50 of the round trip, "+seen[len("; "):]+".")
	}
	return all
}

// String is the median, and the interval if there is one.
func (e Estimate) String() string {
	if e.N < 2 {
		return svg.Short(e.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", svg.Short(e.Median), svg.Short(e.Low), svg.Short(e.High))
}

// duration is a time in microseconds, in words.
func duration(usec float64) string {
	switch {
	case usec >= 1e6:
		return fmt.Sprintf("%g s", usec/1e6)
	case usec >= 1e3:
		return fmt.Sprintf("%g ms", usec/1e3)
	}
	return fmt.Sprintf("%g us", usec)
}
