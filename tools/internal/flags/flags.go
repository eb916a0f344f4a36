// Package flags parses the flags of the tools as all of them do: help goes to standard output, and
// what is wrong is said in words that help. Package flag says "parse error" of a size with a unit,
// and of a time without one.
//
//	f := flag.NewFlagSet("release", flag.ContinueOnError)
//	dir := f.String("o", "", "the `folder` that gets the files")
//	if err := flags.Parse(f, args, usage, stdout); err != nil {
//		return err // flag.ErrHelp too
//	}
//
// A flag set is for one goroutine.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// Parse parses args, of which no flag may have nothing in it: see [Filled]. For -h it writes a text
// to help, and the flags behind it, and returns flag.ErrHelp.
func Parse(fs *flag.FlagSet, args []string, text string, help io.Writer) error {
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	if err == nil {
		return Filled(fs)
	}
	if !errors.Is(err, flag.ErrHelp) {
		return Explain(fs, err)
	}
	if _, werr := io.WriteString(help, text); werr != nil {
		return werr
	}
	fs.SetOutput(help)
	fs.PrintDefaults()
	return err
}

// Filled is an error when a flag was given that has nothing in it: who writes -d "$DEVICE" means a
// device, and not the default.
func Filled(fs *flag.FlagSet) (err error) {
	fs.Visit(func(f *flag.Flag) {
		if g, ok := f.Value.(flag.Getter); !ok || g.Get() != "" || err != nil {
			return
		}
		what := "what"
		if name, usage := flag.UnquoteUsage(f); usage != "" {
			what = "which " + name
		}
		err = fmt.Errorf("-%s has nothing in it: leave it out, or say %s", f.Name, what)
	})
	return err
}

// Explain is an error of fs.Parse in better words. nil, flag.ErrHelp and what it has no better
// words for it returns as they are.
func Explain(fs *flag.FlagSet, err error) error {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: "); ok {
		return fmt.Errorf("there is no flag %s", name)
	}
	if about, ok := strings.CutSuffix(text, ": value out of range"); ok {
		return fmt.Errorf("%s: the number is too large", about)
	}
	if about, ok := strings.CutSuffix(text, ": parse error"); ok {
		// The flag is named last, behind the value.
		if f := fs.Lookup(about[strings.LastIndex(about, " -")+len(" -"):]); f != nil {
			return fmt.Errorf("%s: it is %s", about, kind(f.Value))
		}
	}
	return err
}

// kind says what a flag takes.
func kind(v flag.Value) string {
	var value any
	if g, ok := v.(flag.Getter); ok {
		value = g.Get()
	}
	switch value.(type) {
	case time.Duration:
		return "a time with its unit, such as 500ms, 10s or 2m, and at most 2562047h"
	case bool:
		return "true or false"
	case float64:
		return "a number, such as 0.5"
	}
	return "a whole number, without a unit"
}
