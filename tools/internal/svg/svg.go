// Package svg draws figures of measurements: plain, readable at a width of 840 pixels, on light and
// on dark ground, and in colours that people tell apart who see few.
//
//	var c svg.Canvas
//	c.Text(4, 14, "head", "start", "%s", title)
//	c.Path(svg.Colour(0)+" line", "M%.1f %.1fH%.1f", x, y, x+100)
//	err := c.Write(w, svg.Width, 200, "what the figure shows, in words")
//
// Text may have any characters; they are escaped. A canvas is for one goroutine. Write's error is
// that of the writer.
//
// The classes of text are head, note, a colour, or "" for plain; those of paths are axis, grid, a
// colour for what is filled, and a colour with " line" for lines.
package svg

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Width is how wide a drawing is meant to be, in pixels.
const Width = 840

// colours is how many there are.
const colours = 5

// Colour is the class of the i-th thing that has a colour of its own, from 0; they repeat.
func Colour(i int) string { return fmt.Sprintf("w%d", i%colours) }

// A Canvas is a drawing in the making. The zero value is empty.
type Canvas struct{ b strings.Builder }

const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="what">
<title id="what">%s</title>
<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.head { font-size: 14px; font-weight: 600 }
.note { font-size: 11px; fill: #59636e }
.axis { stroke: #818b98; fill: none }
.grid { stroke: #818b98; stroke-opacity: .3; fill: none }
.w0 { stroke: #0969da; fill: #0969da } .w1 { stroke: #bc4c00; fill: #bc4c00 } .w2 { stroke: #1a7f37; fill: #1a7f37 }
.w3 { stroke: #8250df; fill: #8250df } .w4 { stroke: #9a6700; fill: #9a6700 }
text.w0, text.w1, text.w2, text.w3, text.w4 { stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .note { fill: #9198a1 }
.w0 { stroke: #58a6ff; fill: #58a6ff } .w1 { stroke: #f0883e; fill: #f0883e } .w2 { stroke: #3fb950; fill: #3fb950 }
.w3 { stroke: #bc8cff; fill: #bc8cff } .w4 { stroke: #d29922; fill: #d29922 }
}
path.line { stroke-width: 1.5; fill: none }
</style>
`

// Write writes the drawing. The description says what it shows, for those who do not see it.
func (c *Canvas) Write(w io.Writer, width, height int, description string) error {
	_, err := fmt.Fprintf(w, head, width, height, width, height, escape(description))
	if err == nil {
		_, err = io.WriteString(w, c.b.String()+"</svg>\n")
	}
	return err
}

// escape makes text of XML of any string, also of one with characters that XML has no way to say.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' || r == 0xfffe || r == 0xffff {
			return '\ufffd'
		}
		return r
	}, s)
	return html.EscapeString(strings.ToValidUTF8(s, "\ufffd"))
}

// Text writes at (x, y), the baseline; anchor is start, middle or end.
func (c *Canvas) Text(x, y float64, class, anchor, format string, args ...any) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, escape(fmt.Sprintf(format, args...)))
}

// Path draws what a path's d says.
func (c *Canvas) Path(class, format string, args ...any) {
	fmt.Fprintf(&c.b, `<path class="%s" d="%s"/>`+"\n", class, fmt.Sprintf(format, args...))
}

// Dot marks a point.
func (c *Canvas) Dot(x, y float64, class string) {
	fmt.Fprintf(&c.b, `<circle cx="%.1f" cy="%.1f" r="4" class="%s"/>`+"\n", x, y, class)
}

// Diamond marks a point.
func (c *Canvas) Diamond(x, y float64, class string) {
	c.Path(class, "M%.1f %.1fl5 5l-5 5l-5-5z", x, y-5)
}

// Bar marks a point with a short upright line.
func (c *Canvas) Bar(x, y float64, class string) {
	c.Path(class+" line", "M%.1f %.1fv12", x, y-6)
}

// Short is a number with three digits or so.
func Short(x float64) string {
	switch {
	case x >= 9.995e5:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 9995:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// Latency is a time in microseconds with its unit.
func Latency(usec float64) string {
	unit := " µs"
	switch {
	case usec >= 999.5e3:
		usec, unit = usec/1e6, " s"
	case usec >= 999.5:
		usec, unit = usec/1e3, " ms"
	}
	if usec == math.Trunc(usec) {
		return fmt.Sprint(usec) + unit
	}
	return Short(usec) + unit
}

// Decade is ten to the power of d microseconds, with its unit.
func Decade(d float64) string {
	switch {
	case d >= 6:
		return fmt.Sprintf("%g s", math.Pow(10, d-6))
	case d >= 3:
		return fmt.Sprintf("%g ms", math.Pow(10, d-3))
	case d >= 0:
		return fmt.Sprintf("%g µs", math.Pow(10, d))
	}
	return fmt.Sprintf("%g ns", math.Pow(10, d+3))
}

// NiceStep is the least of 1, 2 and 5 times a power of ten that is not less than x.
func NiceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= x {
			return f * power
		}
	}
	return 10 * power
}
