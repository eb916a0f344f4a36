package decode

// Logs put the time and the printer (process, CPU, rank) into brackets before a
// line. The printer tells lines apart that several of them wrote mixed, and a
// bracket in the middle of a line tells that two lines were glued together.

type bracket uint8

const (
	bracketOther bracket = iota
	bracketTime
	bracketPrinter
)

// readBracket classifies the bracket that opens at i and returns the index
// behind its end.
func readBracket(b []byte, i int) (kind bracket, end int) {
	const widest = 80
	end = i + 1
	for ; end < len(b) && b[end] != ']'; end++ {
		if end-i > widest || b[end] == '[' {
			return bracketOther, i + 1
		}
	}
	if end == len(b) {
		return bracketOther, i + 1
	}
	return classify(b[i+1 : end]), end + 1
}

// classify tells what stands between brackets.
func classify(in []byte) bracket {
	for len(in) > 0 && in[0] == ' ' {
		in = in[1:]
	}
	for len(in) > 0 && in[len(in)-1] == ' ' {
		in = in[:len(in)-1]
	}
	if len(in) < 2 {
		return bracketOther
	}
	if clock(in) {
		return bracketTime
	}
	digits, points, commas, colons := 0, 0, 0, 0
	lastColon := -1
	for i, c := range in {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.':
			points++
		case c == ',':
			commas++
		case c == ':':
			colons++
			lastColon = i
		case c == ' ':
			// Only before a colon: "host:1411 :0".
			if rest := in[skipBlanks(in, i):]; len(rest) == 0 || rest[0] != ':' {
				return bracketOther
			}
		case c == '=' || c == '(' || c == '/':
			return bracketOther
		}
	}
	switch {
	case points == 1 && digits == len(in)-1:
		return bracketTime
	case commas == 1 && digits == len(in)-1:
		return bracketPrinter
	case (in[0] == 'C' || in[0] == 'T') && digits == len(in)-1:
		return bracketPrinter
	case colons > 0 && lastColon < len(in)-1 && allDigits(in[lastColon+1:]):
		return bracketPrinter
	}
	return bracketOther
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// clock says whether a time of day, as in 14:40:27, is in b.
func clock(b []byte) bool {
	digit := func(i int) bool { return b[i] >= '0' && b[i] <= '9' }
	for i := 0; i+8 <= len(b); i++ {
		if digit(i) && digit(i+1) && b[i+2] == ':' && digit(i+3) && digit(i+4) && b[i+5] == ':' && digit(i+6) && digit(i+7) {
			return true
		}
	}
	return false
}

// keyOf names the printer of a line: the brackets at its beginning, without the
// times. It is empty where nothing names one.
func keyOf(line []byte) string {
	const prefix = 160
	var key []byte
	for i := 0; i < len(line) && i < prefix; {
		if line[i] != '[' {
			i++
			continue
		}
		kind, end := readBracket(line, i)
		if kind == bracketPrinter {
			for _, c := range line[i:end] {
				if c != ' ' {
					key = append(key, c)
				}
			}
		}
		i = end
	}
	return string(key)
}

// split cuts a line before each bracket that begins a line of its own.
func split(line []byte) (parts [][]byte) {
	start := 0
	for i := 0; i < len(line); {
		if line[i] != '[' {
			i++
			continue
		}
		kind, end := readBracket(line, i)
		if kind != bracketOther && i > start {
			parts = append(parts, line[start:i])
			start = i
		}
		i = end
	}
	return append(parts, line[start:])
}

// stamped says whether a line begins the way logs begin lines: with a bracket,
// a time of day or the level of printk.
func stamped(line []byte) bool {
	if len(line) == 0 {
		return false
	}
	if line[0] == '[' {
		kind, _ := readBracket(line, 0)
		return kind != bracketOther
	}
	const prefix = 40
	return clock(line[:min(len(line), prefix)]) || len(line) > 3 && line[0] == '<' && allDigits(line[1:2]) && line[2] == '>'
}
