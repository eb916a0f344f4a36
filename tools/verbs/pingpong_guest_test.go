package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
	"github.com/goverbs/goverbs/uverbs"
)

// guestOnly skips where there is no device to play on.
func guestOnly(t *testing.T) uverbs.DeviceInfo {
	t.Helper()
	all, err := uverbs.Devices()
	if errors.Is(err, uverbs.ErrNoDevices) {
		t.Skip("declared skip: no RDMA device here; run in the guest: rxevm exec")
	}
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// guestIters keeps games short where soft-RoCE runs on a workqueue and takes
// milliseconds for a message.
func guestIters() int {
	if os.Getenv("GOVERBS_GUEST") == "6.12" {
		return 20
	}
	return 100
}

// freePort is a TCP port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// waitForServer returns when something listens on the port. It does not connect:
// the server takes one connection only.
func waitForServer(t *testing.T, port int) {
	t.Helper()
	want := fmt.Sprintf(":%04X ", port)
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			table, _ := os.ReadFile(name)
			for line := range strings.Lines(string(table)) {
				// Local address, remote address, state; 0A is LISTEN.
				if f := strings.Fields(line); len(f) > 3 && strings.Contains(f[1]+" ", want) && f[3] == "0A" {
					return
				}
			}
		}
	}
	t.Fatalf("nothing listens on port %d", port)
}

// side is one run of verbs pingpong.
type side struct {
	code           int
	stdout, stderr bytes.Buffer
}

func (s *side) run(ctx context.Context, args ...string) {
	s.code = cmdPingpong(ctx, args, &s.stdout, &s.stderr)
}

// playBoth plays a game between two sides with the same flags.
func playBoth(t *testing.T, args ...string) (server, client *side) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	port := freePort(t)
	args = append(args, "-p", strconv.Itoa(port))
	server, client = new(side), new(side)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.run(ctx, args...)
	}()
	waitForServer(t, port)
	client.run(ctx, append(args, "127.0.0.1")...)
	if client.code != 0 {
		cancel()
	}
	<-done
	if server.code != 0 || client.code != 0 {
		t.Fatalf("%v: server %d: %s\nclient %d: %s", args, server.code, server.stderr.String(), client.code, client.stderr.String())
	}
	return server, client
}

// Every size in both modes, with every byte checked on both sides; and what the
// two sides report of each other.
func TestGuestPingpong(t *testing.T) {
	dev := guestOnly(t)
	iters := guestIters()
	for _, mode := range []string{"", "-e"} {
		for _, size := range []int{0, 1, 15, 16, 17, 64, 4096, 65536} {
			t.Run(fmt.Sprintf("%d%s", size, mode), func(t *testing.T) {
				args := []string{"-json", "-c", "-r", "7", "-s", strconv.Itoa(size), "-n", strconv.Itoa(iters)}
				if mode != "" {
					args = append(args, mode)
				}
				server, client := playBoth(t, args...)
				var s, c pingpong.Report
				for _, r := range []struct {
					text string
					to   *pingpong.Report
				}{{server.stdout.String(), &s}, {client.stdout.String(), &c}} {
					if err := json.Unmarshal([]byte(r.text), r.to); err != nil {
						t.Fatalf("%v in %q", err, r.text)
					}
				}
				if s.Role != "server" || c.Role != "client" || s.Local != c.Remote || s.Remote != c.Local || s.Local == s.Remote {
					t.Errorf("server %+v\nclient %+v", s, c)
				}
				for _, r := range []pingpong.Report{s, c} {
					if r.Device != dev.Name || r.Size != size || r.Iters != iters || r.Events != (mode != "") || !r.PayloadChecked || r.Seconds <= 0 || r.UsecPerIter <= 0 {
						t.Errorf("report %+v", r)
					}
					if a := net.ParseIP(r.Local.GID); a == nil || a.To4() == nil {
						t.Errorf("the default GID is %s and not an IPv4 address", r.Local.GID)
					}
				}
				if client.stderr.Len()+server.stderr.Len() > 0 {
					t.Errorf("stderr: %s%s", server.stderr.String(), client.stderr.String())
				}
			})
		}
	}
}

// The text is that of ibv_rc_pingpong, with a line on top that tells the GID.
func TestGuestPingpongText(t *testing.T) {
	guestOnly(t)
	_, client := playBoth(t, "-n", "10", "-s", "1000")
	lines := strings.Split(strings.TrimSuffix(client.stdout.String(), "\n"), "\n")
	for i, want := range []string{
		"  no -g given: using GID index 1 of port 1 of ",
		"  local address:  LID 0x0000, QPN 0x",
		"  remote address: LID 0x0000, QPN 0x",
		"20000 bytes in ",
		"10 iters in ",
	} {
		if len(lines) != 5 || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d of %q does not begin with %q", i, lines, want)
		}
	}
}

// What only the device knows is a mistake in the flags, too, and is named.
func TestGuestPingpongBadFlags(t *testing.T) {
	dev := guestOnly(t)
	tests := map[string]string{
		"-d nosuch0":     dev.Name,
		"-i 7":           "it has ports 1 to 1",
		"-m 4096":        "takes 1024 at most",
		"-r 2000000000":  "receive depth 2000000000",
		"-g 200":         "index 200",
		"-g 200 -i 1 -e": "index 200",
	}
	// Newer kernels let soft-RoCE messages be longer than there is memory.
	if longest := maxMessage(t, dev.Name); longest < 1<<30 {
		tests["-s "+strconv.Itoa(longest+1)] = fmt.Sprintf("message size %d: port 1 of %s takes %d at most", longest+1, dev.Name, longest)
	}
	for args, want := range tests {
		var s side
		s.run(t.Context(), strings.Fields(args)...)
		lines := 2 // what is wrong, and where the flags are listed; devices are listed at once
		if strings.HasPrefix(args, "-d") {
			lines = 1
		}
		if s.code != 2 || !strings.Contains(s.stderr.String(), want) || strings.Count(s.stderr.String(), "\n") != lines || s.stdout.Len() > 0 {
			t.Errorf("%s: status %d, %q, %q, want 2 and %q", args, s.code, s.stdout.String(), s.stderr.String(), want)
		}
	}
	var s side
	s.run(t.Context(), "-p", strconv.Itoa(freePort(t)), "127.0.0.1")
	if s.code != 1 || !strings.Contains(s.stderr.String(), "connect to the server") || strings.Count(s.stderr.String(), "\n") != 1 {
		t.Errorf("no server: status %d, %q", s.code, s.stderr.String())
	}
}

func maxMessage(t *testing.T, name string) int {
	t.Helper()
	d, err := uverbs.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, err := d.PortAttr(1)
	if err != nil {
		t.Fatal(err)
	}
	return int(p.MaxMessage)
}

// Ctrl-C ends a server that waits for its client, and both sides of a game, and
// leaves nothing open.
func TestGuestPingpongInterrupted(t *testing.T) {
	guestOnly(t)
	enough := errors.New("enough")
	for _, mode := range []string{"-c", "-e"} {
		before := openFiles(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		port := freePort(t)
		args := []string{mode, "-p", strconv.Itoa(port), "-n", "100000000"}
		var server, client side
		done := make(chan struct{}, 2)
		go func() { server.run(ctx, args...); done <- struct{}{} }()
		waitForServer(t, port)
		go func() { client.run(ctx, append(args, "127.0.0.1")...); done <- struct{}{} }()
		time.Sleep(300 * time.Millisecond)
		cancel(enough)
		for range 2 {
			select {
			case <-done:
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s: a side goes on", mode)
			}
		}
		for _, s := range []*side{&server, &client} {
			if s.code != 1 || s.stderr.String() != "verbs pingpong: interrupted\n" {
				t.Errorf("%s: status %d, %q", mode, s.code, s.stderr.String())
			}
		}
		if after := openFiles(t); after != before {
			t.Errorf("%s: %d files open, %d before", mode, after, before)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(enough) })
	var server side
	server.run(ctx, "-p", strconv.Itoa(freePort(t)))
	if server.code != 1 || server.stderr.String() != "verbs pingpong: interrupted\n" {
		t.Errorf("waiting for a client: status %d, %q", server.code, server.stderr.String())
	}
}

// A client that is not one ends the server with a line that says so.
func TestGuestPingpongStranger(t *testing.T) {
	guestOnly(t)
	for says, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: somewhere.example.com:18515\r\n\r\n": "is not an address",
		"0000:000011:11c403:00000000000000000000000000000000\x00":     "neither GID nor LID",
		"0000:000011:11c403:00000000000000000000ffff7f000001\x00":     "",
	} {
		port := freePort(t)
		var server side
		done := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		go func() { server.run(ctx, "-p", strconv.Itoa(port)); close(done) }()
		waitForServer(t, port)
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte(says))
		conn.(*net.TCPConn).CloseWrite()
		<-done
		conn.Close()
		cancel()
		if server.code != 1 || !strings.Contains(server.stderr.String(), want) || strings.Count(server.stderr.String(), "\n") != 1 {
			t.Errorf("%q: status %d, %q, want 1 and %q", says, server.code, server.stderr.String(), want)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
