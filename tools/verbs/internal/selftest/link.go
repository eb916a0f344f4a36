package selftest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// The two machines of a run exchange lines of JSON over TCP: a greeting of each side,
// and then orders and answers, by turns. Each test has a connection of its own, so that
// one that hangs is in nobody's way.

// Port is where the other end listens, if nobody says otherwise.
const Port = 18518

// version is that of the exchange. Ends of different versions do not talk.
const version = 1

const magic = "goverbs selftest"

// maxLine is how long a line may be.
const maxLine = 1 << 20

// greetingPatience is how long a greeting may take, linkGrace how much longer than an
// order's patience its answer. Tests have more of both.
var (
	greetingPatience = 10 * time.Second
	linkGrace        = 20 * time.Second
)

type greeting struct {
	Magic   string `json:"magic"`
	Version int    `json:"version"`
	Device  string `json:"device,omitempty"`
}

// link is a connection that speaks lines of JSON.
type link struct {
	conn net.Conn
	in   *bufio.Reader
}

func newLink(conn net.Conn) *link { return &link{conn, bufio.NewReaderSize(conn, 1<<16)} }

func (l *link) say(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = l.conn.Write(append(line, '\n'))
	return err
}

// hear reads a line.
func (l *link) hear(v any) error {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxLine {
			return fmt.Errorf("a line of more than %d bytes", maxLine)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("a line that is not of this protocol: %w", err)
	}
	return nil
}

// greet swaps greetings; who calls speaks first.
func (l *link) greet(device string, caller bool) error {
	l.conn.SetDeadline(time.Now().Add(greetingPatience))
	defer l.conn.SetDeadline(time.Time{})
	mine, theirs := greeting{magic, version, device}, greeting{}
	if caller {
		if err := l.say(mine); err != nil {
			return err
		}
	}
	if err := l.hear(&theirs); err != nil {
		return err
	}
	if theirs.Magic != magic {
		return errors.New("it is no verbs selftest")
	}
	if !caller {
		if err := l.say(mine); err != nil { // also to one of another version, which then knows
			return err
		}
	}
	if theirs.Version != version {
		return fmt.Errorf("it speaks version %d of the exchange, and this program version %d: use the same verbs on both machines", theirs.Version, version)
	}
	return nil
}

// remote is the end on another machine.
type remote struct{ *link }

// dial connects to an end that serves.
func dial(ctx context.Context, addr string) (*remote, error) {
	d := net.Dialer{Timeout: greetingPatience}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to the other end (verbs selftest -serve): %w", err)
	}
	l := newLink(conn)
	if err := l.greet("", true); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet the other end at %s: %w", addr, heard(err))
	}
	return &remote{l}, nil
}

// heard puts the end of a connection in words.
func heard(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it hung up")
	}
	return err
}

// do has the order carried out over there.
func (r *remote) do(ctx context.Context, o *Order) *Answer {
	r.conn.SetDeadline(time.Now().Add(time.Duration(o.Patience*float64(time.Second)) + linkGrace))
	unwatch := context.AfterFunc(ctx, func() { r.conn.SetDeadline(time.Unix(1, 0)) })
	defer unwatch()
	a := new(Answer)
	err := r.say(o)
	if err == nil {
		err = r.hear(a)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return failed(fmt.Errorf("%s: no answer: %w", o.Do, heard(err)))
	}
	return a
}

// Serve is the other end of one run: it carries out what the orders of one say, and
// returns when that says good-bye. Say is told of callers that were refused. Who can
// connect can have the device send and receive in memory of this process, and nothing
// else.
func Serve(ctx context.Context, l net.Listener, open func() (*uverbs.Device, error), say func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	bye := make(chan struct{}, 1)
	places := make(chan struct{}, maxCallers)
	sessions := make(chan struct{}, maxCallers)
	running := 0
	defer func() {
		cancel()
		for ; running > 0; running-- {
			<-sessions
		}
	}()
	type accepted struct {
		conn net.Conn
		err  error
	}
	calls := make(chan accepted)
	go func() {
		for {
			conn, err := l.Accept()
			select {
			case calls <- accepted{conn, err}:
			case <-ctx.Done():
				if conn != nil {
					conn.Close()
				}
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case c := <-calls:
			if c.err != nil {
				return interrupted(ctx, c.err)
			}
			select {
			case places <- struct{}{}:
			default:
				say(fmt.Sprintf("%v was refused: %d callers are there", c.conn.RemoteAddr(), maxCallers))
				c.conn.Close()
				continue
			}
			running++
			go func() {
				defer func() { <-places; sessions <- struct{}{} }()
				if err := session(ctx, c.conn, open, bye); err != nil && ctx.Err() == nil {
					say(fmt.Sprintf("%v: %v", c.conn.RemoteAddr(), heard(err)))
				}
			}()
		case <-sessions:
			running--
		case <-bye:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// maxCallers is how many connections one run may have, of which all but one hang.
const maxCallers = 8

// idle is how long a caller may say nothing.
const idle = 5 * time.Minute

func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// session serves a connection: one test.
func session(ctx context.Context, conn net.Conn, open func() (*uverbs.Device, error), bye chan<- struct{}) (err error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	l := newLink(conn)
	if err := l.greet("", false); err != nil {
		return err
	}
	e := &end{name: "b", open: open}
	defer e.close()
	for {
		conn.SetDeadline(time.Now().Add(idle))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var o Order
		if err := l.hear(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if o.Do == doBye {
			select {
			case bye <- struct{}{}:
			default:
			}
			return l.say(&Answer{})
		}
		a := e.do(ctx, &o)
		conn.SetDeadline(time.Now().Add(idle))
		if err := l.say(a); err != nil {
			return err
		}
	}
}
