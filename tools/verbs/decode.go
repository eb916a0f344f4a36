package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

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

Exit status: 0 something was found, 1 nothing was, 2 wrong use or an
unreadable file.

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
	// A read from a terminal or a pipe cannot be interrupted; leaving can. What
	// is left behind then prints nothing more.
	var out gate
	stdout, stderr = out.writer(stdout), out.writer(stderr)
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
	done := make(chan int, 1)
	go func() { done <- d.run() }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
		fmt.Fprintln(stderr, "verbs decode: interrupted")
		out.shut()
		return 2
	}
}

// gate lets several goroutines write, until it is shut.
type gate struct {
	mu     sync.Mutex
	closed bool
}

type gateWriter struct {
	gate *gate
	w    io.Writer
}

func (g *gate) writer(w io.Writer) io.Writer { return gateWriter{g, w} }

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Write implements io.Writer.
func (w gateWriter) Write(p []byte) (int, error) {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	if w.gate.closed {
		return 0, os.ErrClosed
	}
	return w.w.Write(p)
}

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

func (d *decoding) run() int {
	code := 0
	for _, name := range d.files {
		if len(d.files) > 1 {
			d.text.File(name)
		}
		if err := d.file(name); err != nil {
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

func (d *decoding) file(name string) error {
	in := io.Reader(d.stdin)
	if name == "-" {
		if d.pasted {
			fmt.Fprintln(d.stderr, "verbs decode: paste the text, then press Ctrl-D on a line of its own")
		}
	} else {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
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
