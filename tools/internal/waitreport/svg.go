package waitreport

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/svg"
)

// WriteSVG draws reports, one below the other. The drawing is readable at a width of 840 pixels,
// on light and on dark ground.
func WriteSVG(w io.Writer, reports ...*Report) error {
	var ways []string
	for _, r := range reports {
		for _, row := range r.Rows {
			if !contains(ways, row.Way) {
				ways = append(ways, row.Way)
			}
		}
	}
	if len(ways) == 0 {
		return errors.New("nothing was measured, so there is nothing to draw")
	}
	c := &canvas{ways: ways}
	y := c.legend(14)
	for _, r := range reports {
		y = c.report(r, y+16)
	}
	return c.Write(w, svg.Width, int(y), svgDescription(reports))
}

// svgDescription says what the drawing shows, for those who do not see it.
func svgDescription(reports []*Report) string {
	text := "Latency, processors and messages per second of ways to wait for completions."
	for _, r := range reports {
		for _, row := range r.rows("paced") {
			text += fmt.Sprintf(" %s, %s, a message each %s: p50 %s us, p99 %s us, %s processors.", r.Device, row.Way, duration(row.Pace), svg.Short(row.P50.Median), svg.Short(row.P99.Median), svg.Short(row.CPU.Median))
		}
	}
	return text
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

// canvas is a drawing in the making.
type canvas struct {
	svg.Canvas
	ways []string // in the order of their colours
}

// colour is the class of a way.
func (c *canvas) colour(way string) string {
	for i, w := range c.ways {
		if w == way {
			return svg.Colour(i)
		}
	}
	return svg.Colour(0)
}

// legend says what colours and marks mean, and returns where it ends.
func (c *canvas) legend(y float64) float64 {
	x := 10.0
	for _, w := range c.ways {
		c.Dot(x, y-4, c.colour(w))
		c.Text(x+9, y, c.colour(w), "start", "%s", w)
		x += 28 + 7*float64(len(w))
	}
	x = svg.Width - 330
	c.Text(x, y, "note", "start", "of a round trip:")
	for _, m := range []struct {
		name string
		mark func(x, y float64, class string)
	}{{"p50", c.Dot}, {"p99", c.Diamond}, {"p99.9", c.Bar}} {
		x += 68
		if m.name == "p50" {
			x += 26
		}
		m.mark(x, y-4, "axis")
		c.Text(x+9, y, "", "start", "%s", m.name)
	}
	return y + 6
}

// report draws a report from y downwards, and returns where it ends.
func (c *canvas) report(r *Report, y float64) float64 {
	y += 12
	head := "On the model: a ConnectX in software"
	if !strings.HasPrefix(r.Device, "sim") {
		head = "On " + r.Device
		if r.Emulated {
			head += ", in an emulated machine: compare, but do not take for hardware"
		}
	}
	c.Text(4, y, "head", "start", "%s", head)
	y += 16
	machine := r.Machine
	machine.Emulated = false
	c.Text(4, y, "note", "start", "%v; medians of %s of %s", machine, plural.Of(r.Rows[0].Rate.N, "round"), svg.Latency(r.Slice))
	y += 24
	rate, perRate := "million/s", 1e-6
	if slowest := r.rows("flood"); len(slowest) > 0 && slowest[0].Rate.Median < 2e5 {
		rate, perRate = "thousand/s", 1e-3
	}
	unit, factor := "µs", 1.0
	for _, row := range r.rows("flood") {
		if row.P99.Median >= 2000 {
			unit, factor = "ms", 1e-3
		}
	}
	c.Text(4, y, "", "start", "A message from time to time: round trip")
	c.Text(312, y, "", "start", "processors")
	c.Text(426, y, "", "start", "%s under way: %s", plural.Of(r.Outstanding, "write"), rate)
	c.Text(650, y, "", "start", "p99, post to completion, %s", unit)
	y += 8
	height := max(132, c.pacedHeight(r))
	c.paced(r, 14, y, height)
	c.flood(r, 426, y, height, func(row Row) Estimate { return scaled(row.Rate, perRate) })
	c.flood(r, 650, y, height, func(row Row) Estimate { return scaled(row.P99, factor) })
	c.Text(533, y+height+29, "note", "middle", "completions taken at a time")
	c.Text(757, y+height+29, "note", "middle", "completions taken at a time")
	return y + height + 34
}

func scaled(e Estimate, by float64) Estimate {
	return Estimate{e.N, e.Median * by, e.Low * by, e.High * by}
}

// rowHeight is that of a row of paced, in which a line of text stands above the line, and
// paceHeight that of the words above the rows of a pace.
const rowHeight, paceHeight = 30, 15

// pacedHeight is how high the rows of paced are.
func (c *canvas) pacedHeight(r *Report) (height float64) {
	pace := 0.0
	for _, row := range r.rows("paced") {
		if row.Pace != pace {
			pace = row.Pace
			height += paceHeight
		}
		height += rowHeight
	}
	return height
}

// paced draws latencies on a logarithmic scale, and processors beside it.
func (c *canvas) paced(r *Report, x, y, height float64) {
	rows := r.rows("paced")
	if len(rows) == 0 {
		c.Text(x, y+20, "note", "start", "not measured")
		return
	}
	const width, cpuAt, cpuWidth = 280.0, 298.0, 66.0
	least, most, cpus := math.Inf(1), 0.0, 1.0
	for _, row := range rows {
		least, most = min(least, row.P50.Median), max(most, row.P999.Median)
		cpus = max(cpus, row.CPU.Median)
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	to = max(to, from+1)
	at := func(usec float64) float64 { return x + 8 + (math.Log10(usec)-from)/(to-from)*(width-24) }
	bottom := y + height
	for d := from; d <= to; d++ {
		c.Path("grid", "M%.1f %.1fV%.1f", at(math.Pow(10, d)), y, bottom)
		c.Text(at(math.Pow(10, d)), bottom+14, "note", "middle", "%s", svg.Decade(d))
	}
	c.Path("axis", "M%.1f %.1fH%.1f", at(math.Pow(10, from)), bottom, at(math.Pow(10, to)))
	c.Path("axis", "M%.1f %.1fV%.1f", x+cpuAt, y, bottom)
	c.Path("grid", "M%.1f %.1fV%.1f", x+cpuAt+cpuWidth/cpus, y, bottom)
	c.Text(x+cpuAt+cpuWidth/cpus, bottom+14, "note", "middle", "1")
	c.Text(x+cpuAt, bottom+14, "note", "middle", "0")
	top := y
	for i, row := range rows {
		if i == 0 || row.Pace != rows[i-1].Pace {
			top += paceHeight
			c.Text(x+8, top-3, "note", "start", "each %s", svg.Latency(row.Pace))
		}
		middle, class := top+rowHeight*0.7, c.colour(row.Way)
		top += rowHeight
		c.Path(class+" line", "M%.1f %.1fH%.1f", at(row.P50.Median), middle, at(row.P999.Median))
		c.Dot(at(row.P50.Median), middle, class)
		c.Bar(at(row.P999.Median), middle, class)
		label := row.Way + ": " + svg.Latency(row.P50.Median)
		if row.resolves(0.99) {
			c.Diamond(at(row.P99.Median), middle, class)
			label += ", " + svg.Latency(row.P99.Median)
		}
		if label += ", "; !row.resolves(0.999) {
			label += "longest " // of the few of a round
		}
		c.Text(x+8, middle-9, class, "start", "%s", label+svg.Latency(row.P999.Median))
		c.Path(class, "M%.1f %.1fh%.1fv10h-%.1fz", x+cpuAt, middle-5, cpuWidth*row.CPU.Median/cpus, cpuWidth*row.CPU.Median/cpus)
		c.Text(x+cpuAt+4, middle-9, class, "start", "%.2f", row.CPU.Median)
	}
}

// flood draws a figure of the flood by batch, with its interval.
func (c *canvas) flood(r *Report, x, y, height float64, of func(Row) Estimate) {
	rows := r.rows("flood")
	if len(rows) == 0 {
		c.Text(x, y+20, "note", "start", "not measured")
		return
	}
	const width, left = 185.0, 30.0
	var batches []int
	most := 0.0
	for _, row := range rows {
		known := false
		for _, b := range batches {
			known = known || b == row.Batch
		}
		if !known {
			batches = append(batches, row.Batch)
		}
		// A wide interval may leave the drawing; the medians do not.
		most = max(most, of(row).Median*1.05, min(of(row).High, 1.5*of(row).Median))
	}
	step := svg.NiceStep(most / 4)
	most = math.Ceil(most/step) * step
	bottom := y + height
	up := func(v float64) float64 { return bottom - min(v/most, 1.02)*height }
	for v := 0.0; v <= most*1.001; v += step {
		c.Path("grid", "M%.1f %.1fH%.1f", x+left, up(v), x+width)
		c.Text(x+left-4, up(v)+4, "note", "end", "%g", math.Round(v/step)*step)
	}
	each := (width - left) / float64(len(batches))
	for i, b := range batches {
		c.Text(x+left+(float64(i)+0.5)*each, bottom+14, "note", "middle", "%d", b)
	}
	for k, way := range c.ways {
		path, shift := "", (float64(k)-float64(len(c.ways)-1)/2)*7
		for i, b := range batches {
			row := r.find("flood", way, b, 0)
			if row == nil {
				continue
			}
			e, at := of(*row), x+left+(float64(i)+0.5)*each+shift
			command := "L"
			if path == "" {
				command = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", command, at, up(e.Median))
			c.Path(c.colour(way)+" line", "M%.1f %.1fV%.1f", at, up(e.Low), up(e.High))
			c.Dot(at, up(e.Median), c.colour(way))
		}
		if path != "" {
			c.Path(c.colour(way)+" line", "%s", path)
		}
	}
}
