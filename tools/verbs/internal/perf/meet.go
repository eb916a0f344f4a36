package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// maxStrangers is how many connections may be in doubt at a time. One more takes the place of
// the one that has been silent for the longest time: those of a scanner hold up no client.
const maxStrangers = 16

// A doorstep is where connections wait that have not said yet who they are.
type doorstep struct {
	mu    sync.Mutex
	conns []net.Conn // the oldest first
}

// enter lets a connection wait.
func (d *doorstep) enter(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) == maxStrangers {
		d.conns[0].Close()
		d.conns = slices.Delete(d.conns, 0, 1)
	}
	d.conns = append(d.conns, conn)
}

// leave takes a connection away, and says whether it was still there.
func (d *doorstep) leave(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.conns, conn)
	if i < 0 {
		return false
	}
	d.conns = slices.Delete(d.conns, i, i+1)
	return true
}

// Listen waits for a client and returns the connection to it. When clients can connect it
// calls listening. Who connects and is no
// verbs perf is turned away, which strange is told of, and a client that comes then is
// served all the same.
func Listen(ctx context.Context, port int, listening func(), strange func(error)) (net.Conn, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("%w (-p chooses another port, on both sides)", err)
	}
	listening()
	return welcome(ctx, l, strange)
}

// welcome returns the first connection of a verbs perf, and closes all else.
func welcome(ctx context.Context, l net.Listener, strange func(error)) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var tell sync.Mutex
	found := make(chan net.Conn)
	failed := make(chan error, 1)
	var doubtful doorstep
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			doubtful.enter(conn)
			go func() {
				err := meetStranger(ctx, conn)
				if !doubtful.leave(conn) {
					err = fmt.Errorf("it has not said who it is, and %d more have come", maxStrangers)
				}
				if err == nil {
					select {
					case found <- conn:
						return
					case <-ctx.Done():
					}
				} else if ctx.Err() == nil && strange != nil {
					tell.Lock()
					defer tell.Unlock()
					strange(fmt.Errorf("turned away who connected from %v: %w", conn.RemoteAddr(), err))
				}
				conn.Close()
			}()
		}
	}()
	select {
	case conn := <-found:
		return conn, nil
	case err := <-failed:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("wait for a client: %w", err)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// meetStranger hears who has connected, and answers. Of a verbs perf of another version
// the client hears what this one speaks.
func meetStranger(ctx context.Context, conn net.Conn) error {
	defer hold(ctx, conn)()
	switch err := readGreeting(conn); {
	case errors.As(err, new(*versionError)):
		greet(conn) // whether or not it hears it
		return err
	case err != nil:
		return err
	}
	return greet(conn)
}

// Dial connects to a server.
func Dial(ctx context.Context, host string, port int) (net.Conn, error) {
	d := net.Dialer{Timeout: politeness}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
			return nil, fmt.Errorf("find the server: %w", err)
		}
		return nil, fmt.Errorf("connect to the server: %w (start verbs perf there first, without a host)", err)
	}
	release := hold(ctx, conn)
	err = greet(conn)
	if err == nil {
		err = readGreeting(conn)
	}
	release()
	if err == nil {
		return conn, nil
	}
	conn.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("the server at %v: %w", conn.RemoteAddr(), err)
}

// hold bounds the time that conn may take and ends what goes on there with ctx. The
// function that it returns ends that.
func hold(ctx context.Context, conn net.Conn) (release func()) {
	conn.SetDeadline(time.Now().Add(politeness))
	unwatch := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if unwatch() {
			conn.SetDeadline(time.Time{})
		}
	}
}
