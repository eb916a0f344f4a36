package decode

import "sync"

// The filter is one pass of a finite automaton over a line. It says no to
// nearly every line of an ordinary log at some hundred megabytes a second, and
// must never say no to a line that the rest of the package would read: a test
// holds the two against each other.

// patterns are what a line must contain to be looked at. '#' stands for a
// decimal digit, '%' for a hexadecimal one, '_' for what may separate words, '~'
// for what may separate bytes, '!'
// for the first byte of sequences that clean takes out of the middle of words.
// Letters match in both cases.
var patterns = []string{
	"synd", "vend", "cqe", "cq_err", "cq_error", "on_cq_", "wc_", "wr_id", "wrid", "completion", "prov_err",
	"got_sigerr", "wqe_dump", "wqe[", "wr_flush",
	"flush", "local_protect", "local_length", "local_access", "local_qp_op", "local_ee_context",
	"remote_access", "remote_invalid", "remote_op", "remote_abort", "side_aborted",
	"bad_response", "memory_window_bind", "memory_bind_op", "memory_management_op",
	"retry_count", "retry_exc", "ready_retry", "rnr_retry", "rdd_violation", "response_timeout",
	"general_error", "invalid_ee", "operation_aborted", "aborted_error", "fatal_err",
	"qp_#", "qp_0x", "kiblnd", "ib_srp",
	"%%~%%~%%~%%", "%%%%%%%%~%%%%%%%%", "%%%%~%%%%~%%%%",
	"0x%%~0x%%", "0x%%%%%%%%~",
	"%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%",
	"!",
}

// classes of bytes that the automaton tells apart.
const (
	classOther = iota
	classSpace
	classUnderscore
	classPunct
	classColon
	classComma
	classBracket
	classDigit // 1-9
	classZero
	classHidden
	classLetter // 'a' is classLetter, 'z' is classLetter+25
	classCount  = classLetter + 26
)

func classOf(c byte) uint8 {
	switch {
	case c == '0':
		return classZero
	case c >= '1' && c <= '9':
		return classDigit
	case c >= 'a' && c <= 'z':
		return classLetter + c - 'a'
	case c >= 'A' && c <= 'Z':
		return classLetter + c - 'A'
	case c == '_':
		return classUnderscore
	case c == ':':
		return classColon
	case c == ',':
		return classComma
	case c == '[':
		return classBracket
	case c == '-' || c == '=' || c == '.' || c == '(' || c == '#':
		return classPunct
	case c == 0x1b || c == 0xe2 || c == 0xef:
		return classHidden
	case c < ' ' || c == ' ' || c == 0x7f || c >= 0x80:
		// Everything that clean may turn into a blank or drop, and the
		// bytes of such sequences.
		return classSpace
	}
	return classOther
}

// matches says whether a byte of the class satisfies one character of a pattern.
func matches(p byte, class uint8) bool {
	letter := class - classLetter // wraps for non-letters: then it is large
	switch p {
	case '#':
		return class == classDigit || class == classZero
	case '%':
		return class == classDigit || class == classZero || class >= classLetter && letter < 6
	case '_':
		return class == classSpace || class == classUnderscore || class == classPunct || class == classColon || class == classComma
	case '~':
		return class == classSpace || class == classComma
	case '0':
		return class == classZero
	case '!':
		return class == classHidden
	case '[':
		return class == classBracket
	}
	return class >= classLetter && letter == p-'a'
}

// automaton is the deterministic form of the patterns: state*classCount+class
// gives the next state. State 0 is the start; hit is the state of no return.
type automaton struct {
	classes [256]uint8
	next    []uint16
	hit     uint16
}

var filter = sync.OnceValue(buildFilter)

// buildFilter makes the automaton from the patterns by the subset construction.
func buildFilter() *automaton {
	a := &automaton{}
	for c := range a.classes {
		a.classes[c] = classOf(byte(c))
	}
	type place struct{ pattern, pos uint8 }
	type set = string // places, two bytes each: a map key
	states := map[set]uint16{"": 0}
	order := []set{""}
	const accept = "\xff"
	for i := 0; i < len(order); i++ {
		for class := uint8(0); class < classCount; class++ {
			var to []byte
			hit := order[i] == accept
			step := func(p place) {
				pat := patterns[p.pattern]
				if !matches(pat[p.pos], class) {
					return
				}
				if int(p.pos)+1 == len(pat) {
					hit = true
					return
				}
				to = append(to, p.pattern, p.pos+1)
			}
			if !hit {
				for j := 0; j < len(order[i]); j += 2 {
					p := place{order[i][j], order[i][j+1]}
					step(p)
					// A separator may be wider than one byte.
					if sep := patterns[p.pattern][p.pos-1]; (sep == '_' || sep == '~') && matches(sep, class) {
						to = append(to, p.pattern, p.pos)
					}
				}
				for n := range patterns {
					step(place{uint8(n), 0})
				}
			}
			key := canonical(to)
			if hit {
				key = accept
			}
			s, ok := states[key]
			if !ok {
				s = uint16(len(order))
				states[key] = s
				order = append(order, key)
			}
			a.next = append(a.next, s)
		}
	}
	a.hit = states[accept]
	return a
}

// canonical sorts the places of a set and drops doubles.
func canonical(to []byte) string {
	var seen [256][64]bool
	for i := 0; i < len(to); i += 2 {
		seen[to[i]][to[i+1]] = true
	}
	var out []byte
	for p := range patterns {
		for pos, in := range seen[p] {
			if in {
				out = append(out, byte(p), byte(pos))
			}
		}
	}
	return string(out)
}

// match says whether the line contains any of the patterns.
func (a *automaton) match(line []byte) bool {
	s := uint32(0)
	next, hit := a.next, uint32(a.hit)
	for _, c := range line {
		s = uint32(next[s*classCount+uint32(a.classes[c])])
		if s == hit {
			return true
		}
	}
	return false
}
