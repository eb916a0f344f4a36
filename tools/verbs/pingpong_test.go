package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/internal/tty"
	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
)

// The flags of ibv_rc_pingpong, in all the forms that getopt takes them.
func TestPingpongFlags(t *testing.T) {
	type config = pingpong.Config
	for _, test := range []struct {
		args   string
		change func(*config)
		json   bool
	}{
		{"", func(*config) {}, false},
		{"10.0.0.1", func(c *config) { c.Server = "10.0.0.1" }, false},
		{"-p 1 -d mlx5_0 -i 2 -s 3 -m 4096 -r 4 -n 5 -l 6 -e -g 7 -c host", func(c *config) {
			*c = config{Server: "host", Port: 1, Device: "mlx5_0", IBPort: 2, Size: 3, MTU: 4096, RxDepth: 4, Iters: 5, SL: 6, Events: true, GIDIndex: 7, Check: true}
		}, false},
		{"--port=1 --ib-dev=mlx5_0 --ib-port=2 --size=3 --mtu=4096 --rx-depth=4 --iters=5 --sl=6 --events --gid-idx=7 --chk host", func(c *config) {
			*c = config{Server: "host", Port: 1, Device: "mlx5_0", IBPort: 2, Size: 3, MTU: 4096, RxDepth: 4, Iters: 5, SL: 6, Events: true, GIDIndex: 7, Check: true}
		}, false},
		{"--size 64 host --events", func(c *config) { c.Size, c.Events, c.Server = 64, true, "host" }, false},
		{"-s64 -ec -g1 -n0x10", func(c *config) { c.Size, c.Events, c.Check, c.GIDIndex, c.Iters = 64, true, true, 1, 16 }, false},
		{"-ecs 64", func(c *config) { c.Events, c.Check, c.Size = true, true, 64 }, false},
		{"-ecs64", func(c *config) { c.Events, c.Check, c.Size = true, true, 64 }, false},
		{"-s=64 -json", func(c *config) { c.Size = 64 }, true},
		{"--json", func(*config) {}, true},
		{"-d -ec", func(c *config) { c.Device = "-ec" }, false},
		{"-g -1", func(*config) {}, false},
		{"-e -- host", func(c *config) { c.Events, c.Server = true, "host" }, false},
		{"-e -- -c", func(c *config) { c.Events, c.Server = true, "-c" }, false},
	} {
		want := pingpong.Default()
		test.change(&want)
		got, asJSON, err := parsePingpong(strings.Fields(test.args), io.Discard)
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		if d := cmp.Diff(want, got); d != "" || asJSON != test.json {
			t.Errorf("%s: json %v, %s", test.args, asJSON, d)
		}
	}
}

// Mistakes end with status 2, one line that says what is wrong, and a hint.
func TestPingpongBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-s -1":           "message size -1",
		"-s 1e3":          `"1e3"`,
		"-s":              "needs an argument",
		"-n 0":            "number of iterations 0",
		"-n -3":           "number of iterations -3",
		"-n 99999999999":  "99999999999",
		"-m 1500":         "MTU 1500: allowed are 256, 512, 1024, 2048 and 4096",
		"-r 0":            "receive depth 0",
		"-p 0":            "TCP port 0",
		"-p 70000":        "TCP port 70000: allowed are 1 to 65535",
		"-p http":         `"http"`,
		"-i 0":            "port of the device 0",
		"-i 256":          "port of the device 256",
		"-l 16":           "service level 16",
		"-g 256":          "GID index 256",
		"-g -2":           "GID index -2",
		"-x":              "-x",
		"-ex":             "-ex",
		"--odp":           "-odp",
		"a b":             "one server at most, not a and b",
		"a -e b":          "one server at most, not a and b",
		"--ib-dev= -n 10": "-ib-dev has nothing in it: leave it out, or say what",
	} {
		var stdout, stderr bytes.Buffer
		code := cmdPingpong(t.Context(), strings.Fields(args), &stdout, &stderr)
		lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
		if code != 2 || len(lines) != 2 || !strings.Contains(lines[0], want) || !strings.Contains(lines[1], "verbs pingpong -h") || stdout.Len() > 0 {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want 2 and a line with %q", args, code, stdout.String(), stderr.String(), want)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := cmdPingpong(t.Context(), []string{""}, &stdout, &stderr); code != 2 {
		t.Errorf("an empty server's name: status %d, %s", code, stderr.String())
	}
}

// The help names every flag.
func TestPingpongHelp(t *testing.T) {
	for _, arg := range []string{"-h", "--help"} {
		var stdout, stderr bytes.Buffer
		if code := cmdPingpong(t.Context(), []string{arg}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%s: status %d, %s", arg, code, stderr.String())
		}
		for _, f := range strings.Fields("-p -d -i -s -m -r -n -l -e -g -c -json --port --ib-dev --ib-port --size --mtu --rx-depth --iters --sl --events --gid-idx --chk") {
			if !strings.Contains(stdout.String(), f) {
				t.Errorf("the help lacks %s", f)
			}
		}
	}
	if _, _, err := parsePingpong([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}

func FuzzPingpongFlags(f *testing.F) {
	f.Add("-ecs64 host -g 1")
	f.Add("--size=64\n--\n-x")
	f.Add("-d\n\n-json")
	f.Fuzz(func(t *testing.T, line string) {
		cfg, _, err := parsePingpong(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\n' }), io.Discard)
		if err == nil && cfg.Validate() != nil {
			t.Errorf("%q is taken, and means %+v, which cannot be: %v", line, cfg, cfg.Validate())
		}
	})
}

// writes are what was written, write by write.
type writes chan string

func (w writes) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// Progress shows after a second, and leaves nothing on the line.
func TestProgress(t *testing.T) {
	shown := make(chan string, 1000)
	var count atomic.Int64
	count.Store(250)
	stop := showProgress(writes(shown), pingpongProgress(&count, 1000))
	var got string
	select {
	case got = <-shown:
	case <-time.After(time.Minute):
	}
	stop()
	for len(shown) > 0 {
		got += <-shown
	}
	if !strings.Contains(got, "250 of 1000 (25%)") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("showed %q", got)
	}
	var line bytes.Buffer // stop waits, so that it is read after the last write
	begin := time.Now()
	showProgress(&line, pingpongProgress(&count, 1000))()
	if got := line.String(); got != "" && time.Since(begin) < progressAfter {
		t.Errorf("a short game showed %q", got)
	}
}

func TestProgressLine(t *testing.T) {
	for want, n := range map[string]int{
		"0 of 2000, after 3s":                      0,
		"1 of 2000 (0%), 3s each, 1h39m57s left":   1,
		"1000 of 2000 (50%), 3ms each, 3s left":    1000,
		"2000 of 2000 (100%), 1.5ms each, 0s left": 2000,
	} {
		if got := progressLine(n, 2000, 3*time.Second, time.Second); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := progressLine(7, 2000, time.Minute, 12*time.Second); !strings.HasPrefix(got, "7 of 2000, nothing for 12s") || strings.Contains(got, "left") {
		t.Errorf("a game that stands still: %q", got)
	}
}

func TestIsTerminal(t *testing.T) {
	if tty.Is(new(bytes.Buffer)) {
		t.Error("a buffer is a terminal")
	}
}

// One line, whatever an error has in it.
func TestOneLine(t *testing.T) {
	if got := printable.Error(errors.Join(errors.New("one"), errors.New("two\n"))); got != "one; two" {
		t.Errorf("%q", got)
	}
	if got := printable.Error(context.Canceled); got != "context canceled" {
		t.Errorf("%q", got)
	}
}
