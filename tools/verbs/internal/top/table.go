package top

import (
	"fmt"
	"slices"
	"strings"
)

// A column is one of a table. Where a table is too wide, the columns with the
// highest drop go first; one with 0 stays.
type column struct {
	name string
	left bool // texts; numbers stand at the right
	drop int
}

// need is how wide a column is at least. A text in the last one may be cut.
func (t *table) need(i, width int) int {
	if c := t.columns[i]; i == len(t.columns)-1 && c.left {
		width = min(width, len(c.name))
	}
	return width
}

// A table makes its rows when they are wanted: of thousands a terminal shows a
// few.
type table struct {
	columns []column
	n       int
	row     func(i int) []string
	notes   []string // sentences below it
}

// lines lays out at most rows rows, and says how many are left out.
func (t *table) lines(width, rows int) []string {
	shown, more := t.n, 0
	if t.n > rows {
		shown = max(rows-1, 0)
		more = t.n - shown
	}
	cells := make([][]string, 1, shown+1)
	for _, c := range t.columns {
		cells[0] = append(cells[0], c.name)
	}
	for i := range shown {
		cells = append(cells, t.row(i))
	}
	var all []string
	kept, widths := t.fit(cells, width)
	for _, r := range cells {
		all = append(all, cut(t.line(r, kept, widths), width))
	}
	if more > 0 && rows > 0 {
		all = append(all, cut(fmt.Sprintf("  ... and %d more", more), width))
	}
	return all
}

// fit says which columns are kept, and how wide each is.
func (t *table) fit(cells [][]string, width int) (kept []int, widths []int) {
	widths = make([]int, len(t.columns))
	total := 0
	for i := range t.columns {
		for _, r := range cells {
			widths[i] = max(widths[i], len(r[i]))
		}
		kept = append(kept, i)
		total += t.need(i, widths[i]) + gap
	}
	for width > 0 && total-gap > width {
		worst := kept[0] // the last of those that matter least
		for _, i := range kept {
			if t.columns[i].drop >= t.columns[worst].drop {
				worst = i
			}
		}
		if t.columns[worst].drop == 0 {
			break
		}
		total -= t.need(worst, widths[worst]) + gap
		kept = slices.DeleteFunc(kept, func(i int) bool { return i == worst })
	}
	return kept, widths
}

// gap is how many spaces stand between columns.
const gap = 2

func (t *table) line(r []string, kept, widths []int) string {
	var b strings.Builder
	for n, i := range kept {
		if n > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		pad := strings.Repeat(" ", widths[i]-len(r[i]))
		if t.columns[i].left {
			b.WriteString(r[i] + pad)
		} else {
			b.WriteString(pad + r[i])
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// cut leaves what fits; a width of 0 has no end.
func cut(s string, width int) string {
	if width > 0 && len(s) > width {
		return s[:width]
	}
	return s
}

// wrap breaks a sentence at spaces.
func wrap(s string, width int) []string {
	if width <= 0 || len(s) <= width {
		return []string{s}
	}
	var all []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			all = append(all, cut(line, width))
			line = "  " + word
		}
	}
	return append(all, cut(line, width))
}

// share gives tables rows of those that there are: each what it needs, or, where
// that is too much, as many as the others have.
func share(tables []*table, rows int) []int {
	given := make([]int, len(tables))
	for rows > 0 {
		before := rows
		for i, t := range tables {
			if rows > 0 && given[i] < t.n {
				given[i]++
				rows--
			}
		}
		if rows == before {
			break
		}
	}
	return given
}
