package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// Limits of a Server, unless its fields say otherwise.
const (
	DefaultConns        = 64
	DefaultReadTimeout  = 5 * time.Second
	DefaultWriteTimeout = 15 * time.Second

	// lingerTimeout and lingerBytes are how much a client may still send
	// while it reads its answer. To close at once would make its system
	// throw the answer away.
	lingerTimeout = 2 * time.Second
	lingerBytes   = 64 << 10

	// leaveTimeout is how long the end waits for clients that fetch their
	// answers.
	leaveTimeout = 2 * time.Second
)

// A Server hands out one text at /metrics by HTTP/1.1. Requests cost the machine
// no look: they get the text that was given last. Each connection has one
// request. Where there are as many connections as there may be, a new one takes
// the place of the one that has been at it longest, first of those that have not
// even sent their request: a slow client holds up nobody but itself.
type Server struct {
	// Conns is how many connections there may be at once, ReadTimeout how
	// long a client may take to send its request, and WriteTimeout how long
	// to fetch the answer. Zero values are the defaults.
	Conns                     int
	ReadTimeout, WriteTimeout time.Duration

	linger time.Duration // lingerTimeout, but in tests

	text atomic.Pointer[[]byte]

	mu    sync.Mutex
	conns []*conn // the oldest first
}

// A conn is one connection.
type conn struct {
	net.Conn
	asked bool // its request is there; under the server's mutex
}

// Set gives the text for the requests to come. It must not change any more.
func (s *Server) Set(text []byte) { s.text.Store(&text) }

// Serve answers requests until ctx is done or the listener fails; it closes the
// listener, and returns when the last answer is sent, or two seconds later. Done is
// no error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer l.Close()
	stop := context.AfterFunc(ctx, func() {
		l.Close()
		s.leave()
	})
	defer stop()
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serve metrics: %w", err)
		case err != nil:
			// No descriptor is left, or a client has gone. Listeners
			// fail in no other way that stays.
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			continue
		}
		wait = 0
		k := s.enter(c)
		if ctx.Err() != nil {
			k.Close() // it came in behind leave
		}
		all.Go(func() {
			defer s.forget(k)
			s.serve(ctx, k)
		})
	}
}

// enter takes a connection in, and shows another the door where there is no
// room.
func (s *Server) enter(c net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.Conns
	if limit <= 0 {
		limit = DefaultConns
	}
	if len(s.conns) >= limit {
		i := max(slices.IndexFunc(s.conns, func(k *conn) bool { return !k.asked }), 0)
		s.conns[i].Close()
		s.conns = slices.Delete(s.conns, i, i+1)
	}
	k := &conn{Conn: c}
	s.conns = append(s.conns, k)
	return k
}

// forget closes a connection.
func (s *Server) forget(k *conn) {
	k.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.conns, k); i >= 0 {
		s.conns = slices.Delete(s.conns, i, i+1)
	}
}

// leave closes the connections that have asked for nothing yet, and leaves the
// others little time.
func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.conns {
		if !k.asked {
			k.Close()
		}
		k.SetDeadline(time.Now().Add(leaveTimeout))
	}
}

// allow gives a connection that has asked time for what comes next. Behind leave
// that is no more than leave allowed.
func (s *Server) allow(ctx context.Context, k *conn, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.asked = true
	if ctx.Err() != nil {
		d = min(d, leaveTimeout)
	}
	k.SetDeadline(time.Now().Add(d))
}

// serve reads one request and answers it.
func (s *Server) serve(ctx context.Context, k *conn) {
	k.SetDeadline(time.Now().Add(positive(s.ReadTimeout, DefaultReadTimeout)))
	head, status := readHead(k)
	if status == 0 {
		return // nothing came, or the client went
	}
	s.allow(ctx, k, positive(s.WriteTimeout, DefaultWriteTimeout))
	var r request
	if status == 200 {
		r, status = parseRequest(head)
	}
	answer := s.answer(r, status)
	if _, err := answer.WriteTo(k.Conn); err != nil || ctx.Err() != nil {
		return
	}
	if t, ok := k.Conn.(interface{ CloseWrite() error }); ok && t.CloseWrite() == nil {
		s.allow(ctx, k, positive(s.linger, lingerTimeout))
		io.CopyN(io.Discard, k, lingerBytes)
	}
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// readHead reads up to the empty line behind the headers. The status is 200; 0
// where there is nobody to answer.
func readHead(r io.Reader) (head []byte, status int) {
	b := make([]byte, 0, 1<<10)
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := r.Read(b[len(b):min(cap(b), maxHead)])
		// The end may be cut in two.
		from := max(len(b)-3, 0)
		b = b[:len(b)+n]
		if i := headEnd(b[from:]); i >= 0 {
			return b[:from+i], 200
		}
		var timeout net.Error
		switch {
		case len(b) >= maxHead:
			return nil, 431
		case errors.As(err, &timeout) && timeout.Timeout() && len(b) > 0:
			return nil, 408
		case errors.Is(err, io.EOF) && len(b) > 0:
			return nil, 400
		case err != nil:
			return nil, 0
		}
	}
}

// reasons are the words for the statuses.
var reasons = map[int]string{
	200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 431: "Request Header Fields Too Large",
	503: "Service Unavailable", 505: "HTTP Version Not Supported",
}

// metricsPath is the one path that there is.
const metricsPath = "/metrics"

// answer is the head of the answer to a request, and its body.
func (s *Server) answer(r request, status int) net.Buffers {
	text := s.text.Load()
	kind, extra := "text/plain; charset=utf-8", ""
	var body []byte
	switch {
	case status != 200:
	case r.path != metricsPath:
		status = 404
	case r.method != "GET" && r.method != "HEAD":
		status, extra = 405, "Allow: GET, HEAD\r\n"
	case text == nil:
		status = 503
	default:
		kind, body = cq.OpenMetricsContentType, *text
	}
	if status != 200 {
		body = fmt.Appendf(nil, "%d %s: this serves GET and HEAD of %s\n", status, reasons[status], metricsPath)
	}
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n",
		status, reasons[status], time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"), kind, len(body), extra)
	if r.method == "HEAD" {
		return net.Buffers{head}
	}
	return net.Buffers{head, body}
}
