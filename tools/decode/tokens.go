package decode

import "strconv"

// token is a word, a number or a mark of a line.
type token struct {
	text  string // lower case
	at    int    // its first byte in the line
	kind  uint8
	value uint64 // of a number
	hex   bool   // the number was written as 0x...
}

const (
	tokWord = iota
	tokNumber
	tokMark
)

// tokenize cuts a cleaned line into words (letters, digits and underscores that
// begin with a letter), numbers (decimal, 0x..., or hexadecimal digits that
// begin with a decimal one) and single marks. Text glued to a number, as in
// "wrid 0x2vendor_err", begins a word of its own.
func tokenize(line []byte) []token {
	var out []token
	for i := 0; i < len(line); {
		c := line[i]
		start := i
		switch {
		case c == ' ':
			i++
			continue
		case c >= '0' && c <= '9':
			t := token{at: i, kind: tokNumber}
			if c == '0' && i+2 < len(line) && line[i+1]|0x20 == 'x' && isHex(line[i+2]) {
				for i += 2; i < len(line) && isHex(line[i]); i++ {
				}
				// A word may follow that begins with a hexadecimal
				// letter; devices print no more than 16 digits.
				t.hex = true
				t.text = lower(line[start:i])
				t.value, _ = strconv.ParseUint(t.text[2:], 16, 64)
				out = append(out, t)
				continue
			}
			for ; i < len(line) && line[i] >= '0' && line[i] <= '9'; i++ {
			}
			if i == len(line) || !isWord(line[i]) {
				t.text = string(line[start:i])
				t.value, _ = strconv.ParseUint(t.text, 10, 64)
				out = append(out, t)
				continue
			}
			for i = start; i < len(line) && isHex(line[i]); i++ {
			}
			if i == len(line) || !isWord(line[i]) {
				t.text, t.hex = lower(line[start:i]), true
				t.value, _ = strconv.ParseUint(t.text, 16, 64)
				out = append(out, t)
				continue
			}
			for i = start; i < len(line) && line[i] >= '0' && line[i] <= '9'; i++ {
			}
			t.text = string(line[start:i])
			t.value, _ = strconv.ParseUint(t.text, 10, 64)
			out = append(out, t)
		case isWord(c):
			for ; i < len(line) && isWord(line[i]); i++ {
			}
			out = append(out, token{text: lower(line[start:i]), at: start, kind: tokWord})
		default:
			i++
			out = append(out, token{text: string(line[start:i]), at: start, kind: tokMark})
		}
	}
	return out
}

func lower(b []byte) string {
	out := make([]byte, len(b))
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		out[i] = c
	}
	return string(out)
}
