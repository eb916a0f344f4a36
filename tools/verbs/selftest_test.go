package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/verbs/internal/selftest"
)

// selftestRun is a run of verbs selftest.
func selftestRun(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cmdSelftest(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestSelftestUsage(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		says string // on stderr; of help on stdout
	}{
		{"-h", 0, "What it does not write: data of messages"},
		{"-list", 0, "errors: retries exceeded\n"},
		{"-nonsense", 2, "-nonsense"},
		{"stray", 2, `unexpected argument "stray"`},
		{"-d=", 2, "-d has nothing in it"},
		{"-peer=", 2, "-peer has nothing in it"},
		{"-record=", 2, "-record has nothing in it"},
		{"-rounds -1", 2, "allowed are 0 to 1000000"},
		{"-list -json", 2, "-list runs nothing: -json does not go with it"},
		{"-patience 1ms", 2, "allowed are 100ms to 5m"},
		{"-patience nonsense", 2, "-patience"},
		{"-port 70000", 2, "allowed are 1 to 65535"},
		{"-port 1", 2, "-port is for -serve"},
		{"-serve -quick", 2, "-quick is for that one"},
		{"-serve -d sim0", 2, "in this process"},
		{"-d sim0 -peer host", 2, "in this process"},
		{"-peer host:0", 2, "the port is none of 1 to 65535"},
		{"-peer a:b:c", 2, "neither a host nor HOST:PORT"},
		{"-peer :18518", 2, "there is no host before the port"},
		{"-json -record -", 2, "choose one"},
		{"-only ,", 2, "-only: no words"},
		{"-d sim0 -only nonsense", 2, "-list names them"},
		{"-d nonsense", 2, "nonsense"},
	} {
		code, stdout, stderr := selftestRun(t.Context(), strings.Fields(test.args)...)
		if code != test.code {
			t.Errorf("%s: status %d, want %d: %s", test.args, code, test.code, stderr)
		}
		if text := stdout + stderr; !strings.Contains(text, test.says) {
			t.Errorf("%s: no %q in\n%s", test.args, test.says, text)
		}
		if code == 2 && strings.Count(stderr, "\n") > 2 {
			t.Errorf("%s: more than two lines:\n%s", test.args, stderr)
		}
	}
}

func TestSelftestPeerAddress(t *testing.T) {
	for in, want := range map[string]string{
		"node2": "node2:18518", "node2:7": "node2:7", "10.0.0.1": "10.0.0.1:18518", "::1": "[::1]:18518", "[::1]": "[::1]:18518", "[fe80::1]:99": "[fe80::1]:99",
		"fe80::1%eth0": "[fe80::1%eth0]:18518", "[fe80::1%eth0]": "[fe80::1%eth0]:18518", "[fe80::1%eth0]:99": "[fe80::1%eth0]:99",
	} {
		if got, err := hostPort(in); got != want || err != nil {
			t.Errorf("%q became %q, %v, want %q", in, got, err, want)
		}
	}
}

// The table is plain lines when no terminal is there to see them.
func TestSelftestTable(t *testing.T) {
	code, stdout, stderr := selftestRun(t.Context(), "-d", "sim0", "-quick", "-only", "RC: ")
	if code != 0 || stderr != "" {
		t.Fatalf("status %d: %s%s", code, stdout, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for _, line := range lines[2 : len(lines)-1] {
		if !strings.HasPrefix(line, "pass           RC: ") && !strings.HasPrefix(line, "not supported  RC: ") {
			t.Errorf("%q", line)
		}
	}
	if strings.ContainsAny(stdout, "\r\x1b") {
		t.Errorf("control characters in %q", stdout)
	}
	if !strings.Contains(lines[0], "sim0 (mlx5") || !strings.Contains(lines[1], "no silicon") || !strings.Contains(lines[len(lines)-1], "0 failed, 2 not supported") {
		t.Errorf("%s", stdout)
	}
}

func TestSelftestJSON(t *testing.T) {
	code, stdout, stderr := selftestRun(t.Context(), "-d", "sim1", "-quick", "-json", "-only", "UD,async")
	var r selftest.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 || stderr != "" {
		t.Fatalf("status %d, %v: %s%s", code, err, stdout, stderr)
	}
	if !r.OK || r.Passed != len(r.Rows) || r.Passed < 10 || r.Device != "sim1" || r.Driver != "mlx5" || r.Kernel == "" || r.Proves != modelProves {
		t.Errorf("%+v", r)
	}
}

// The dumps in a recorded file are what verbs decode explains.
func TestSelftestRecordDecodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sim0.json")
	code, stdout, stderr := selftestRun(t.Context(), "-d", "sim0", "-quick", "-only", "errors", "-record", file)
	if code != 0 || stderr != "" || !strings.Contains(stdout, file+" has the bytes") {
		t.Fatalf("status %d: %s%s", code, stdout, stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var record selftest.Record
	if err := json.Unmarshal(b, &record); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := cmdDecode(t.Context(), []string{"-json", file}, &out, &errs); code != 0 {
		t.Fatalf("decode: %d: %s", code, errs.String())
	}
	var found []struct {
		Hex    string `json:"hex"`
		Status uint32 `json:"wc_status"`
		Vendor uint32 `json:"vendor_err_synd"`
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	dumps := map[[2]uint32]bool{}
	for _, f := range found {
		if f.Hex != "" {
			dumps[[2]uint32{f.Status, f.Vendor}] = true
		}
	}
	for _, test := range record.Tests {
		for _, c := range test.Completions {
			if c.WC.Status == 0 || len(c.CQE) == 0 || c.WC.Status == 5 {
				continue // of what was flushed decode shows but some
			}
			if !dumps[[2]uint32{uint32(c.WC.Status), c.WC.VendorErr}] {
				t.Errorf("%s: %v: decode does not find its dump", test.Test, c.WC)
			}
		}
	}
	if len(dumps) < 6 {
		t.Errorf("decode finds %d kinds of failures", len(dumps))
	}
}

func TestSelftestRecordToNowhere(t *testing.T) {
	code, _, stderr := selftestRun(t.Context(), "-d", "sim0", "-quick", "-only", "RC: send inline", "-record", filepath.Join(t.TempDir(), "no", "such", "folder"))
	if code != 2 || !strings.Contains(stderr, "no such file or directory") && !strings.Contains(stderr, "cannot find the path") {
		t.Errorf("status %d: %s", code, stderr)
	}
}

// Ctrl-C leaves the table of what ran, and says of the rest that it did not.
func TestSelftestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, stdout, _ := selftestRun(ctx, "-d", "sim0", "-quick", "-only", "RC: send")
	if code != 1 || !strings.Contains(stdout, "not run        RC: send inline") || !strings.Contains(stdout, "(interrupted)") {
		t.Errorf("status %d: %s", code, stdout)
	}
}

// A run that does not come about leaves the file of an earlier one as it was, and makes none.
func TestSelftestRecordStays(t *testing.T) {
	dir := t.TempDir()
	old, missing := filepath.Join(dir, "old.json"), filepath.Join(dir, "new.json")
	if err := os.WriteFile(old, []byte("an earlier record"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{old, missing} {
		if code, _, stderr := selftestRun(t.Context(), "-d", "sim0", "-only", "nonsense", "-record", name); code != 2 {
			t.Errorf("%s: status %d: %s", name, code, stderr)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "an earlier record" {
		t.Errorf("the earlier record is %q, %v", b, err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("an empty record was left behind")
	}
	if err := os.WriteFile(old, bytes.Repeat([]byte("an earlier record that is longer "), 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := selftestRun(t.Context(), "-d", "sim0", "-quick", "-only", "RC: send of no bytes", "-record", old); code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	if b, err := os.ReadFile(old); err != nil || !json.Valid(b) {
		t.Errorf("the record is no JSON: %.100q, %v", b, err)
	}
}
