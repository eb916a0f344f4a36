package abi

// The generated String methods print numbers with these, because package abi
// imports nothing: it is linked into every program that touches a verb.

// unknownValue prints a value that has no name as ENUM(27).
func unknownValue(enum string, v uint64) string {
	return enum + "(" + decimal(v) + ")"
}

// flagName is one bit and what the kernel calls it.
type flagName struct {
	bit  uint64
	name string
}

// flagNames joins the names of the bits of v by |. Bits without a name follow
// as one hexadecimal number; no bits at all print as 0.
func flagNames(v uint64, names []flagName) string {
	if v == 0 {
		return "0"
	}
	var s []byte
	for _, f := range names {
		if v&f.bit == f.bit {
			s = append(append(s, f.name...), '|')
			v &^= f.bit
		}
	}
	if v != 0 {
		s = append(append(s, hexadecimal(v)...), '|')
	}
	return string(s[:len(s)-1])
}

func decimal(v uint64) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			return string(b[i:])
		}
	}
}

func hexadecimal(v uint64) string {
	var b [18]byte
	i := len(b)
	for {
		i--
		b[i] = "0123456789abcdef"[v&15]
		if v >>= 4; v == 0 {
			return "0x" + string(b[i:])
		}
	}
}
