package main

import (
	"bytes"
	"context"
	"encoding/json"
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

// TestDecodeInterrupted leaves a read that never ends.
func TestDecodeInterrupted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	old := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = old }()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"decode"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d, %s", code, &errs)
	}
	r.Close()
}
