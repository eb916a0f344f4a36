// Abigen makes package abi from the kernel's UAPI headers, in two steps.
//
//	abigen scan   headers of a Debian package -> testdata/abi/uapi-6.12.txt
//	abigen gen    testdata/abi/uapi-6.12.txt  -> abi/z*.go
//
// Scan is rare: it needs a network, apt, dpkg-deb and gcc. Gen needs nothing but
// the committed table and runs from "go generate ./abi".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const usage = `usage: abigen scan [-series 6.12] [-o FILE]
       abigen gen  [-C DIR]

scan reads the headers of Debian's newest linux-libc-dev of a kernel series and
     writes their layouts to FILE. It downloads about 20 MB from the Debian
     mirror that apt is set up for, into the user's cache directory.
gen  prints abi/z*.go from the committed table. DIR is the top of the module;
     without it gen looks upwards for go.mod.
`

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run returns 0 when all went well, 1 when the work failed and 2 for arguments
// that it does not know.
func run(args []string, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	fs := flag.NewFlagSet("abigen "+args[0], flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() { fmt.Fprint(stderr, usage) }
	var do func() error
	switch args[0] {
	case "scan":
		series := fs.String("series", "6.12", "kernel series of the headers")
		out := fs.String("o", "", "file to write, by default testdata/abi/uapi-SERIES.txt in this module")
		do = func() error { return scan(*series, *out, stderr) }
	case "gen":
		dir := fs.String("C", "", "top directory of the module")
		do = func() error { return generate(*dir) }
	case "-h", "-help", "--help", "help":
		fmt.Fprint(stderr, usage)
		return 0
	default:
		fmt.Fprintf(stderr, "abigen: unknown command %q\n%s", args[0], usage)
		return 2
	}
	switch err := fs.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "abigen %s: unexpected argument %q\n%s", args[0], fs.Arg(0), usage)
		return 2
	}
	if err := do(); err != nil {
		fmt.Fprintf(stderr, "abigen %s: %v\n", args[0], err)
		return 1
	}
	return 0
}
