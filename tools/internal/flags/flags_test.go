package flags

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

func TestExplain(t *testing.T) {
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Int("n", 0, "")
	fs.Uint("u", 0, "")
	fs.Duration("wait-for", time.Second, "")
	fs.Bool("b", false, "")
	fs.Float64("f", 0, "")
	fs.Func("own", "", func(string) error { return io.ErrUnexpectedEOF })
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-n", "64K"}, `invalid value "64K" for flag -n: it is a whole number, without a unit`},
		{[]string{"-n", "a -b: parse error"}, `invalid value "a -b: parse error" for flag -n: it is a whole number, without a unit`},
		{[]string{"-n", "99999999999999999999"}, `invalid value "99999999999999999999" for flag -n: the number is too large`},
		{[]string{"-u", "-1"}, `invalid value "-1" for flag -u: it is a whole number, without a unit`},
		{[]string{"--wait-for", "5"}, `invalid value "5" for flag -wait-for: it is a time with its unit, such as 500ms, 10s or 2m, and at most 2562047h`},
		{[]string{"-wait-for", "99999999999s"}, `invalid value "99999999999s" for flag -wait-for: it is a time with its unit, such as 500ms, 10s or 2m, and at most 2562047h`},
		{[]string{"-b=x"}, `invalid boolean value "x" for -b: it is true or false`},
		{[]string{"-f", "x"}, `invalid value "x" for flag -f: it is a number, such as 0.5`},
		{[]string{"-own", "x"}, `invalid value "x" for flag -own: unexpected EOF`},
		{[]string{"--zz"}, "there is no flag -zz"},
		{[]string{"-n"}, "flag needs an argument: -n"},
	} {
		if err := Explain(fs, fs.Parse(c.args)); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
	if err := Explain(fs, fs.Parse([]string{"-h"})); err != flag.ErrHelp {
		t.Errorf("-h: %v", err)
	}
}

func TestParse(t *testing.T) {
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	n := fs.Int("n", 0, "a `number`")
	var out strings.Builder
	if err := Parse(fs, []string{"-n", "3", "rest"}, "usage: x\n", &out); err != nil || *n != 3 || fs.Arg(0) != "rest" || out.Len() > 0 {
		t.Errorf("%v, %d, %q, %q", err, *n, fs.Args(), out.String())
	}
	if err := Parse(fs, []string{"-n", "many"}, "usage: x\n", &out); err == nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
	fs.String("o", "here", "")
	file := fs.String("file", "", "a `file`")
	for name, want := range map[string]string{
		"-o":    "-o has nothing in it: leave it out, or say what",
		"-file": "-file has nothing in it: leave it out, or say which file",
	} {
		if err := Parse(fs, []string{"-n", "4", name, ""}, "usage: x\n", &out); err == nil || err.Error() != want || out.Len() > 0 {
			t.Errorf("%s: %v, want %s; %q", name, err, want, out.String())
		}
		if err := Parse(fs, []string{name, "x"}, "", &out); err != nil {
			t.Errorf("%s x: %v", name, err)
		}
	}
	if *file != "x" {
		t.Errorf("-file is %q", *file)
	}
	fs = flag.NewFlagSet("x", flag.ContinueOnError)
	fs.Int("n", 0, "a `number`")
	if err := Parse(fs, []string{"-h"}, "usage: x\n", &out); err != flag.ErrHelp || out.String() != "usage: x\n  -n number\n    \ta number\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
