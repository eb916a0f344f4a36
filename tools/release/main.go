// Release builds the binaries that are given to people: verbs for Linux on amd64 and arm64, static,
// stripped, and the same bytes whoever builds them, with what they are made of and their hashes.
//
//	go run ./tools/release -o DIR            build them into DIR
//	go run ./tools/release -o DIR -verify    ... twice, and compare
//
// DIR gets verbs-linux-amd64 and verbs-linux-arm64, a bill of materials of each
// (CycloneDX, *.cdx.json), and SHA256SUMS, which sha256sum -c reads. The bytes depend on the source,
// on the commit that git says it is, and on the Go release, which the bill names; not on the folder,
// the time, the machine or the environment.
//
// The exit status is 0, 1 if something failed, or 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/tools/internal/flags"
	"github.com/goverbs/goverbs/tools/internal/source"
)

// sizeLimit is what a binary may have, in bytes.
const sizeLimit = 12e6

// architectures are those that are released.
var architectures = []string{"amd64", "arm64"}

const usage = `usage: release -o DIR [-verify] [-arch amd64,arm64]
Builds verbs for Linux into DIR, with a bill of materials for each binary and
SHA256SUMS. The same source, commit and Go release give the same bytes.

  go run ./tools/release -o /tmp/release
  go run ./tools/release -o /tmp/release -verify

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	dir    string
	verify bool
	archs  []string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "release: %v\nrelease -h lists the flags.\n", err)
		return 2
	}
	if err := release(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "release: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stdout io.Writer) (o options, err error) {
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.StringVar(&o.dir, "o", "", "the `folder` that gets the files; it is made if there is none")
	f.BoolVar(&o.verify, "verify", false, "build once more, from a copy of the source in another folder and with an empty build cache, and compare")
	archs := f.String("arch", strings.Join(architectures, ","), "`architectures`, separated by commas")
	switch err = flags.Parse(f, args, usage, stdout); {
	case err != nil:
		return o, err
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.dir == "":
		return o, errors.New("-o is missing: the folder that gets the files")
	}
	for a := range strings.SplitSeq(*archs, ",") {
		if !slices.Contains(architectures, a) || slices.Contains(o.archs, a) {
			return o, fmt.Errorf("-arch %q: there are %s, each once", *archs, strings.Join(architectures, ", "))
		}
		o.archs = append(o.archs, a)
	}
	return o, nil
}

// release builds everything into a scratch folder, checks it, and moves it to where it is wanted.
func release(ctx context.Context, o options, stdout io.Writer) (err error) {
	root, err := source.Root(".")
	if err != nil {
		return err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	// Told now, not after minutes.
	if err := writable(o.dir); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAll(scratch)) }()
	id, note := identify(ctx, root, o.dir)
	if note != "" {
		fmt.Fprintln(stdout, note)
	}
	settings, err := userSettings(ctx, root)
	if err != nil {
		return err
	}
	b := builder{root: root, id: id, temp: scratch, settings: settings}
	var made []artifact
	for _, arch := range o.archs {
		a, err := b.build(ctx, arch)
		if err != nil {
			return err
		}
		made = append(made, a)
	}
	if o.verify {
		if err := verify(ctx, b, made); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := deliver(o.dir, made); err != nil {
		return err
	}
	for _, a := range made {
		again := ""
		if o.verify {
			again = ", the same from another folder"
		}
		fmt.Fprintf(stdout, "%s  %s  %.1f MB, %s, %s%s\n", a.sum(), a.name, float64(len(a.binary))/1e6, id.Version, a.info.GoVersion, again)
	}
	return nil
}

// writable says why nothing can be written into a folder, which it makes.
func writable(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".release-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("-o %s: nothing can be written there: %w", dir, err)
	}
	return nil
}

// deliver writes the files of a release. Until they are all there, no sums are.
func deliver(dir string, made []artifact) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list := filepath.Join(dir, "SHA256SUMS")
	if err := os.Remove(list); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var sums strings.Builder
	write := func(name string, content []byte, mode os.FileMode) error {
		fmt.Fprintf(&sums, "%s  %s\n", sha256Hex(content), name)
		return replaceFile(filepath.Join(dir, name), content, mode)
	}
	for _, a := range made {
		bill, err := a.bill()
		if err == nil {
			err = errors.Join(write(a.name, a.binary, 0o755), write(a.name+".cdx.json", bill, 0o644))
		}
		if err != nil {
			return err
		}
	}
	return replaceFile(list, []byte(sums.String()), 0o644)
}

// replaceFile writes a file whole or not at all. A binary that runs can be replaced so, too.
func replaceFile(name string, content []byte, mode os.FileMode) error {
	part := name + ".part"
	err := os.WriteFile(part, content, mode)
	if err == nil {
		err = os.Chmod(part, mode) // whatever the umask
	}
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, removeAll(part))
	}
	return nil
}
