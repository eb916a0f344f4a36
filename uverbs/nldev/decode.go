package nldev

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
)

// ErrMalformed says that an answer did not make sense. It comes wrapped in
// what exactly did not.
var ErrMalformed = errors.New("malformed netlink answer")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// A value is the payload of one attribute. Its methods refuse what cannot be
// meant; the first refusal sticks in err.
type value struct {
	typ uint16
	b   []byte
	err *error
}

func (v value) fail(what string) {
	if *v.err == nil {
		*v.err = malformed("attribute %d of %d bytes is not %s", v.typ, len(v.b), what)
	}
}

func (v value) uint8() uint8 {
	if len(v.b) != 1 {
		v.fail("a number of one byte")
		return 0
	}
	return v.b[0]
}

func (v value) uint32() uint32 {
	if len(v.b) != 4 {
		v.fail("a number of four bytes")
		return 0
	}
	return binary.NativeEndian.Uint32(v.b)
}

func (v value) uint64() uint64 {
	if len(v.b) != 8 {
		v.fail("a number of eight bytes")
		return 0
	}
	return binary.NativeEndian.Uint64(v.b)
}

// anyUint reads a number whose width the header and the kernel do not agree on.
func (v value) anyUint() uint64 {
	if len(v.b) == 4 {
		return uint64(v.uint32())
	}
	return v.uint64()
}

// text reads a zero-terminated string of printable ASCII characters. The
// strings end up in terminals and logs, so control characters stay out.
func (v value) text() string {
	s, ok := bytes.CutSuffix(v.b, []byte{0})
	if !ok || len(s) > maxTextLength {
		v.fail("a string")
		return ""
	}
	for _, c := range s {
		if c < ' ' || c > '~' {
			v.fail("printable text")
			return ""
		}
	}
	return string(s)
}

// name reads a string that names something in sysfs or /dev, and so must be
// fit to be one element of a path.
func (v value) name(limit int) string {
	s := v.text()
	if *v.err == nil && (len(s) > limit || !isName(s)) {
		v.fail("a name")
		return ""
	}
	return s
}

// isName tells whether s can stand alone in a path.
func isName(s string) bool {
	if s == "" || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '/' {
			return false
		}
	}
	return true
}

// each calls f for every attribute of b. An unknown attribute is f's to
// ignore: kernels add them.
func each(b []byte, f func(v value)) error {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return malformed("%v", err)
	}
	var bad error
	for d.Next() {
		d.Do(func(b []byte) error {
			f(value{typ: d.Type(), b: b, err: &bad})
			return nil
		})
		if bad != nil {
			return bad
		}
	}
	if err := d.Err(); err != nil {
		return malformed("%v", err)
	}
	return nil
}

// nested calls f for every attribute inside v.
func (v value) nested(f func(v value)) {
	if err := each(v.b, f); err != nil && *v.err == nil {
		*v.err = err
	}
}
