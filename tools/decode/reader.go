package decode

import (
	"bytes"
	"errors"
	"io"
)

// longest is how much of a line is looked at in one piece. Longer lines come in
// pieces, cut between words.
const longest = 32 << 10

// lines splits a stream into lines in bounded memory.
type lines struct {
	r          io.Reader
	piece      int // the longest piece of a line
	buf        []byte
	start, end int
	eof        bool
	err        error
	number     int  // of the line that next returned last, from 1
	cut        bool // the piece that next returned last was not the end of its line
}

func newLines(r io.Reader, piece int) *lines {
	return &lines{r: r, piece: piece, buf: make([]byte, 2*piece)}
}

// next returns the next line, or piece of one, without its newline. The bytes
// are good until the next call. ok is false at the end.
func (l *lines) next() (line []byte, ok bool) {
	if !l.cut {
		l.number++
	}
	for {
		b := l.buf[l.start:l.end]
		if i := bytes.IndexByte(b[:min(len(b), l.piece)], '\n'); i >= 0 {
			l.start += i + 1
			l.cut = false
			return b[:i], true
		}
		if len(b) >= l.piece {
			n := cutAt(b[:l.piece])
			l.start += n
			l.cut = true
			return b[:n], true
		}
		if l.eof {
			l.start = l.end
			l.cut = false
			return b, len(b) > 0
		}
		l.fill()
	}
}

// cutAt finds where to cut a piece off a long line: before a word, best before
// one that is no byte of a dump.
func cutAt(b []byte) int {
	blank := 0
	for i := len(b) - 1; i > len(b)-len(b)/8; i-- {
		if b[i-1] != ' ' || b[i] == ' ' {
			continue
		}
		if blank == 0 {
			blank = i
		}
		end := i
		for end < len(b) && isHex(b[end]) {
			end++
		}
		if end < len(b) && b[end] != ' ' {
			return i
		}
	}
	if blank > 0 {
		return blank
	}
	return len(b)
}

// fill reads more behind what is there.
func (l *lines) fill() {
	if len(l.buf)-l.end < l.piece {
		copy(l.buf, l.buf[l.start:l.end])
		l.end -= l.start
		l.start = 0
	}
	const retries = 100 // as bufio: a reader that returns nothing for ever is broken
	for range retries {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if err != nil {
			l.eof = true
			if !errors.Is(err, io.EOF) {
				l.err = err
			}
			return
		}
		if n > 0 {
			return
		}
	}
	l.eof, l.err = true, io.ErrNoProgress
}
