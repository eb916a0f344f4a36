package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// patience is how long what must happen may take on a busy machine.
const patience = 60 * time.Second

// served starts a server and returns its address. It must have ended when the
// test does.
func served(t *testing.T, s *Server) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var once bool
	stop = func() {
		if once {
			return
		}
		once = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
		if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is open still: %v, %v", c, err)
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// dial connects, with a limit for all that follows.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// A reply is an HTTP answer.
type reply struct {
	status  int
	headers map[string]string
	body    string
}

// readReply reads an answer strictly, up to the end of the connection.
func readReply(r io.Reader) (*reply, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	head, body, ok := strings.Cut(string(b), "\r\n\r\n")
	if !ok {
		return nil, fmt.Errorf("no end of the headers in %q", b)
	}
	lines := strings.Split(head, "\r\n")
	p := &reply{headers: map[string]string{}, body: body}
	if _, err := fmt.Sscanf(lines[0], "HTTP/1.1 %d ", &p.status); err != nil {
		return nil, fmt.Errorf("%q: %w", lines[0], err)
	}
	for _, l := range lines[1:] {
		name, value, ok := strings.Cut(l, ": ")
		if _, twice := p.headers[name]; !ok || twice {
			return nil, fmt.Errorf("header %q", l)
		}
		p.headers[name] = value
	}
	return p, nil
}

// ask sends a request and reads the answer.
func ask(t *testing.T, addr, request string) *reply {
	t.Helper()
	c := dial(t, addr)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	p, err := readReply(c)
	if err != nil {
		t.Fatalf("%.60q: %v", request, err)
	}
	return p
}

const get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

func TestServe(t *testing.T) {
	const text = "# EOF\n"
	s := Server{ReadTimeout: patience, WriteTimeout: patience, linger: patience}
	addr, _ := served(t, &s)
	if p := ask(t, addr, get); p.status != 503 {
		t.Errorf("without a text: %+v", p)
	}
	s.Set([]byte(text))
	for request, want := range map[string]int{
		get: 200, "GET /metrics HTTP/1.0\r\n\r\n": 200, "GET /metrics?x=1 HTTP/1.1\r\nhost: x\r\nAccept: */*\r\nX:\r\n\r\n": 200,
		"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n": 200, "GET / HTTP/1.1\r\nHost: x\r\n\r\n": 404, "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n": 405,
		"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n": 404, "DELETE /x HTTP/1.1\r\nHost: x\r\n\r\n": 404,
		"GET /metrics HTTP/1.1\r\n\r\n": 400, "GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n": 400, "GET /metrics HTTP/2.0\r\n\r\n": 505,
		"GET /metrics\r\n\r\n": 400, "GET  /metrics HTTP/1.1\r\n\r\n": 400, "\r\n\r\n": 400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": 505,
		"GET HTTP://x/metrics?y HTTP/1.1\r\nHost: x\r\n\r\n": 200, "GET http://x HTTP/1.1\r\nHost: x\r\n\r\n": 400, "GET http:///metrics HTTP/1.1\r\nHost: x\r\n\r\n": 400,
		"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n": 400, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n": 400, "GET /\x1b HTTP/1.1\r\nHost: x\r\n\r\n": 400, "GET /metrics HTTP/1.1\r\nHost x\r\n\r\n": 400,
		"GET /metrics HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n": 400, "GET /metrics HTTP/1.1\nHost: x\r\n\r\n": 400, "G\x00T /metrics HTTP/1.1\r\nHost: x\r\n\r\n": 400,
		"GET /metrics HTTP/1.1\r\nHost: \x01\r\n\r\n": 400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": 400,
		"GET /metrics HTTP/1.1\r\nHost: x\r\nPad: " + strings.Repeat("x", maxHead) + "\r\n\r\n": 431, strings.Repeat("\r", maxHead): 431,
	} {
		p := ask(t, addr, request)
		if p.status != want {
			t.Errorf("%.60q: status %d, want %d", request, p.status, want)
		}
		if p.headers["Connection"] != "close" || p.headers["Date"] == "" || p.headers["Content-Type"] == "" || (p.headers["Allow"] == "GET, HEAD") != (want == 405) {
			t.Errorf("%.60q: headers %v", request, p.headers)
		}
		head := strings.HasPrefix(request, "HEAD")
		if n := p.headers["Content-Length"]; !head && n != strconv.Itoa(len(p.body)) || head && (p.body != "" || n != strconv.Itoa(len(text))) {
			t.Errorf("%.60q: Content-Length %s of %q", request, n, p.body)
		}
		if want == 200 && !head && (p.body != text || p.headers["Content-Type"] != cq.OpenMetricsContentType) {
			t.Errorf("%.60q: %+v", request, p)
		}
	}
	// A request in pieces is one too.
	c := dial(t, addr)
	for i := range get {
		if _, err := io.WriteString(c, get[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := readReply(c); err != nil || p.status != 200 {
		t.Errorf("in pieces: %+v, %v", p, err)
	}
	// One that ends too early is none.
	c = dial(t, addr)
	io.WriteString(c, get[:20])
	c.(*net.TCPConn).CloseWrite()
	if p, err := readReply(c); err != nil || p.status != 400 {
		t.Errorf("half a request: %+v, %v", p, err)
	}
	// A body that nobody wants does not cost the answer.
	if p := ask(t, addr, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n"+strings.Repeat("x", 30000)); p.status != 405 {
		t.Errorf("with a body: %+v", p)
	}
}

// A client that says nothing is shown out when its time is over, and one that
// stops in the middle is told so.
func TestSlowClientsEnd(t *testing.T) {
	s := Server{ReadTimeout: 50 * time.Millisecond}
	addr, _ := served(t, &s)
	silent := dial(t, addr)
	if b, err := io.ReadAll(silent); len(b) != 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a silent client gets %q, %v", b, err)
	}
	for part, want := range map[string]int{"": 0, get[:10]: 408} {
		if _, status := readHead(io.MultiReader(strings.NewReader(part), timedOut{})); status != want {
			t.Errorf("%q and then nothing: status %d, want %d", part, status, want)
		}
	}
	// A client that does not fetch its answer is let go of when its time is over, and when
	// the server ends; and so is one that has its answer and does not close.
	for _, limit := range []time.Duration{50 * time.Millisecond, time.Hour} {
		s := Server{WriteTimeout: limit, linger: limit}
		s.Set(make([]byte, 64<<20))
		addr, stop := served(t, &s)
		lazy := dial(t, addr)
		if _, err := io.WriteString(lazy, get); err != nil {
			t.Fatal(err)
		}
		lazy.Read(make([]byte, 1)) // it is being answered, or was
		if limit < patience {
			stop()
			quick := Server{WriteTimeout: patience, linger: limit} // but not to answer
			addr, stop = served(t, &quick)
			quick.Set(nil)
		}
		s.Set(nil)
		if p := ask(t, addr, get); p.status != 200 || p.body != "" {
			t.Errorf("%+v", p)
		}
		stop()
	}
}

// timedOut is a connection whose time is over.
type timedOut struct{}

func (timedOut) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// As many silent clients as there may be connections, and more: each newcomer
// takes the place of the one that has waited longest, and those that ask are
// answered.
func TestNobodyBlocksOthers(t *testing.T) {
	s := Server{Conns: 4, ReadTimeout: time.Hour, WriteTimeout: patience}
	s.Set([]byte("# EOF\n"))
	addr, stop := served(t, &s)
	var silent []net.Conn
	for range 20 {
		silent = append(silent, dial(t, addr))
		if p := ask(t, addr, get); p.status != 200 {
			t.Fatalf("%+v", p)
		}
	}
	for _, c := range silent[:16] {
		// These had to go, whatever the order in which the answered ones left.
		if b, err := io.ReadAll(c); len(b) != 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q, %v", b, err)
		}
	}
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	if n > 4 {
		t.Errorf("%d connections", n)
	}
	// The end does not wait an hour for the rest.
	stop()
}

// A listener that fails for ever ends the server with its error; one that fails
// at times does not.
func TestListenerFails(t *testing.T) {
	var s Server
	l := &failing{errs: []error{syscall.EMFILE, syscall.ECONNABORTED, net.ErrClosed}}
	if err := s.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) || len(l.errs) != 0 {
		t.Errorf("%v, %d errors left", err, len(l.errs))
	}
}

type failing struct{ errs []error }

func (l *failing) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

func (l *failing) Close() error   { return nil }
func (l *failing) Addr() net.Addr { return &net.TCPAddr{} }

// FuzzRequest holds what parseRequest accepts to the grammar, said in another
// way; and that the head ends in the same place however it comes.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{get, "HEAD /metrics?x HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "\r\n\r\n", "GET / HTTP/1.1\r\n\r\nrest"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, status := readHead(strings.NewReader(string(b)))
		pieces, status2 := readHead(&slowReader{b})
		if status != status2 || string(whole) != string(pieces) {
			t.Fatalf("%d %q at once, %d %q in pieces", status, whole, status2, pieces)
		}
		if status != 200 {
			return
		}
		r, status := parseRequest(whole)
		if reasons[status] == "" {
			t.Fatalf("status %d", status)
		}
		if status != 200 {
			return
		}
		first, _, _ := strings.Cut(string(whole), "\r\n")
		words := strings.Fields(first)
		if len(words) != 3 || words[0] != r.method || !strings.Contains(words[1], r.path) || r.path[0] != '/' || strings.ContainsAny(first, "\x00\n\x7f") {
			t.Errorf("%q became %+v", first, r)
		}
		if n := strings.Count(strings.ToLower(string(whole)), "\r\nhost:"); n > 1 {
			t.Errorf("%d hosts in %q", n, whole)
		}
		var s Server
		for _, part := range s.answer(r, status) {
			if strings.Contains(string(part), r.path) && len(r.path) > 8 && r.path != metricsPath {
				t.Errorf("the answer repeats %q", r.path)
			}
		}
	})
}

// slowReader gives a byte at a time.
type slowReader struct{ b []byte }

func (r *slowReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(1, len(p))], r.b)
	r.b = r.b[n:]
	return n, nil
}
