package decode

import "io"

// Note is something about the text that is no finding: half a dump, a device
// that is not mlx5.
type Note struct {
	Line int
	Text string
	// Refused: something is there that could be taken for an mlx5 error
	// and is none.
	Refused bool
}

// Scan reads a text to its end and calls found for each failed completion, in
// the order of their first lines (as far as dumps allow that other printers
// have torn apart widely), and note for what else is worth saying. It holds no
// more than a few hundred kilobytes, however long text or lines are. An error
// is that of the reader, or of found, which stops the scan.
func Scan(r io.Reader, found func(*Finding) error, note func(Note)) error {
	return scan(newLines(r, longest), found, note)
}

func scan(l *lines, found func(*Finding) error, note func(Note)) error {
	s := newScanner(found, note, filter().match)
	var buf []byte
	for s.err == nil {
		line, ok := l.next()
		if !ok {
			break
		}
		// The line after a hit is looked at in any case: it may be the
		// rest of it.
		if s.open(line) || s.pass(line) {
			buf = clean(buf, line)
			s.line(buf, l.number, l.cut)
		}
	}
	s.end()
	if s.err == nil {
		s.err = l.err
	}
	return s.err
}

// scanner puts the parts of the package together.
type scanner struct {
	pass  func([]byte) bool // false for lines that need no look
	dumps assembler
	queue queue
	note  func(Note)
	err   error

	text   []byte // a line of text that may go on in the next one
	at     span   // its lines
	joined int
	piece  bool // the text is a piece of a line that is not at its end
}

func newScanner(found func(*Finding) error, note func(Note), pass func([]byte) bool) *scanner {
	s := &scanner{pass: pass, note: note}
	s.queue.emit = func(f *Finding) {
		if s.err == nil {
			s.err = found(f)
		}
	}
	s.dumps.found = s.queue.dump
	s.dumps.note = note
	return s
}

// open says that a line may be the rest of one before, whatever is in it.
func (s *scanner) open(line []byte) bool {
	return len(s.text) > 0 || s.dumps.wrapped != nil || s.dumps.maybeStar(line)
}

// line takes a cleaned line, or a piece of one that is cut there.
func (s *scanner) line(line []byte, number int, cut bool) {
	if !s.open(line) && !s.pass(line) {
		return
	}
	s.dumps.expire(number)
	s.queue.expire(number)
	line = unescape(line)
	rs := rows(line)
	if len(rs) == 0 {
		s.dumps.wrapStops(number)
		if len(line) == 1 && line[0] == '*' {
			s.dumps.repeated(number)
		}
		s.textLine(line, number, cut)
		return
	}
	// The bytes of rows are no text; what stands before or behind them is.
	key := keyOf(line[:rs[0].from])
	s.flush()
	rest := blankRows(line, rs)
	if before := rest[:rs[0].from]; len(before) > 0 {
		s.textLine(before, number, false)
		s.flush()
	}
	for _, r := range rs {
		s.dumps.row(number, key, r)
	}
	if behind := rest[rs[len(rs)-1].to:]; len(behind) > 0 {
		s.textLine(behind, number, cut)
	}
}

func blankRows(line []byte, rs []row) []byte {
	for _, r := range rs {
		for i := r.from; i < r.to; i++ {
			line[i] = ' '
		}
	}
	return line
}

// textLine takes a line of text, which may be the rest of the one before.
func (s *scanner) textLine(line []byte, number int, cut bool) {
	const longestText, mostJoined = 8 << 10, 8
	switch {
	case len(s.text) == 0:
	case s.piece:
		s.read(true)
		line = append(s.text, line...)
	case len(line) > 0 && s.joined < mostJoined && len(s.text) < longestText && continues(s.text, line):
		s.text = append(append(s.text, ' '), line...)
		s.joined++
		s.at.last = number
		return
	default:
		s.flush()
	}
	if !s.pass(line) {
		s.text = s.text[:0]
		return
	}
	s.text = append(s.text[:0], line...)
	s.at, s.joined, s.piece = span{number, number}, 0, cut
}

// flush reads the text that was held back to its end.
func (s *scanner) flush() {
	if len(s.text) > 0 {
		s.read(false)
	}
	s.piece = false
}

// read reads the text. If more of the line follows, what may go on stays.
func (s *scanner) read(more bool) {
	t := readText(s.text, s.at, more)
	for _, h := range t.headers {
		s.dumps.announce(h)
	}
	for _, n := range t.notes {
		s.note(n)
	}
	for _, f := range t.findings {
		s.queue.text(f)
	}
	s.text = append(s.text[:0], t.rest...)
}

func (s *scanner) end() {
	s.flush()
	s.dumps.end()
	s.queue.end()
}

// continues says whether next is the wrapped rest of a line rather than a line.
func continues(line, next []byte) bool {
	if stamped(next) {
		return false
	}
	t := readText(next, span{}, false)
	if len(t.headers) > 0 {
		return false
	}
	if cutShort(line) {
		return true
	}
	return stamped(line) && len(t.findings) == 0 && len(t.notes) == 0
}

// cutAfter says whether a number or a name must follow a word.
func cutAfter(word string) bool {
	switch word {
	case "failed", "with", "error", "status", "vendor", "syndrome", "synd", "cqn", "ci", "qn", "err", "opcode", "qp", "on", "from", "dump", "wr":
		return true
	}
	return false
}

// cutShort says whether a line ends where no line ends.
func cutShort(line []byte) bool {
	end := len(line)
	for end > 0 && line[end-1] == ' ' {
		end--
	}
	if end == 0 {
		return false
	}
	switch line[end-1] {
	case ',', '(', '=', ':':
		return true
	}
	start := end
	for start > 0 && isWord(line[start-1]) {
		start--
	}
	return cutAfter(lower(line[start:end]))
}
