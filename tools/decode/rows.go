package decode

import "strconv"

// row is a run of bytes that a line shows in hexadecimal.
type row struct {
	off  int64 // the offset or address that stands before it, or -1
	data []byte
	// width is how many bytes one group of digits has: 1, 4 and so on;
	// groups of more than one byte may be in the byte order of the machine
	// that printed them.
	width int
	// last: nothing follows on the line, so a wrapped rest may.
	last bool
	// alone: nothing else is on the line, so it may be such a rest.
	alone bool
	// surplus: the line had more bytes than a row holds; they were left out.
	surplus bool
	// from and to are where it stands in the line.
	from, to int
}

// group is one word of hexadecimal digits in a line.
type group struct {
	start, end int // of the digits, without 0x
	from       int // of the word, with 0x
}

// rows finds the runs of hexadecimal bytes of a cleaned line. What looks like
// one but could as well be something else (a clock, an address) is left out.
func rows(line []byte) []row {
	var out []row
	for i := 0; i < len(line); {
		if !isWord(line[i]) {
			i++
			continue
		}
		g, next, ok := readGroup(line, i)
		if !ok || !mayStart(line, g) {
			i = next
			continue
		}
		r, next, ok := readRow(line, g)
		if ok {
			out = append(out, r)
		}
		i = next
	}
	return out
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// readGroup reads the word at i. ok says that it is hexadecimal.
func readGroup(line []byte, i int) (g group, next int, ok bool) {
	g.from, g.start = i, i
	if i+2 < len(line) && line[i] == '0' && line[i+1]|0x20 == 'x' {
		g.start = i + 2
	}
	ok = true
	for next = g.start; next < len(line) && isWord(line[next]); next++ {
		ok = ok && isHex(line[next])
	}
	g.end = next
	return g, next, ok && g.end > g.start
}

// mayStart says whether a run of bytes may begin with the group: not in the
// middle of a clock (19:34:56), a PCI address or a number with a point.
func mayStart(line []byte, g group) bool {
	if g.from == 0 {
		return true
	}
	switch line[g.from-1] {
	case ' ', ',', '[', ']', '(', '{', '<', '>', '"', '\'', '`', '=', '|', '*', ';':
		return true
	case ':':
		// Glued to a tag such as <stderr>: is fine, and to the file or
		// line that grep prints, if it is long enough to be no clock.
		return g.from < 2 || !isWord(line[g.from-2]) || g.end-g.start >= 7
	case '-', '/':
		return g.end-g.start >= 7
	}
	return false
}

// readRow reads an offset, if g is one, and the bytes behind it.
func readRow(line []byte, g group) (r row, next int, ok bool) {
	r.off = -1
	first := g
	digits := g.end - g.start
	colon := g.end < len(line) && line[g.end] == ':'
	dump := false // an offset without colon, as od and hexdump write it
	if !colon && digits >= 6 && digits <= 8 {
		if h, _, ok := readGroup(line, skipBlanks(line, g.end)); ok && isBlank(line, g.end) {
			d := h.end - h.start
			dump = d == 2 || d == 4
		}
	}
	if colon && digits >= 2 && digits <= 16 || dump {
		at := skipBlanks(line, g.end+btoi(colon))
		h, after, ok := readGroup(line, at)
		if !ok || at == g.end+1 && colon && digits < 4 {
			return r, g.end + 1, false
		}
		off, err := strconv.ParseInt(string(line[g.start:g.end]), 16, 64)
		if err != nil {
			return r, after, false
		}
		r.off = off
		g = h
		digits = g.end - g.start
	} else if colon {
		return r, g.end + 1, false
	}
	groups, next := readRun(line, g)
	r.width, r.from, r.to = digits/2, first.from, next
	r.last = skipBlanks(line, next) == len(line)
	r.alone = r.last && first.from == 0 && r.off < 0
	// od in words: the offset looks like the words that follow.
	if r.off < 0 && digits == 8 && len(groups) == 5 {
		r.off, _ = strconv.ParseInt(string(line[groups[0].start:groups[0].end]), 16, 64)
		groups = groups[1:]
	}
	if !plausibleRun(&r, len(groups), digits) || len(groups) < 4 && digits == 8 && r.off < 0 && g.from != g.start {
		return r, next, false
	}
	for _, h := range groups {
		for i := h.start; i < h.end; i += 2 {
			r.data = append(r.data, unhex(line[i])<<4|unhex(line[i+1]))
		}
	}
	if r.off >= 0 && len(r.data) > 16 && len(r.data) != 32 && len(r.data) != 64 {
		r.data, r.surplus = r.data[:16], true
	}
	return r, next, true
}

// readRun reads groups as wide as g with nothing but blanks or commas between.
func readRun(line []byte, g group) (groups []group, next int) {
	digits, prefixed := g.end-g.start, g.start != g.from
	for {
		groups = append(groups, g)
		next = g.end
		at := next
		for at < len(line) && (line[at] == ' ' || line[at] == ',') {
			at++
		}
		h, _, ok := readGroup(line, at)
		if at == next || !ok || h.end-h.start != digits || (h.start != h.from) != prefixed ||
			h.end < len(line) && (line[h.end] == ':' || line[h.end] == '.') {
			return groups, next
		}
		g = h
	}
}

// plausibleRun says whether that many groups of that many digits are bytes that
// somebody dumped.
func plausibleRun(r *row, groups, digits int) bool {
	switch digits {
	case 2:
		return r.off >= 0 || groups == 8 || groups >= 16 && groups%16 == 0 || r.alone && groups <= 16
	case 4:
		return r.off >= 0 || groups == 8 || groups == 32
	case 8:
		return r.off >= 0 || groups%4 == 0 || groups < 4 && r.last && (groups > 1 || r.alone)
	case 32:
		return r.alone || r.off >= 0
	case 64:
		return r.alone && groups <= 2
	case 128, 256:
		return groups == 1
	}
	return false
}

func skipBlanks(line []byte, i int) int {
	for i < len(line) && line[i] == ' ' {
		i++
	}
	return i
}

func isBlank(line []byte, i int) bool { return i < len(line) && line[i] == ' ' }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}
