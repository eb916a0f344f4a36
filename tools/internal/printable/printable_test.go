package printable

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "mlx5_0": "mlx5_0", "µs": "µs", "\n a\nb\n": "a; b", "no\x1b[2J\r\n\n\tway \u202e\x00": "no?[2J; way ??", "a:\n b  c\t": "a: b c", "b\xff": "b\ufffd",
	} {
		if got := Line(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
	if got := Error(errors.Join(errors.New("a"), errors.New("b\t"))); got != "a; b" {
		t.Errorf("%q", got)
	}
}

func TestShort(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb": "a; b", strings.Repeat("x", 300): strings.Repeat("x", 300), strings.Repeat("x", 301): strings.Repeat("x", 300) + "...",
		"x" + strings.Repeat("µ", 300): "x" + strings.Repeat("µ", 149) + "...", strings.Repeat("\x80", 400): "...",
	} {
		if got := Short(in); got != want {
			t.Errorf("%.20q is %q, want %q", in, got, want)
		}
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"": "", `a "b"`: `a "b"`, "a\x1b[2J": `a\x1b[2J`, `a\x1b[2J`: `a\\x1b[2J`, "\xff\n": `\xff\n`, "µ": `\u00b5`, "\ufffd": `\ufffd`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// Whatever comes in, what comes out moves no terminal and is no longer than it may be.
func FuzzText(f *testing.F) {
	for _, s := range []string{"mlx5_0", "\x1b[31m\u202e\xff\xc3", strings.Repeat("\xc3", 400), "\\\"\n", `\x1b`, "\x7f"} {
		f.Add(s, s+"\\")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		for name, got := range map[string]string{"Line": Line(s), "Short": Short(s), "Escape": Escape(s)} {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: %q", name, got)
			}
		}
		// Two names stay two, unless they differ in what is no text.
		if s != other && Escape(s) == Escape(other) && utf8.ValidString(s) && utf8.ValidString(other) {
			t.Errorf("%q and %q are both %q", s, other, Escape(s))
		}
		if n := len(Short(s)); n > 3*most+3 { // what is no UTF-8 takes three bytes each
			t.Errorf("Short: %d bytes", n)
		}
	})
}
