package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/internal/flags"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// errHelp is that of -h: the flags have been printed.
var errHelp = flag.ErrHelp

// parseFlags parses the flags of a command that takes nothing besides: see parseFlagsFirst.
func parseFlags(f *flag.FlagSet, args []string, text string, help io.Writer) (given map[string]bool, err error) {
	given, err = parseFlagsFirst(f, args, text, help)
	if err == nil && f.NArg() > 0 {
		err = usage.Errorf("unexpected argument %q", f.Arg(0))
	}
	return given, err
}

// parseFlagsFirst parses the flags of a command, before its arguments. -h prints the text, the
// flags behind it, and is errHelp, or the error of a full disk. All other errors are wrong use.
// given are the flags that were there.
func parseFlagsFirst(f *flag.FlagSet, args []string, text string, help io.Writer) (given map[string]bool, err error) {
	err = flags.Parse(f, args, text, help)
	var unwritten *fs.PathError
	switch {
	case err == nil:
		return givenFlags(f), nil
	case errors.Is(err, errHelp), errors.As(err, &unwritten):
		return nil, err
	}
	return nil, usage.Errorf("%v", err)
}

// givenFlags are the flags that were there.
func givenFlags(f *flag.FlagSet) map[string]bool {
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return given
}

// A getopt has flags as programs in C have them: with a letter, a word, or both, before
// and behind other arguments, and letters together (-ec) or with their value (-s64).
type getopt struct {
	*flag.FlagSet
	short map[byte]bool // one-letter flags: whether they take a value
}

func newGetopt(name string) *getopt {
	f := &getopt{flag.NewFlagSet(name, flag.ContinueOnError), map[byte]bool{}}
	f.SetOutput(io.Discard)
	return f
}

func (f *getopt) both(short, long string, define func(name string)) {
	if short != "" {
		define(short)
		b, ok := f.Lookup(short).Value.(interface{ IsBoolFlag() bool })
		f.short[short[0]] = !(ok && b.IsBoolFlag())
	}
	if long != "" {
		define(long)
	}
}

func (f *getopt) number(to *int, short, long string) {
	f.both(short, long, func(name string) { f.IntVar(to, name, *to, "") })
}

// bytes is a number of bytes, which may have K or M behind it, as perftest has it.
func (f *getopt) bytes(to *int, short, long string) {
	f.both(short, long, func(name string) {
		f.Func(name, "", func(s string) (err error) {
			*to, err = parseBytes(s)
			return err
		})
	})
}

// parseBytes reads a number of bytes such as 65536, 64K or 1M.
func parseBytes(s string) (int, error) {
	number, unit := s, 1
	if n, ok := strings.CutSuffix(s, "K"); ok {
		number, unit = n, 1<<10
	} else if n, ok := strings.CutSuffix(s, "M"); ok {
		number, unit = n, 1<<20
	}
	n, err := strconv.ParseInt(number, 0, strconv.IntSize)
	if errors.Is(err, strconv.ErrRange) || err == nil && int(n)*unit/unit != int(n) {
		return 0, errors.New("the number is too large")
	}
	if err != nil {
		return 0, errors.New("it is a number of bytes, such as 65536, 64K or 1M")
	}
	return int(n) * unit, nil
}

// seconds is a time of at least one second, and at most most, as a number.
func (f *getopt) seconds(to *time.Duration, most time.Duration, short, long string) {
	f.both(short, long, func(name string) {
		f.Func(name, "", func(s string) error {
			n, err := strconv.ParseInt(s, 0, 64)
			if err != nil || n < 1 || n > int64(most/time.Second) {
				return fmt.Errorf("it is a whole number of seconds from 1 to %d", most/time.Second)
			}
			*to = time.Duration(n) * time.Second
			return nil
		})
	})
}

func (f *getopt) word(to *string, short, long string) {
	f.both(short, long, func(name string) { f.StringVar(to, name, *to, "") })
}

func (f *getopt) toggle(to *bool, short, long string) {
	f.both(short, long, func(name string) { f.BoolVar(to, name, *to, "") })
}

// parse parses flags and returns what else there is. -h is flag.ErrHelp.
func (f *getopt) parse(args []string) (others []string, err error) {
	rest := splitShort(args, f.short, f.FlagSet)
	for len(rest) > 0 {
		err := flags.Explain(f.FlagSet, f.Parse(rest))
		if err == nil {
			err = flags.Filled(f.FlagSet)
		}
		if err != nil {
			return nil, err
		}
		n := len(rest) - f.NArg()
		if n > 0 && rest[n-1] == "--" {
			return append(others, f.Args()...), nil
		}
		if rest = f.Args(); len(rest) > 0 {
			others, rest = append(others, rest[0]), rest[1:]
		}
	}
	return others, nil
}

// splitShort takes apart what getopt allows and package flag does not: -s64 and
// -ec, as long as no flag has that name.
func splitShort(args []string, short map[byte]bool, fs *flag.FlagSet) []string {
	var out []string
	value := false // the argument belongs to the flag before
	for i, arg := range args {
		if value {
			out, value = append(out, arg), false
			continue
		}
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if len(arg) < 2 || arg[0] != '-' {
			out = append(out, arg)
			continue
		}
		name, _, assigned := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if f := fs.Lookup(name); f != nil || arg[1] == '-' {
			b, ok := flagValue(f).(interface{ IsBoolFlag() bool })
			value = f != nil && !assigned && !(ok && b.IsBoolFlag())
			out = append(out, arg)
			continue
		}
		var parts []string
		parts, value = takeApart(arg, short)
		out = append(out, parts...)
	}
	return out
}

func flagValue(f *flag.Flag) flag.Value {
	if f == nil {
		return nil
	}
	return f.Value
}

// takeApart splits one argument of one-letter flags. It returns the argument as
// it is when a letter is none. value is whether the last flag still wants one.
func takeApart(arg string, short map[byte]bool) (parts []string, value bool) {
	for i := 1; i < len(arg); i++ {
		takes, ok := short[arg[i]]
		if !ok {
			return []string{arg}, false
		}
		parts = append(parts, "-"+arg[i:i+1])
		if takes {
			if i+1 == len(arg) {
				return parts, true
			}
			return append(parts, arg[i+1:]), false
		}
	}
	return parts, false
}
