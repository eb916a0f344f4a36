// Package printable makes text of strangers fit for terminals, logs and files: names that
// the kernel has from whoever made them, and what the other side of a connection says.
//
//	fmt.Fprintln(os.Stderr, printable.Error(err))
//
// [Line], [Short] and [Error] are for sentences: what cannot be printed becomes a question
// mark. [Escape] is for names, of which two that differ have to stay two.
//
// The functions may be called from any goroutine, and never fail.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is a text on one line, with single blanks: where lines end semicolons stand, but
// behind a colon.
func Line(s string) string {
	var b strings.Builder
	colon := false
	for line := range strings.Lines(s) {
		if line = strings.Join(strings.Fields(line), " "); line == "" {
			continue
		}
		switch {
		case colon:
			b.WriteByte(' ')
		case b.Len() > 0:
			b.WriteString("; ")
		}
		b.WriteString(line)
		colon = strings.HasSuffix(line, ":")
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, b.String())
}

// Error is the text of an error as Line has it.
func Error(err error) string { return Line(err.Error()) }

// most is how many bytes of a text Short leaves.
const most = 300

// Short is Line of no more than the beginning of a text.
func Short(s string) string {
	if len(s) <= most {
		return Line(s)
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return Line(s[:n]) + "..."
}

// Escape makes every character that is not printable ASCII an escape of Go's, and a
// backslash, too, so that two texts stay two.
func Escape(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\\' {
			return escaped(s)
		}
	}
	return s
}

func escaped(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			const hex = "0123456789abcdef"
			b.WriteString(`\x` + string(hex[s[0]>>4]) + string(hex[s[0]&15]))
		case r == '"':
			b.WriteByte('"')
		default:
			q := strconv.QuoteToASCII(s[:n])
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}
