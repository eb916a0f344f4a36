package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/perf"
	"github.com/goverbs/goverbs/uverbs"
)

// perfBoth measures between two sides in this process, over the device, and returns what
// each prints.
func perfBoth(t *testing.T, serverArgs, clientArgs []string) (server, client *side) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	port := freePort(t)
	args := func(own []string) []string { return append(append([]string{}, own...), "-p", strconv.Itoa(port)) }
	server, client = new(side), new(side)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.code = cmdPerf(ctx, args(serverArgs), &server.stdout, &server.stderr)
	}()
	waitForServer(t, port)
	client.code = cmdPerf(ctx, append(args(clientArgs), "127.0.0.1"), &client.stdout, &client.stderr)
	if client.code != 0 && server.code == 0 {
		// It ends by itself: the other side has hung up.
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			cancel()
		}
	}
	<-done
	return server, client
}

// Every test, over every transport that soft-RoCE has, busy and with events, counts what
// it should on both sides.
func TestGuestPerf(t *testing.T) {
	dev := guestOnly(t)
	iters := guestIters()
	for _, name := range perf.TestNames() {
		for _, flags := range []string{"", "-e", "-adaptive -c UC", "-c UD -s 1000", "-q 3 -l 4 -t 8", "-b -e"} {
			args := append([]string{name, "-json", "-n", strconv.Itoa(iters), "-warmup", "4"}, strings.Fields(flags)...)
			if !strings.Contains(flags, "-s") && !strings.HasPrefix(name, "atomic") {
				args = append(args, "-s", "64")
			}
			if _, err := parsePerf(args, &bytes.Buffer{}); err != nil {
				continue // there is no such test
			}
			t.Run(name+flags, func(t *testing.T) {
				server, client := perfBoth(t, args, args)
				if strings.Contains(flags, "UD") && strings.Contains(client.stderr.String(), uverbs.ErrNotSupported.Error()) {
					t.Skip("needs kernel >= 5.15: soft-RoCE numbers its address handles")
				}
				if server.code != 0 || client.code != 0 || server.stderr.Len()+client.stderr.Len() > 0 {
					t.Fatalf("status %d and %d, %q, %q", server.code, client.code, server.stderr.String(), client.stderr.String())
				}
				var s, c perf.Report
				if err := json.Unmarshal(server.stdout.Bytes(), &s); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(client.stdout.Bytes(), &c); err != nil {
					t.Fatal(err)
				}
				want := int64(iters * c.QPs)
				if c.Iterations != want || s.Iterations+s.Lost != want {
					t.Errorf("the client has %d messages of %d, the server %d and %d are lost", c.Iterations, want, s.Iterations, s.Lost)
				}
				if c.Role != "client" || s.Role != "server" || c.Device != dev.Name || s.PeerDevice != dev.Name || c.Seconds <= 0 || c.MessagesPerSec <= 0 || c.CPU == nil || c.Partial || s.Partial {
					t.Errorf("client %+v\nserver %+v", c, s)
				}
				if lat := strings.HasSuffix(name, "_lat"); lat != (c.Latency != nil) || lat != (s.Latency != nil) {
					t.Errorf("latencies %+v and %+v", c.Latency, s.Latency)
				}
			})
		}
	}
}

// The tables of both sides have perftest's columns.
func TestGuestPerfText(t *testing.T) {
	guestOnly(t)
	for _, name := range []string{"send_bw", "send_lat"} {
		args := []string{name, "-n", "10", "-s", "512"}
		server, client := perfBoth(t, args, args)
		checkPerfTable(t, name, client.stdout.String(), 10)
		checkPerfTable(t, name, server.stdout.String(), 10)
		if !strings.Contains(server.stdout.String(), "* Waiting for client to connect... *") {
			t.Errorf("the server says\n%s", server.stdout.String())
		}
	}
}

// What the device does not take, and what the sides want differently, is said with what
// there is, on both sides.
func TestGuestPerfBadFlags(t *testing.T) {
	guestOnly(t)
	for args, want := range map[string]string{
		"send_bw -m 4096":            "takes 1024 at most",
		"send_bw -c UD -s 2000":      "a datagram is one packet, of 1024 bytes at most",
		"send_bw -b -t 16000 -q 4":   "a completion queue of",
		"read_bw -o 255":             "outstanding reads (-o) 255",
		"send_bw -b -I 30000 -s 64":  "nline",
		"send_bw -x 200":             "index 200",
		"send_bw -d nosuch0":         "nosuch0",
		"write_bw -e -X 100000":      "completion vector (-X)",
		"send_bw -q 4096 -s 1000000": "memory",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // of a server that takes it, and waits
		code, out, errs := runPerf(ctx, append(strings.Fields(args), "-p", strconv.Itoa(freePort(t)))...)
		cancel()
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, %q, want 2 and %q", args, code, out, errs, want)
		}
	}
	server, client := perfBoth(t, []string{"send_bw", "-s", "64"}, []string{"send_bw", "-s", "128"})
	if server.code != 2 || client.code != 2 || !strings.Contains(server.stderr.String(), "-s 64 here and 128 there") || !strings.Contains(client.stderr.String(), "-s 128 here and 64 there") {
		t.Errorf("status %d and %d, %q, %q", server.code, client.code, server.stderr.String(), client.stderr.String())
	}
	if code, _, errs := runPerf(t.Context(), "send_bw", "-p", strconv.Itoa(freePort(t)), "127.0.0.1"); code != 1 || !strings.Contains(errs, "start verbs perf there first") {
		t.Errorf("no server: status %d, %q", code, errs)
	}
}

// Ctrl-C in the middle of a measurement ends both sides, which print what there is, and
// nothing is left open.
func TestGuestPerfInterrupted(t *testing.T) {
	guestOnly(t)
	for _, name := range []string{"send_bw", "send_lat", "write_bw -e"} {
		before := openFiles(t)
		args := append(strings.Fields(name), "-json", "-D", "100000", "-s", "64", "-warmup", "1")
		port := freePort(t)
		args = append(args, "-p", strconv.Itoa(port))
		o, err := parsePerf(append(args, "127.0.0.1"), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		o.count = new(atomic.Int64)
		var server, client side
		clientCtx, stop := context.WithCancel(t.Context())
		served, called := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(served)
			server.code = cmdPerf(t.Context(), args, &server.stdout, &server.stderr)
		}()
		waitForServer(t, port)
		go func() {
			defer close(called)
			err := measurePerf(clientCtx, o, &client.stdout, &client.stderr)
			client.code = exitStatus(clientCtx, "perf", err, &client.stderr)
		}()
		// The first messages that count say that both sides are in the middle of it.
		for end := time.Now().Add(2 * time.Minute); o.count.Load() < 10 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		stop()
		for _, done := range []chan struct{}{called, served} {
			select {
			case <-done:
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s: a side goes on, after %d messages", name, o.count.Load())
			}
		}
		if client.code != 1 || client.stderr.String() != "verbs perf: interrupted\n" || server.code != 1 || !strings.Contains(server.stderr.String(), "the other side") {
			t.Errorf("%s: status %d and %d, %q, %q", name, client.code, server.code, client.stderr.String(), server.stderr.String())
		}
		for _, out := range []string{client.stdout.String(), server.stdout.String()} {
			var r perf.Report
			if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Partial {
				t.Errorf("%s: %v, %q", name, err, out)
			}
		}
		if after := openFiles(t); after != before {
			t.Errorf("%s: %d files open, %d before", name, after, before)
		}
	}
}
