package decode

import (
	"bytes"
	"encoding/hex"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// This file is the decoder again, slow and obvious: the text is split whole, no
// line is filtered by an automaton, and lines are cleaned and taken apart by
// regular expressions. What it shares with the fast one is what is done with
// rows and facts once they are read.

// slowScan finds what Scan finds.
func slowScan(text string) (found []*Finding, notes []Note) {
	s := newScanner(func(f *Finding) error {
		found = append(found, f)
		return nil
	}, func(n Note) { notes = append(notes, n) }, slowPass)
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i, l := range lines {
		s.line([]byte(slowClean(l)), i+1, false)
	}
	s.end()
	return found, notes
}

// slowPass is the filter as a regular expression.
func slowPass(line []byte) bool { return slowPatterns.Match(line) }

var slowPatterns = func() *regexp.Regexp {
	const hidden = `\x1b`
	alternatives := make([]string, len(patterns))
	for i, p := range patterns {
		var b strings.Builder
		for _, c := range []byte(p) {
			switch c {
			case '#':
				b.WriteString(`[0-9]`)
			case '%':
				b.WriteString(`[0-9a-f]`)
			case '_':
				b.WriteString(`[ _=.(#:,-]+`)
			case '~':
				b.WriteString(`[ ,]+`)
			case '!':
				b.WriteString(hidden) // clean leaves none
			default:
				b.WriteString(regexp.QuoteMeta(string(c)))
			}
		}
		alternatives[i] = b.String()
	}
	return regexp.MustCompile(`(?i)` + strings.Join(alternatives, "|"))
}()

var slowUnclean = regexp.MustCompile(`(?s)\x1b\[[^@-~]*[@-~]?|.`)

var slowQuote = regexp.MustCompile(`^(?: |>|\| )+`)

// slowClean is clean, character by character.
func slowClean(line string) string {
	out := slowUnclean.ReplaceAllStringFunc(line, func(s string) string {
		switch {
		case strings.HasPrefix(s, "\x1b["):
			return ""
		case strings.Contains("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", s) && len(s) == 3:
			return ""
		case strings.Contains("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000", s) && len(s) > 1, s == "\xa0":
			return " "
		case len(s) == 1 && s[0] >= ' ' && s[0] < 0x7f:
			return s
		case len(s) == 1 && s[0] < 0x80:
			return " "
		}
		// clean goes byte by byte, and a lone 0xa0 is a space in Latin-1.
		return strings.Map(func(r rune) rune {
			if r == 0xa0 {
				return ' '
			}
			return '?'
		}, latin1(s))
	})
	return slowQuote.ReplaceAllString(out, "")
}

var slowEscaped = regexp.MustCompile(`\\[ntr]`)

// latin1 makes a character of each byte.
func latin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

var slowToken = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`0x[0-9a-f]+`,      // 1: hexadecimal
	`[0-9]+\b`,         // decimal
	`[0-9][0-9a-f]*\b`, // hexadecimal without 0x
	`[0-9]+`,           // decimal with a word glued to it
	`[a-z_][a-z0-9_]*`, // word
	`[^ ]`,             // mark
}, "|"))

// slowTokenize is tokenize as a regular expression.
func slowTokenize(line string) []token {
	var out []token
	for _, at := range slowToken.FindAllStringIndex(line, -1) {
		t := token{text: strings.ToLower(line[at[0]:at[1]]), at: at[0], kind: tokMark}
		switch c := t.text[0]; {
		case c >= '0' && c <= '9':
			t.kind = tokNumber
			switch {
			case strings.HasPrefix(t.text, "0x"):
				t.hex = true
				t.value, _ = strconv.ParseUint(t.text[2:], 16, 64)
			case strings.ContainsAny(t.text, "abcdef"):
				t.hex = true
				t.value, _ = strconv.ParseUint(t.text, 16, 64)
			default:
				t.value, _ = strconv.ParseUint(t.text, 10, 64)
			}
		case c == '_' || c >= 'a' && c <= 'z':
			t.kind = tokWord
		}
		out = append(out, t)
	}
	return out
}

var slowRow = regexp.MustCompile(`(?m)^000000([0-3])0: ((?:[0-9a-f]{2} ){15}[0-9a-f]{2})$`)

// slowDumps finds the plainest dumps: four lines of offset and sixteen bytes,
// nothing else on them. It returns the text of each and its bytes.
func slowDumps(text string) (texts []string, cqes [][]byte) {
	lines := strings.Split(text, "\n")
	for i := 0; i+4 <= len(lines); i++ {
		var all string
		for j := range 4 {
			m := slowRow.FindStringSubmatch(lines[i+j])
			if m == nil || m[1] != strconv.Itoa(j) {
				break
			}
			all += m[2]
		}
		b, err := hex.DecodeString(strings.ReplaceAll(all, " ", ""))
		if err == nil && len(b) == 64 {
			texts = append(texts, strings.Join(lines[i:i+4], "\n"))
			cqes = append(cqes, b)
		}
	}
	return texts, cqes
}

// pieces is a reader that returns its text in pieces of growing size.
type pieces struct {
	text []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	p.n = p.n%97 + 1
	n := copy(b[:min(len(b), p.n)], p.text)
	p.text = p.text[n:]
	return n, nil
}

func newPieces(text string) io.Reader { return &pieces{text: bytes.Clone([]byte(text))} }
