package pingpong

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listener listens on a free port of this host.
func listener(t *testing.T) (net.Listener, int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

func accept(Address) error { return nil }

var otherAddress = Address{LID: 3, QPN: 0xabcdef, PSN: 0x123456}

func TestExchange(t *testing.T) {
	ctx := t.Context()
	l, port := listener(t)
	type result struct {
		remote, seen Address
		err          error
	}
	served := make(chan result, 1)
	go func() {
		var r result
		r.remote, r.err = serve(ctx, l, someAddress, func(a Address) error { r.seen = a; return nil })
		served <- r
	}()
	remote, err := call(ctx, "127.0.0.1", port, otherAddress)
	if err != nil || remote != someAddress {
		t.Errorf("the client got %v, %v, want %v", remote, err, someAddress)
	}
	if r := <-served; r.err != nil || r.remote != otherAddress || r.seen != otherAddress {
		t.Errorf("the server got %v, was made ready for %v, %v, want %v", r.remote, r.seen, r.err, otherAddress)
	}
}

// The server is ready before the client has its address, and a server that
// cannot be says nothing at all: the order that ibv_rc_pingpong relies on.
func TestServerIsReadyFirst(t *testing.T) {
	l, port := listener(t)
	broken := errors.New("broken")
	served := make(chan error, 1)
	go func() {
		_, err := serve(t.Context(), l, someAddress, func(Address) error { return broken })
		served <- err
	}()
	_, err := call(t.Context(), "127.0.0.1", port, otherAddress)
	if err == nil || !strings.Contains(err.Error(), "hung up without an answer") {
		t.Errorf("the client: %v", err)
	}
	if err := <-served; !errors.Is(err, broken) {
		t.Errorf("the server: %v", err)
	}
}

// Servers that say something wrong.
func TestCallRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		says string
		want string
	}{
		"nothing": {"", "hung up without an answer"},
		"short":   {wireAddress[:20], "is not an address"},
		"garbage": {strings.Repeat("\xff", addressSize), "is not an address"},
		"huge":    {strings.Repeat("A", 1<<20), "is not an address"},
		"http":    {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n", "is not an address"},
	} {
		t.Run(name, func(t *testing.T) {
			l, port := listener(t)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				io.ReadFull(conn, make([]byte, addressSize))
				io.WriteString(conn, test.says)
			}()
			_, err := call(t.Context(), "127.0.0.1", port, someAddress)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// Clients that say something wrong.
func TestServeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		says string
		want string
	}{
		"nothing":      {"", "hung up without a word"},
		"short":        {wireAddress[:51], "is not an address"},
		"garbage":      {strings.Repeat("\x00", addressSize), "is not an address"},
		"huge":         {strings.Repeat("A", 1<<20), "is not an address"},
		"no farewell":  {wireAddress, "wait until the client"},
		"other end":    {wireAddress + "abort", `"abort" in place of "done\x00"`},
		"half the end": {wireAddress + "do", "wait until the client"},
	} {
		t.Run(name, func(t *testing.T) {
			l, port := listener(t)
			go func() {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return
				}
				io.WriteString(conn, test.says)
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
				conn.Close()
			}()
			_, err := serve(t.Context(), l, someAddress, accept)
			// A connection that is closed with data unread is reset.
			if err == nil || !strings.Contains(err.Error(), test.want) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
				t.Errorf("port %d still takes connections", port)
			}
		})
	}
}

// The end of the context ends every wait, and its cause is the error.
func TestExchangeEnds(t *testing.T) {
	enough := errors.New("enough")
	for name, wait := range map[string]func(ctx context.Context) error{
		"for a client": func(ctx context.Context) error {
			l, _ := listener(t)
			_, err := serve(ctx, l, someAddress, accept)
			return err
		},
		"for the client's address": func(ctx context.Context) error {
			l, _ := listener(t)
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = serve(ctx, l, someAddress, accept)
			return err
		},
		"for the server's address": func(ctx context.Context) error {
			_, port := listener(t)
			_, err := call(ctx, "127.0.0.1", port, someAddress)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
			if err := wait(ctx); !errors.Is(err, enough) {
				t.Errorf("error %v, want %v", err, enough)
			}
		})
	}
}

// The port is named when it is taken, and so is the server when there is none.
func TestNobodyThere(t *testing.T) {
	// The port of the one end of a connection is taken, so that nobody listens there.
	l, port := listener(t)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	free := conn.LocalAddr().(*net.TCPAddr).Port
	if _, err := call(t.Context(), "127.0.0.1", free, someAddress); err == nil || !strings.Contains(err.Error(), "connect to the server") {
		t.Errorf("error %v", err)
	}
	if again, err := listen(t.Context(), port); err == nil {
		again.Close()
		t.Errorf("port %d twice", port)
	} else if !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("error %v does not name port %d", err, port)
	}
}
