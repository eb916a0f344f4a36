package perf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/svg"
)

// WriteSVG draws reports of one test: bandwidth against size, or latency against size where there
// are several sizes, and how latencies are spread. Figures that are no positive finite numbers are
// left out; if none are left that is an error.
func WriteSVG(w io.Writer, reports []*Report) error {
	p := new(plot)
	y := 18.0
	if len(reports) > 0 {
		y = p.head(reports[0], y)
	}
	for _, draw := range []func([]*Report, float64) float64{p.bandwidth, p.latency, p.spread} {
		y = draw(reports, y)
	}
	if len(p.said) == 0 {
		return errors.New("nothing was measured, so there is nothing to draw")
	}
	return p.c.Write(w, svg.Width, int(y), strings.Join(p.said, " "))
}

// A plot is a drawing in the making.
type plot struct {
	c    svg.Canvas
	said []string // what it shows, in words
}

// Where a panel is.
const (
	plotLeft   = 70.0
	plotRight  = svg.Width - 130.0 // names of lines stand behind it
	plotHeight = 240.0
)

// head says what was measured.
func (p *plot) head(r *Report, y float64) float64 {
	p.c.Text(4, y, "head", "start", "verbs perf %s: %s, %s", r.Test, r.Transport, r.Device)
	text := "waits " + r.Wait
	if r.QPs > 0 && !strings.HasSuffix(r.Test, "_lat") {
		text += fmt.Sprintf(", %d QP, depth %d, post list %d, a completion for %d", r.QPs, r.SendDepth, r.PostList, r.SignalEvery)
	}
	if r.Partial {
		text += ", INTERRUPTED"
	}
	p.c.Text(4, y+17, "note", "start", "%s", text)
	return y + 30
}

// A point is a place in a panel, in the units of its axes.
type point struct{ x, y float64 }

// drawable says whether a number has a place on a logarithmic axis.
func drawable(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

// bandwidth draws bandwidth against size.
func (p *plot) bandwidth(reports []*Report, y float64) float64 {
	var all []point
	most := 0.0
	for _, r := range reports {
		if !strings.HasSuffix(r.Test, "_bw") || r.Bytes < 1 || !drawable(r.BandwidthMBps) {
			continue
		}
		all = append(all, point{float64(r.Bytes), r.BandwidthMBps})
		most = max(most, r.BandwidthMBps)
		p.said = append(p.said, fmt.Sprintf("%s: %s MB/s.", sizeName(r.Bytes), svg.Short(r.BandwidthMBps)))
	}
	if len(all) == 0 {
		return y
	}
	x := sizeAxis(all)
	step := svg.NiceStep(most / 4)
	up := axis{from: 0, to: math.Ceil(most/step-1e-9) * step, at: y + 30 + plotHeight, end: y + 30}
	p.c.Text(4, y+14, "", "start", "MB/s (10^6 bytes a second) against the size of a message")
	for v := 0.0; v <= up.to+step/2; v += step {
		p.across(up.place(v), "%s", trimmed(v))
	}
	p.sizes(x, up)
	p.line(all, x, up, svg.Colour(0), true)
	return up.at + 30
}

// latency draws latency against size: the median, and two quantiles.
func (p *plot) latency(reports []*Report, y float64) float64 {
	names := []string{"p99.9", "p99", "p50"}
	lines := make([][]point, len(names))
	var all []point
	for _, r := range reports {
		l := r.Latency
		if l == nil || r.Bytes < 1 || !drawable(l.Typical) || !drawable(l.P99) || !drawable(l.P999) {
			continue
		}
		for i, v := range []float64{l.P999, l.P99, l.Typical} {
			lines[i] = append(lines[i], point{float64(r.Bytes), v})
			all = append(all, point{float64(r.Bytes), v})
		}
		p.said = append(p.said, fmt.Sprintf("%s: p50 %s, p99 %s, p99.9 %s.", sizeName(r.Bytes), svg.Latency(l.Typical), svg.Latency(l.P99), svg.Latency(l.P999)))
	}
	if len(lines[0]) < 2 {
		return y // the other figure has all of one size
	}
	x := sizeAxis(all)
	up := decades(all, func(q point) float64 { return q.y })
	up.at, up.end = y+30+plotHeight, y+30
	p.c.Text(4, y+14, "", "start", "latency against the size of a message")
	for d := up.from; d <= up.to; d += up.step() {
		p.across(up.place(math.Pow(10, d)), "%s", svg.Decade(d))
	}
	p.sizes(x, up)
	for i, line := range lines {
		p.line(line, x, up, svg.Colour(len(names)-1-i), true)
		p.name(i, up, svg.Colour(len(names)-1-i), names[i])
	}
	return up.at + 30
}

// mostSpreads is how many distributions one figure has at most.
const mostSpreads = 5

// spread draws how many messages took longer than what: the tail is what matters.
func (p *plot) spread(reports []*Report, y float64) float64 {
	type curve struct {
		name string
		line []point
	}
	var curves []curve
	var all []point
	least := 1.0 // share
	for _, r := range chosenSpreads(reports) {
		c := curve{name: sizeName(r.Bytes)}
		total := sum(r.Histogram)
		left := total
		for _, b := range r.Histogram {
			c.line = append(c.line, point{b.Usec, float64(left) / float64(total)})
			left -= b.Count
		}
		curves = append(curves, c)
		all = append(all, c.line...)
		p.said = append(p.said, fmt.Sprintf("%s: how the times of %s are spread, up to %s.", c.name, plural.Of(total, "message"), svg.Latency(r.Histogram[len(r.Histogram)-1].Usec)))
		least = min(least, c.line[len(c.line)-1].y)
	}
	if len(curves) == 0 {
		return y
	}
	x := decades(all, func(q point) float64 { return q.x })
	x.at, x.end = plotLeft, plotRight
	up := axis{from: math.Floor(math.Log10(least)), to: 0, log: true, at: y + 30 + plotHeight, end: y + 30}
	up.from = min(up.from, -1)
	p.c.Text(4, y+14, "", "start", "share of messages that took as long, or longer")
	for d := up.to; d >= up.from; d -= up.step() {
		p.across(up.place(math.Pow(10, d)), "%s%%", trimmed(math.Pow(10, d+2)))
	}
	for d := x.from; d <= x.to; d += x.step() {
		p.upward(x.place(math.Pow(10, d)), up, "%s", svg.Decade(d))
	}
	for i, c := range curves {
		p.line(c.line, x, up, svg.Colour(i), len(c.line) == 1)
		p.name(i, up, svg.Colour(i), c.name)
	}
	return up.at + 30
}

// chosenSpreads are reports whose distribution can be drawn: the first, the last, and some between.
func chosenSpreads(reports []*Report) []*Report {
	var good []*Report
	for _, r := range reports {
		ok := len(r.Histogram) > 0
		before := 0.0
		for _, b := range r.Histogram {
			ok = ok && drawable(b.Usec) && b.Usec > before && b.Count > 0 && b.Count < 1<<53
			before = b.Usec
		}
		if ok && sum(r.Histogram) > 0 {
			good = append(good, r)
		}
	}
	if len(good) <= mostSpreads {
		return good
	}
	var some []*Report
	for i := range mostSpreads {
		some = append(some, good[i*(len(good)-1)/(mostSpreads-1)])
	}
	return some
}

// sum is how many latencies a histogram has; 0 if they are more than there can be.
func sum(all []Bucket) (n int64) {
	for _, b := range all {
		if n += b.Count; n < 0 {
			return 0
		}
	}
	return n
}

// An axis maps numbers to places: from stands at the place at, and to at end. A logarithmic one has
// powers of ten.
type axis struct {
	from, to float64
	log      bool
	at, end  float64
}

func (a axis) place(v float64) float64 {
	if a.log {
		v = math.Log10(v)
	}
	if a.to <= a.from {
		return (a.at + a.end) / 2 // all have one size
	}
	return a.at + (v-a.from)/(a.to-a.from)*(a.end-a.at)
}

// step is how many decades there are to a number of a logarithmic axis: all have room up to ten.
func (a axis) step() float64 { return math.Ceil((a.to - a.from) / 10) }

// decades is a logarithmic axis of whole decades, at least one.
func decades(all []point, of func(point) float64) axis {
	least, most := math.Inf(1), 0.0
	for _, q := range all {
		least, most = min(least, of(q)), max(most, of(q))
	}
	a := axis{from: math.Floor(math.Log10(least)), to: math.Ceil(math.Log10(most)), log: true}
	a.to = max(a.to, a.from+1)
	return a
}

// sizeAxis is the axis of sizes, from the least to the largest.
func sizeAxis(all []point) axis {
	a := axis{from: math.Inf(1), to: math.Inf(-1), log: true, at: plotLeft, end: plotRight}
	for _, q := range all {
		a.from, a.to = min(a.from, math.Log10(q.x)), max(a.to, math.Log10(q.x))
	}
	return a
}

// sizes draws the axis of sizes: powers of two, or the only size.
func (p *plot) sizes(x, up axis) {
	if x.to <= x.from {
		p.upward(x.place(1), up, "%s", sizeName(int(math.Round(math.Pow(10, x.from)))))
		return
	}
	first, last := math.Ceil(x.from/math.Log10(2)-1e-9), math.Floor(x.to/math.Log10(2)+1e-9)
	step := math.Ceil((last - first + 1) / 12) // what there is room for
	for e := first; e <= last; e += step {
		p.upward(x.place(math.Exp2(e)), up, "%s", sizeName(1<<int(e)))
	}
}

// across draws a line of the grid, and its number at the left.
func (p *plot) across(y float64, format string, args ...any) {
	p.c.Path("grid", "M%.1f %.1fH%.1f", plotLeft, y, plotRight)
	p.c.Text(plotLeft-6, y+4, "note", "end", format, args...)
}

// upward draws a line of the grid, and its number below.
func (p *plot) upward(x float64, up axis, format string, args ...any) {
	p.c.Path("grid", "M%.1f %.1fV%.1f", x, up.end, up.at)
	p.c.Text(x, up.at+16, "note", "middle", format, args...)
}

// name names the i-th line of a panel.
func (p *plot) name(i int, up axis, class, name string) {
	p.c.Text(plotRight+14, up.end+12+16*float64(i), class, "start", "%s", name)
}

// line draws points, and marks them if that is wanted.
func (p *plot) line(all []point, x, up axis, class string, marks bool) {
	path, command := "", "M"
	for _, q := range all {
		path += fmt.Sprintf("%s%.1f %.1f", command, x.place(q.x), up.place(q.y))
		command = "L"
		if marks {
			p.c.Dot(x.place(q.x), up.place(q.y), class)
		}
	}
	p.c.Path(class+" line", "%s", path)
}

// sizeName is a size in words.
func sizeName(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}

// trimmed is a number with no more digits than it needs.
func trimmed(x float64) string { return fmt.Sprintf("%.6g", x) }
