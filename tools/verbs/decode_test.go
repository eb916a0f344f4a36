package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runDecode(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"decode"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

const ncclLines = `NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv)
NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)
`

func TestDecodeExitStatus(t *testing.T) {
	hit := writeFile(t, "hit.log", ncclLines)
	miss := writeFile(t, "miss.log", "all is well\n")
	mthca := writeFile(t, "mthca.log", "local QP operation err (QPN 450406, WQE @ 5a00, CQN 98, index 5)\n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{hit}, 0, "transport retry exceeded (status 12)"},
		{[]string{miss, hit}, 0, "hit.log, line 1"},
		{[]string{miss}, 1, "no failed completion found"},
		{[]string{mthca}, 1, "not mlx5"},
		{[]string{"-nosuchflag"}, 2, "verbs decode: there is no flag -nosuchflag"},
		{[]string{hit, ""}, 2, "the name of a file is empty: - is standard input"},
		{[]string{hit, filepath.Join(t.TempDir(), "nosuchfile")}, 2, "nosuchfile"},
		{[]string{t.TempDir()}, 2, "directory"},
		{[]string{"-h"}, 0, "usage: verbs decode"},
	} {
		code, stdout, stderr := runDecode(t, c.args...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("decode %v: exit %d, want %d; want %q in\n%s%s", c.args, code, c.code, c.says, stdout, stderr)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	code, stdout, stderr := runDecode(t, "-json", writeFile(t, "hit.log", ncclLines))
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	var got []map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0]["wc_status"] != 12.0 || got[0]["vendor_err_synd"] != 129.0 || got[0]["source_line"] != 1.0 ||
		got[1]["wc_status"] != 5.0 || got[1]["source_line"] != 2.0 || len(got[0]) != 3 {
		t.Errorf("got %v", got)
	}
	for _, file := range []string{"quiet\n", "local QP operation err (QPN 450406, WQE @ 5a00, CQN 98, index 5)\n"} {
		code, stdout, _ = runDecode(t, "-json", writeFile(t, "x.log", file))
		if code != 1 || strings.TrimSpace(stdout) != "[]" {
			t.Errorf("nothing found: exit %d, stdout %q", code, stdout)
		}
	}
}

func TestDecodeStdin(t *testing.T) {
	f, err := os.Open(writeFile(t, "in", ncclLines))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	old := os.Stdin
	os.Stdin = f
	defer func() { os.Stdin = old }()
	if code, stdout, _ := runDecode(t); code != 0 || !strings.Contains(stdout, "consequence of line 1") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}

// TestDecodeInterrupted interrupts a text that never ends: what it had until then is explained, and
// the JSON is whole.
func TestDecodeInterrupted(t *testing.T) {
	for _, args := range [][]string{{"decode"}, {"decode", "-json"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		old := os.Stdin
		os.Stdin = r
		defer func() { os.Stdin = old }()
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			// When so much more is taken, neither the pipe nor a
			// buffer can still hold the lines.
			w.WriteString(ncclLines + strings.Repeat("all is well\n", 1<<17))
			cancel()
		}()
		var out, errs bytes.Buffer
		if code := run(ctx, args, &out, &errs); code != 2 || errs.String() != "verbs decode: interrupted\n" {
			t.Errorf("%v: exit %d, %s", args, code, &errs)
		}
		if len(args) == 1 {
			if !strings.Contains(out.String(), "transport retry exceeded (status 12)") {
				t.Errorf("%v: %s", args, &out)
			}
			continue
		}
		var got []map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 2 {
			t.Errorf("%v: %v in %s", args, err, &out)
		}
	}
}

// TestDecodeNobodyWrites interrupts a pipe that nobody has opened to write: it cannot even be opened.
func TestDecodeNobodyWrites(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	opening := make(chan struct{})
	in := untilDone(ctx, func() (io.ReadCloser, error) {
		close(opening)
		select {}
	})
	<-opening
	cancel()
	if b, err := io.ReadAll(in); len(b) > 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}
