package decode

import "bytes"

// clean writes a line into dst as a log would have printed it: without quote
// marks, colours, carriage returns, byte-order marks and the odd spaces that
// mail clients and web pages put in place of plain ones.
func clean(dst, line []byte) []byte {
	dst = dst[:0]
	for i := 0; i < len(line); {
		c := line[i]
		switch {
		case c >= ' ' && c < 0x7f:
			dst = append(dst, c)
			i++
		case c == 0x1b && i+1 < len(line) && line[i+1] == '[':
			i += escape(line[i:])
		case c < 0x80:
			dst = append(dst, ' ')
			i++
		default:
			n, r := unicodeSpace(line[i:])
			if r != 0 {
				dst = append(dst, r)
			}
			i += n
		}
	}
	return unquote(dst)
}

// unescape turns the newlines and tabs that a log in JSON or a program's source
// spells as \n and \t into blanks. It works in place.
func unescape(line []byte) []byte {
	at := bytes.IndexByte(line, '\\')
	if at < 0 {
		return line
	}
	out := line[:at]
	for i := at; i < len(line); i++ {
		if line[i] == '\\' && i+1 < len(line) && (line[i+1] == 'n' || line[i+1] == 't' || line[i+1] == 'r') {
			out = append(out, ' ')
			i++
			continue
		}
		out = append(out, line[i])
	}
	return out
}

// escape returns the length of the terminal control sequence at the start of b.
func escape(b []byte) int {
	for i := 2; i < len(b); i++ {
		if b[i] >= '@' && b[i] <= '~' {
			return i + 1
		}
	}
	return len(b)
}

// unicodeSpace looks at a byte outside ASCII: how many bytes to take and what to
// write for them, 0 for nothing.
func unicodeSpace(b []byte) (int, byte) {
	at := func(i int) byte {
		if i < len(b) {
			return b[i]
		}
		return 0
	}
	switch {
	case b[0] == 0xc2 && at(1) == 0xa0: // no-break space
		return 2, ' '
	case b[0] == 0xe2 && at(1) == 0x80 && at(2) >= 0x80 && at(2) <= 0x8a,
		b[0] == 0xe2 && at(1) == 0x80 && at(2) == 0xaf,
		b[0] == 0xe3 && at(1) == 0x80 && at(2) == 0x80: // typographic spaces
		return 3, ' '
	case b[0] == 0xe2 && at(1) == 0x80 && at(2) >= 0x8b && at(2) <= 0x8f,
		b[0] == 0xe2 && at(1) == 0x81 && at(2) == 0xa0,
		b[0] == 0xef && at(1) == 0xbb && at(2) == 0xbf: // zero width
		return 3, 0
	case b[0] == 0xa0: // no-break space in Latin-1
		return 1, ' '
	}
	return 1, '?'
}

// unquote drops leading blanks and the marks that mail programs put before
// quoted lines.
func unquote(b []byte) []byte {
	for len(b) > 0 {
		switch {
		case b[0] == ' ' || b[0] == '>':
			b = b[1:]
		case b[0] == '|' && len(b) > 1 && b[1] == ' ':
			b = b[2:]
		default:
			return b
		}
	}
	return b
}
