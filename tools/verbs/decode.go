package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/goverbs/goverbs/tools/decode"
	"github.com/goverbs/goverbs/tools/internal/tty"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

const decodeUsage = `usage: verbs decode [-json] [FILE...]

Finds failed RDMA completions in logs and explains them: dumps of mlx5 error
CQEs, and lines of the kernel, NCCL, UCX, Open MPI, SPDK, perftest and others.
Without FILE, or where FILE is -, it reads what you pipe or paste in.

  dmesg | verbs decode
  verbs decode nccl.log

Exit status: 0 something was found, 1 nothing was, 2 wrong use, a file that
cannot be read or written, or Ctrl-C, which ends the text there.

`

// cmdDecode explains the failed completions in texts.
func cmdDecode(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("verbs decode", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "print an array of objects instead of explanations")
	if _, err := parseFlagsFirst(f, args, decodeUsage, stdout); err != nil {
		return exitStatus(ctx, "decode", err, stderr)
	}
	if slices.Contains(f.Args(), "") {
		return exitStatus(ctx, "decode", usage.Errorf("the name of a file is empty: - is standard input"), stderr)
	}
	d := decoding{stdin: os.Stdin, pasted: tty.Is(os.Stdin), stdout: stdout, stderr: stderr, files: f.Args()}
	if len(d.files) == 0 {
		d.files = []string{"-"}
	}
	if *asJSON {
		d.json = decode.NewJSON(stdout)
		d.text = decode.NewText(stderr, 0) // for notes only
	} else {
		d.text = decode.NewText(stdout, 0)
	}
	return d.run(ctx)
}

// untilDone reads what open opens, and ends when ctx is done: who follows a log and presses Ctrl-C
// wants what was found in it. Neither opening nor reading a pipe or a terminal can be interrupted,
// so both are left behind then.
func untilDone(ctx context.Context, open func() (io.ReadCloser, error)) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		defer context.AfterFunc(ctx, func() { w.Close() })()
		f, err := open()
		if err == nil {
			_, err = io.Copy(w, f)
			f.Close()
		}
		w.CloseWithError(err)
	}()
	return r
}

// errInterrupted: what was read until then has been explained.
var errInterrupted = errors.New("interrupted")

// decoding is one run of the command.
type decoding struct {
	stdin          *os.File
	pasted         bool // stdin is a terminal
	stdout, stderr io.Writer
	files          []string
	json           *decode.JSON
	text           *decode.Text
	found          int
	refused        bool
}

func (d *decoding) run(ctx context.Context) int {
	code := 0
	for _, name := range d.files {
		if len(d.files) > 1 {
			d.text.File(name)
		}
		err := d.file(ctx, name)
		if ctx.Err() != nil {
			err = errInterrupted
		}
		if err != nil {
			fmt.Fprintf(d.stderr, "verbs decode: %v\n", err)
			code = 2
			break
		}
	}
	if d.json != nil {
		if err := d.json.Close(); err != nil && code == 0 {
			fmt.Fprintf(d.stderr, "verbs decode: %v\n", err)
			code = 2
		}
	}
	if err := d.text.Close(); err != nil && code == 0 {
		fmt.Fprintf(d.stderr, "verbs decode: %v\n", err)
		code = 2
	}
	if code == 0 && d.found == 0 {
		d.nothing()
		code = 1
	}
	return code
}

// nothing says that nothing was found, and what would help.
func (d *decoding) nothing() {
	if d.refused {
		fmt.Fprintln(d.stderr, "verbs decode: no mlx5 completion error found; what looks like one was refused, see above")
		return
	}
	fmt.Fprintln(d.stderr, `verbs decode: no failed completion found. It looks for dumps of error CQEs (64 bytes
in hexadecimal; the last 16 matter most) and for lines that give a status, a
syndrome or a vendor code, such as "status 12 vendor err 129".`)
}

func (d *decoding) file(ctx context.Context, name string) error {
	open := func() (io.ReadCloser, error) { return os.Open(name) }
	if name == "-" {
		open = func() (io.ReadCloser, error) { return io.NopCloser(d.stdin), nil }
		if d.pasted {
			fmt.Fprintln(d.stderr, "verbs decode: paste the text, then press Ctrl-D on a line of its own")
		}
	}
	in := untilDone(ctx, open)
	defer in.Close()
	return decode.Scan(in, d.finding, d.note)
}

func (d *decoding) finding(f *decode.Finding) error {
	d.found++
	if d.json != nil {
		return d.json.Finding(f)
	}
	return d.text.Finding(f)
}

func (d *decoding) note(n decode.Note) {
	d.refused = d.refused || n.Refused
	d.text.Note(n)
}
