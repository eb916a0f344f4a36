package perf

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// The two sides talk over TCP. Each says first which program it is, and then sends
// messages: their length in four bytes, and as many bytes of JSON. What a peer says is
// the word of a stranger: it is bounded, checked, and printed without what would move a
// terminal.

// greeting is what a side says first. The number is the version of what follows.
const greeting = greetingName + greetingVersion

const (
	greetingName    = "goverbs verbs perf "
	greetingVersion = "0001\n"
)

// maxMessage is the longest message: the addresses of maxQPs queue pairs fit.
const maxMessage = 1 << 19

// politeness is how long a peer may take to say who it is, and to answer in a matter that
// takes no time but to find hardware addresses.
const politeness = 30 * time.Second

// A message has one of its parts.
type message struct {
	Offer  *offer  `json:"offer,omitempty"`  // what a side has and wants
	Ready  *ready  `json:"ready,omitempty"`  // it can receive
	Sent   *sent   `json:"sent,omitempty"`   // all that it sends has been sent
	Result *result `json:"result,omitempty"` // it has come to the end of a phase
}

// ready names the phase that a side is ready for, so that both are in the same.
type ready struct {
	Phase int `json:"phase"`
}

// sent is how many messages a side has sent in a phase.
type sent struct {
	Messages int64 `json:"messages"`
}

// result is what a phase came to on one side.
type result struct {
	Sent     int64    `json:"sent"`
	Received int64    `json:"received"`
	Nsec     int64    `json:"nsec"`
	Peak     float64  `json:"peak"` // messages per second
	Latency  *Latency `json:"latency,omitempty"`
	Spread   []Bucket `json:"spread,omitempty"`
	Partial  bool     `json:"partial"`         // it was interrupted
	Error    string   `json:"error,omitempty"` // or failed, for this reason
}

// mostPeak is more messages a second than there can be, and few enough that they have a
// number of bytes.
const mostPeak = 1e15

// clean makes numbers that cannot be ones that can.
func (r *result) clean() {
	r.Sent, r.Received, r.Nsec, r.Peak = max(r.Sent, 0), max(r.Received, 0), max(r.Nsec, 0), min(max(r.Peak, 0), mostPeak)
}

// A link is the connection to the other side. One goroutine reads from it all the time,
// so that both may speak at once.
type link struct {
	conn net.Conn
	in   chan message // closed at the end, which has a reason
	err  error        // that, to be read when in is closed
}

// newLink begins to read messages. Close the link when done.
func newLink(conn net.Conn) *link {
	l := &link{conn: conn, in: make(chan message, 4)}
	conn.SetReadDeadline(time.Time{})
	go l.read()
	return l
}

func (l *link) read() {
	defer close(l.in)
	for {
		m, err := readMessage(l.conn)
		if err != nil {
			l.err = err
			return
		}
		l.in <- m
	}
}

// Close ends the connection, and the goroutine that reads from it.
func (l *link) Close() error {
	err := l.conn.Close()
	for range l.in { // what nobody reads would keep the goroutine
	}
	return err
}

// send sends a message.
func (l *link) send(m message) error {
	l.conn.SetWriteDeadline(time.Now().Add(politeness))
	if err := writeMessage(l.conn, m); err != nil {
		return fmt.Errorf("talk to the other side at %s: %w", l.conn.RemoteAddr(), err)
	}
	return nil
}

// next is the next message.
func (l *link) next(ctx context.Context) (message, error) {
	select {
	case m, ok := <-l.in:
		if !ok {
			return message{}, l.gone()
		}
		return m, nil
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

// gone is why there are no more messages.
func (l *link) gone() error {
	if hungUp(l.err) {
		return errHungUp
	}
	return fmt.Errorf("listen to the other side at %s: %w", l.conn.RemoteAddr(), l.err)
}

// hungUp says whether reading has failed because the other side has closed the connection. Where
// it has not read all that was sent to it, as when it is killed, that is a reset.
func hungUp(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

var errHungUp = errors.New("the other side has hung up: what it printed says why, if it was not killed")

// greet says who this is.
func greet(w io.Writer) error {
	_, err := io.WriteString(w, greeting)
	return err
}

// strangerError is what to say of a peer that is no verbs perf.
type strangerError struct{ said []byte }

func (e *strangerError) Error() string {
	if len(e.said) == 0 {
		return "it hung up and said nothing: is it verbs perf?"
	}
	return fmt.Sprintf("it is no verbs perf but %s, which begins with %q: start verbs perf on both sides", stranger(e.said), e.said)
}

// versionError is what to say of a verbs perf of another version.
type versionError struct{ theirs string }

func (e *versionError) Error() string {
	return fmt.Sprintf("the other side speaks version %q and this one %q: the same verbs has to run on both", e.theirs, strings.TrimSpace(greetingVersion))
}

// stranger says who begins like that. Strangers are few: the patterns are made for each, and
// not when a program starts.
func stranger(said []byte) string {
	switch {
	// A ping-pong, rdma-core's or ours, sends LID:QPN:PSN:GID.
	case regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{6}:[0-9a-f]{6}:`).Match(said):
		return "a ping-pong"
	// perftest sends its version, or LID, numbers and keys: hexadecimal digits with colons between.
	case regexp.MustCompile(`^[0-9a-f]+[.:][0-9a-f.:\x00]+$`).Match(said):
		return "perftest"
	}
	return "another program"
}

// readGreeting reads who the other side is: a *strangerError where it is no verbs perf, and a
// *versionError where it is another.
func readGreeting(r io.Reader) error {
	var b [len(greeting)]byte
	n, err := io.ReadFull(r, b[:])
	name := b[:min(n, len(greetingName))]
	switch {
	case err == nil && string(b[:]) == greeting:
		return nil
	case string(name) != greetingName[:len(name)], errors.Is(err, io.ErrUnexpectedEOF), hungUp(err):
		return &strangerError{b[:n]}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it has not said in %v who it is: is it verbs perf?", politeness)
	case err != nil:
		return fmt.Errorf("read who it is: %w", err)
	}
	return &versionError{strings.TrimSpace(string(b[len(greetingName):]))}
}

// writeMessage sends one message.
func writeMessage(w io.Writer, m message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return fmt.Errorf("a message of %d bytes: %d at most", len(body), maxMessage)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// readMessage reads one message. Memory is taken for what has come, not for what was
// announced.
func readMessage(r io.Reader) (m message, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		return m, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return m, fmt.Errorf("it announces a message of %d bytes, where %d are allowed: it is no verbs perf, or a broken one", n, maxMessage)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return m, err
	}
	if len(body) < int(n) {
		return m, io.EOF
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return message{}, fmt.Errorf("it sends what is no message of verbs perf: %w", err)
	}
	parts := 0
	for _, there := range []bool{m.Offer != nil, m.Ready != nil, m.Sent != nil, m.Result != nil} {
		if there {
			parts++
		}
	}
	if parts != 1 {
		return message{}, fmt.Errorf("it sends a message of %d parts, where there is one: it is no verbs perf, or a broken one", parts)
	}
	return m, nil
}
