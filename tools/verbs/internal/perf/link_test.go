package perf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// framed is bytes with their length before them.
func framed(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestMessages(t *testing.T) {
	for _, want := range []message{
		{Offer: &offer{Test: "send_bw", Sizes: []int{2, 4}, Device: "x\x1b[2J", Endpoints: []endpoint{{1, 2}}, Region: region{1<<64 - 1, 1<<64 - 1, 1<<32 - 1}}},
		{Ready: &ready{3}}, {Sent: &sent{1 << 40}}, {Result: &result{Sent: 1, Nsec: 5, Latency: &Latency{N: 1, Avg: 0.5}, Spread: []Bucket{{1, 2}}, Partial: true, Error: "x"}},
	} {
		var b bytes.Buffer
		if err := writeMessage(&b, want); err != nil {
			t.Fatal(err)
		}
		got, err := readMessage(&b)
		if err != nil || b.Len() != 0 {
			t.Fatalf("%v, %d bytes are left", err, b.Len())
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	// The offer of as many queue pairs as there may be fits.
	o := offer{Test: "atomic_lat", Endpoints: make([]endpoint, maxQPs), Device: strings.Repeat("d", 64), GID: strings.Repeat("f", 39)}
	for i := range o.Endpoints {
		o.Endpoints[i] = endpoint{1<<24 - 1, 1<<24 - 1}
	}
	if err := writeMessage(io.Discard, message{Offer: &o}); err != nil {
		t.Error(err)
	}
}

// What is no message is an error that says so, and costs no memory that it did not send.
func TestNoMessages(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "EOF",
		"\x00\x00":           "EOF",
		"\x00\x00\x00\x05{}": "EOF",
		"\xff\xff\xff\xff":   "announces a message of 4294967295 bytes, where 524288 are allowed",
		"\x00\x08\x00\x01" + strings.Repeat(" ", 9):            "announces a message of 524289 bytes",
		"GET / HTTP/1.1\r\n":                                   "announces a message of",
		string(framed("{}")):                                   "a message of 0 parts",
		string(framed("")):                                     "no message of verbs perf",
		string(framed("null")):                                 "a message of 0 parts",
		string(framed("[1]")):                                  "no message of verbs perf",
		string(framed(`{"sent":{"messages":1e30}}`)):           "no message of verbs perf",
		string(framed(`{"ready":{},"sent":{}}`)):               "a message of 2 parts",
		string(framed(`{"offer":{"endpoints":[{"qpn":-1}]}}`)): "no message of verbs perf",
	} {
		if _, err := readMessage(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", in, err, want)
		}
	}
}

func TestGreeting(t *testing.T) {
	if err := readGreeting(strings.NewReader(greeting)); err != nil {
		t.Error(err)
	}
	for in, want := range map[string]string{
		"":                                  "it hung up and said nothing",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n": "it is no verbs perf but another program",
		"0000:0018:000011:9562c4:00:00:00":  "no verbs perf but perftest",
		"6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00": "no verbs perf but perftest",
		"0000:00001c:90cd40:00000000": "no verbs perf but a ping-pong",
		strings.Repeat("\x00", 24):    "no verbs perf but another program",
		"goverbs ver":                 `another program, which begins with "goverbs ver"`,
		greetingName + "0002\n":       `the other side speaks version "0002" and this one "0001"`,
		strings.Repeat("\x1b[2J", 20): `\x1b[2J`,
	} {
		if err := readGreeting(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", in, err, want)
		}
	}
}

// No bytes make reading panic or take more than what there is, and what is read is one
// message.
func FuzzReadMessage(f *testing.F) {
	for _, body := range []string{"{}", `{"ready":{"phase":1}}`, `{"sent":{"messages":9}}`, `{"result":{"nsec":1,"sent":9223372036854775807,"peak":1e308}}`, `{"result":{"nsec":-1,"spread":[{"usec":1,"count":-5}],"error":"\u001b"}}`,
		`{"offer":{"test":"send_bw","sizes":[2],"qps":1,"endpoints":[{"qpn":1,"psn":2}],"mtu":1024,"gid":"::1","region":{"addr":18446744073709551615,"length":9}}}`} {
		f.Add(framed(body))
	}
	f.Add([]byte(greeting))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		readGreeting(bytes.NewReader(in))
		m, err := readMessage(bytes.NewReader(in))
		if err != nil {
			if m.Offer != nil || m.Ready != nil || m.Sent != nil || m.Result != nil {
				t.Fatal("a message together with an error")
			}
			return
		}
		if m.Result != nil {
			m.Result.clean()
			if r := m.Result; r.Sent < 0 || r.Received < 0 || r.Nsec < 0 || r.Peak < 0 {
				t.Fatalf("%+v", r)
			}
			report := &Report{Iterations: m.Result.Sent}
			report.figures(*m.Result, 1<<31-1)
			if err := report.WriteJSON(io.Discard); err != nil {
				t.Fatal(err)
			}
			for _, r := range stopped(m.Result).Error() {
				if !unicode.IsPrint(r) {
					t.Fatalf("%q would move a terminal", stopped(m.Result))
				}
			}
		}
		if m.Offer != nil {
			mine := offer{Test: "send_bw", Transport: "RC", Sizes: []int{2}, Iters: 5, QPs: 1, Atomic: FetchAdd}
			if err := mine.disagree(m.Offer); err != nil {
				for _, r := range err.Error() {
					if !unicode.IsPrint(r) {
						t.Fatalf("%q would move a terminal", err)
					}
				}
			}
			if err := m.Offer.check(&mine); err == nil {
				o := m.Offer
				if len(o.Endpoints) != 1 || o.Region.Length < 2 || o.Region.Addr+o.Region.Length < o.Region.Addr {
					t.Fatalf("%+v was taken", o)
				}
			}
		}
	})
}

// listener listens on a port of the loopback.
func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A server turns strangers away, those that say nothing included, and serves the client
// that comes after them.
func TestStrangers(t *testing.T) {
	l := listener(t)
	addr := l.Addr().(*net.TCPAddr)
	told := make(chan string, 3*maxStrangers)
	type end struct {
		conn net.Conn
		err  error
	}
	done := make(chan end, 1)
	go func() {
		conn, err := welcome(t.Context(), l, func(err error) { told <- err.Error() })
		done <- end{conn, err}
	}()
	// More that are silent than may be: the first have to go.
	var silent net.Conn
	for range 2 * maxStrangers {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = c
	}
	for range maxStrangers {
		if got := <-told; !strings.Contains(got, fmt.Sprintf("not said who it is, and %d more have come", maxStrangers)) {
			t.Error(got)
		}
	}
	for in, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n": "no verbs perf but another program",
		"0000:0018:000011:9562c4:00000000000":       "no verbs perf but perftest",
		greetingName + "9999\n":                     "version",
	} {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, in); err != nil {
			t.Fatal(err)
		}
		got := <-told
		for !strings.Contains(got, c.LocalAddr().String()+": ") {
			got = <-told // of the silent one, where this takes long
		}
		if !strings.Contains(got, want) || !strings.Contains(got, "turned away who connected from 127.0.0.1:") {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		answer, _ := io.ReadAll(c)
		if want := in[:4] == "gove"; (string(answer) == greeting) != want {
			t.Errorf("%q was answered %q", in, answer)
		}
		c.Close()
	}
	conn, err := Dial(t.Context(), "127.0.0.1", addr.Port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	e := <-done
	if e.err != nil {
		t.Fatal(e.err)
	}
	defer e.conn.Close()
	if e.conn.RemoteAddr().String() != conn.LocalAddr().String() {
		t.Errorf("served %v, not %v", e.conn.RemoteAddr(), conn.LocalAddr())
	}
	// The silent one is no more welcome.
	silent.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the silent one: %v", err)
	}
}

// A peer that connects and is silent is said to be, and nothing else is said of it.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		if err := meetStranger(t.Context(), here); err == nil || err.Error() != "it has not said in 30s who it is: is it verbs perf?" {
			t.Error(err)
		}
	})
}

// A peer that closes its connection without having read everything has hung up like any other.
func TestReset(t *testing.T) {
	for name, read := range map[string]func(conn net.Conn) (got error, want string){
		"greeting": func(conn net.Conn) (error, string) {
			return readGreeting(conn), "it hung up and said nothing: is it verbs perf?"
		},
		"message": func(conn net.Conn) (error, string) {
			l := newLink(conn)
			defer l.Close()
			_, err := l.next(t.Context())
			return err, errHungUp.Error()
		},
	} {
		l := listener(t)
		defer l.Close()
		peer, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		peer.(*net.TCPConn).SetLinger(0)
		peer.Close()
		if got, want := read(conn); got == nil || got.Error() != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}

// A port that is taken is an error that says what to do, and no client is told to come. A
// host that has no address is not one whose server should be started.
func TestNowhere(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	taken, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	listening := func() { t.Error("says that it listens") }
	if _, err := Listen(t.Context(), taken, listening, nil); err == nil || !strings.Contains(err.Error(), port) || !strings.Contains(err.Error(), "(-p chooses another port, on both sides)") {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), "no..name", taken); err == nil || !strings.HasPrefix(err.Error(), "find the server: ") || strings.Contains(err.Error(), "there first") {
		t.Error(err)
	}
}

// A test of latency over a transport that loses messages ends when none has come for long,
// and goes on while they come, however slowly.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &phase{}
		p.hard, p.endHard = context.WithCancelCause(t.Context())
		var count atomic.Int64
		stop := p.watchdog(&count, "UD")
		for range 10 {
			time.Sleep(silence - time.Second)
			count.Add(1)
		}
		if err := p.hard.Err(); err != nil {
			t.Errorf("messages come, and it ends: %v", context.Cause(p.hard))
		}
		time.Sleep(silence + 2*lookEvery)
		if err := context.Cause(p.hard); err == nil || !strings.HasPrefix(err.Error(), "nothing has come for 30s: ") {
			t.Errorf("nothing comes: %v", err)
		}
		stop()
	})
}

// Where requests fail because the other side was killed, that is the reason.
func TestKilled(t *testing.T) {
	here, there := net.Pipe()
	s := &Side{link: newLink(here)}
	defer s.link.Close()
	go func() {
		readMessage(there)
		writeMessage(there, message{Ready: &ready{1}})
		there.Close()
	}()
	p, err := s.newPhase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("a request failed")
	if _, err := p.end(t.Context(), s.link, result{}, failed); !Stopped(err) || !errors.Is(err, failed) || !strings.HasPrefix(err.Error(), errHungUp.Error()) {
		t.Error(err)
	}
}

// The end of the context ends the wait for a client, and a call.
func TestMeetInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := fmt.Errorf("enough")
	l := listener(t)
	addr := l.Addr().(*net.TCPAddr)
	done := make(chan error)
	go func() {
		_, err := welcome(ctx, l, nil)
		done <- err
	}()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("the server: %v", err)
	}
	if _, err := Dial(ctx, "127.0.0.1", addr.Port); !errors.Is(err, why) {
		t.Errorf("the client: %v", err)
	}
	// The port of the one end of a connection is taken, so that nobody listens there.
	l = listener(t)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := Dial(t.Context(), "127.0.0.1", conn.LocalAddr().(*net.TCPAddr).Port); err == nil || !strings.Contains(err.Error(), "start verbs perf there first") {
		t.Errorf("nobody listens: %v", err)
	}
}
