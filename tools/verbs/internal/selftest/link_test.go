package selftest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// served is an end that is served, on a fabric.
type served struct {
	addr string
	done chan error
	mu   sync.Mutex
	said []string
}

func serve(t *testing.T, ctx context.Context, open func() (*uverbs.Device, error)) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{addr: l.Addr().String(), done: make(chan error, 1)}
	go func() {
		s.done <- Serve(ctx, l, open, func(text string) {
			s.mu.Lock()
			s.said = append(s.said, text)
			s.mu.Unlock()
		})
	}()
	return s
}

// The other end may be elsewhere: all is as it is in one process.
func TestPeer(t *testing.T) {
	f := newFabric(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := serve(t, ctx, func() (*uverbs.Device, error) { return f.Open("sim1", nil) })
	c := onModel(t, f)
	c.Peer, c.Rounds = s.addr, 200
	r, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Outcome != Passed && row.Outcome != Unsupported {
			t.Errorf("%s", row.Line())
		}
	}
	if r.count(Unsupported) != 2 {
		t.Errorf("%d rows are not supported", r.count(Unsupported))
	}
	if err := <-s.done; err != nil {
		t.Errorf("the other end: %v", err)
	}
	for _, d := range f.Model().Devices() {
		for what, n := range d.Objects() {
			if n > 0 {
				t.Errorf("%d %v are left on %s", n, what, d.Name())
			}
		}
	}
}

// An end whose peer is interrupted does not wait for it for ever: it was there for one run.
func TestPeerInterrupted(t *testing.T) {
	f := newFabric(t)
	s := serve(t, t.Context(), func() (*uverbs.Device, error) { return f.Open("sim1", nil) })
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	c := onModel(t, f)
	c.Peer, c.Rounds = s.addr, 10
	c.Tell = func(Row) { interrupt() }
	r, err := Run(ctx, c)
	if err != nil || !r.Interrupted {
		t.Fatalf("%v, %+v", err, r)
	}
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

// Whoever calls, and whatever they say, the other end goes on; and what they ask for has
// bounds.
func TestServeHostile(t *testing.T) {
	f := newFabric(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := serve(t, ctx, func() (*uverbs.Device, error) { return f.Open("sim1", nil) })
	for _, text := range []string{
		"", "\n", "GET / HTTP/1.1\r\n\r\n", "{}\n", `{"magic":"goverbs selftest"}` + "\n", `{"magic":"goverbs selftest","version":99}` + "\n",
		strings.Repeat("x", maxLine+100), "\x00\xff\n", `{"magic":["goverbs selftest"]}` + "\n",
	} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patient))
		conn.Write([]byte(text))
		conn.(*net.TCPConn).CloseWrite()
		for {
			if _, err := conn.Read(make([]byte, 512)); err != nil {
				break
			}
		}
		conn.Close()
	}
	order := func(r *remote, o Order) *Answer {
		if o.Patience == 0 {
			o.Patience = 1
		}
		return r.do(ctx, &o)
	}
	good := usual(uverbs.RC)
	huge, deep := good, good
	huge.Memory, deep.SendDepth = 1<<30, 1<<30
	for _, orders := range [][]Order{
		{{Do: doTake, N: 1}},
		{{Do: doMake}},
		{{Do: doMake, Make: &huge}},
		{{Do: doMake, Make: &deep}},
		{{Do: doMake, Make: &good, Patience: -1}},
		{{Do: doMake, Make: &good, Patience: 1e9}},
		{{Do: "nonsense"}},
		{{Do: doMake, Make: &good}, {Do: doMake, Make: &good}},
		{{Do: doMake, Make: &good}, {Do: doConnect}},
		{{Do: doMake, Make: &good}, {Do: doStream}},
		{{Do: doMake, Make: &good}, {Do: doReady, Stream: &Stream{Messages: 1, Bytes: 1 << 16, Credit: 1, Stall: 1}}},
		{{Do: doMake, Make: &good}, {Do: doReady, Stream: &Stream{Messages: 1 << 30, Bytes: 64, Credit: 1, Stall: 1}}},
		{{Do: doMake, Make: &good}, {Do: doReady, Stream: &Stream{Messages: 1, Bytes: 64, Credit: 1, Stall: 1}}, {Do: doStream, Stream: &Stream{Messages: 1, Bytes: 1 << 16, Send: true, Credit: 1, Stall: 1}}},
		{{Do: doMake, Make: &good}, {Do: doFill, Off: memoryBytes, Bytes: 1}},
		{{Do: doMake, Make: &good}, {Do: doCheck, Off: -1, Bytes: 1}},
		{{Do: doMake, Make: &good}, {Do: doPost, Work: []Work{{Op: cq.OpSend, Inline: true, Pieces: []Piece{{memoryBytes - 1, 2}}}}}},
		{{Do: doMake, Make: &good}, {Do: doPost, Work: []Work{{Op: cq.OpSendInvalidate}}}},
		{{Do: doMake, Make: &good}, {Do: doPost, Work: []Work{{Op: 200}}}},
		{{Do: doMake, Make: &good}, {Do: doPost, Work: []Work{{Op: cq.OpRecv, Pieces: []Piece{{memoryBytes, 64}}}}}},
		{{Do: doMake, Make: &good}, {Do: doShut}},
		{{Do: doMake, Make: &good}, {Do: doLimit, N: 3}},
		{{Do: doMake, Make: &good}, {Do: doJoin, Group: "127.0.0.1"}},
	} {
		r, err := dial(ctx, s.addr)
		for end := time.Now().Add(patient); err != nil; r, err = dial(ctx, s.addr) {
			if time.Now().After(end) { // those before may not have gone yet
				t.Fatal(err)
			}
		}
		var a *Answer
		for _, o := range orders {
			a = order(r, o)
		}
		if last := orders[len(orders)-1]; a.Error == "" || strings.Contains(a.Error, "no answer") {
			t.Errorf("%+v was answered with %+v", last, a)
		}
		r.conn.Close()
	}
	// After all that it serves.
	c := onModel(t, f)
	c.Peer, c.Only = s.addr, []string{"RC: send inline"}
	if r, err := Run(ctx, c); err != nil || r.Rows[0].Outcome != Passed {
		t.Errorf("%+v, %v", r, err)
	}
	if err := <-s.done; err != nil {
		t.Errorf("the other end: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := strings.Join(s.said, "\n"); !strings.Contains(all, "version 99") || !strings.Contains(all, "no verbs selftest") {
		t.Errorf("it said %q", s.said)
	}
}

// An other end that says nonsense, or nothing at all, is none, and the row says why.
func TestDialNonsense(t *testing.T) {
	for _, answer := range []string{"", "nonsense\n", `{"magic":"goverbs selftest","version":2}` + "\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Write([]byte(answer))
				conn.(*net.TCPConn).CloseWrite()
			}
		}()
		c := onModel(t, newFabric(t))
		c.Peer, c.Only = l.Addr().String(), []string{"RC: send inline"}
		r, err := Run(t.Context(), c)
		l.Close()
		if err != nil || r.Rows[0].Outcome != NotRun || !strings.Contains(r.Rows[0].Detail, "greet the other end") {
			t.Errorf("%q: %+v, %v", answer, r, err)
		}
	}
}

// An other end that greets and then answers with as good as nothing makes rows fail, and
// nothing worse.
func TestEmptyAnswers(t *testing.T) {
	for _, answer := range []string{"{}\n", `{"endpoint":{},"region":{},"limits":{},"device":{}}` + "\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					fmt.Fprintf(conn, `{"magic":%q,"version":%d}`+"\n", magic, version)
					lines := bufio.NewScanner(conn)
					for lines.Scan(); lines.Scan(); { // the first is the greeting
						io.WriteString(conn, answer)
					}
				}()
			}
		}()
		c := onModel(t, newFabric(t))
		c.Peer, c.Patience, c.Rounds = l.Addr().String(), 20*time.Millisecond, 5
		r, err := Run(t.Context(), c)
		l.Close()
		if err != nil || r.count(Failed)+r.count(Unsupported) != len(tests()) {
			t.Errorf("%s: %v, %+v", answer, err, r)
		}
	}
}

// Serve ends with its context.
func TestServeInterrupted(t *testing.T) {
	f := newFabric(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := serve(t, ctx, func() (*uverbs.Device, error) { return f.Open("sim1", nil) })
	r, err := dial(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	spec := usual(uverbs.RC)
	if a := r.do(t.Context(), &Order{Do: doMake, Make: &spec, Patience: 10}); a.Error != "" {
		t.Fatal(a.Error)
	}
	enough := errors.New("enough")
	cancel(enough)
	if err := <-s.done; !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	r.conn.Close()
	for _, d := range f.Model().Devices() {
		for what, n := range d.Objects() {
			if n > 0 {
				t.Errorf("%d %v are left on %s", n, what, d.Name())
			}
		}
	}
}

// Where the other end ends in the middle, what is left was not run: it says nothing of the
// device, and nobody is waited for once for each test.
func TestPeerGoes(t *testing.T) {
	f := newFabric(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := serve(t, ctx, func() (*uverbs.Device, error) { return f.Open("sim1", nil) })
	c := onModel(t, f)
	c.Peer, c.Only = s.addr, []string{"RC: send"}
	told := 0
	c.Tell = func(Row) {
		if told++; told == 2 {
			cancel()
			<-s.done
		}
	}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range r.Rows {
		if i < 2 && row.Outcome != Passed || i >= 2 && (row.Outcome != NotRun || !strings.HasPrefix(row.Detail, "there is no other end: ")) {
			t.Errorf("%s", row.Line())
		}
	}
	if o := r.Report(Place{}); r.Interrupted || r.Failed() || o.OK || o.NotRun != len(r.Rows)-2 || len(r.Rows) < 4 {
		t.Errorf("interrupted: %v, %+v", r.Interrupted, o)
	}
}
