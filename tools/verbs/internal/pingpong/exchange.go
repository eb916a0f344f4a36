package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"
)

// exchangeTimeout ends an exchange of addresses with a peer that has connected
// and then says nothing. What it leaves time for is one round trip, and to find
// the peer's hardware address.
const exchangeTimeout = 30 * time.Second

// farewell is what the client says when it has the server's address.
const farewell = "done\x00"

// listen begins to listen as the server.
func listen(ctx context.Context, port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
}

// serve takes the first connection and swaps addresses with the client there:
// its address comes first, ready makes this side able to receive, and only then
// it learns ours, since it sends at once.
func serve(ctx context.Context, l net.Listener, local Address, ready func(Address) error) (Address, error) {
	unwatch := context.AfterFunc(ctx, func() { l.Close() })
	conn, err := l.Accept()
	unwatch()
	l.Close()
	if err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("wait for a client: %w", err))
	}
	defer hold(ctx, conn)()

	remote, err := receive(conn)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = errors.New("it hung up without a word")
	}
	if err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("read the address of the client at %v: %w", conn.RemoteAddr(), err))
	}
	if err := ready(remote); err != nil {
		return Address{}, interrupted(ctx, err)
	}
	if _, err := conn.Write(local.appendTo(nil)); err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("send the address to the client at %v: %w", conn.RemoteAddr(), err))
	}
	var end [len(farewell)]byte
	n, err := io.ReadFull(conn, end[:])
	if err == nil && string(end[:]) != farewell {
		err = fmt.Errorf("it says %q in place of %q", end[:n], farewell)
	}
	if err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("wait until the client at %v has the address: %w", conn.RemoteAddr(), err))
	}
	return remote, nil
}

// call swaps addresses with a server.
func call(ctx context.Context, host string, port int, local Address) (Address, error) {
	d := net.Dialer{Timeout: exchangeTimeout}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("connect to the server: %w", err))
	}
	defer hold(ctx, conn)()

	if _, err := conn.Write(local.appendTo(nil)); err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("send the address to the server at %v: %w", conn.RemoteAddr(), err))
	}
	remote, err := receive(conn)
	if errors.Is(err, io.EOF) {
		err = errors.New("it hung up without an answer and has said itself why (on RoCE ibv_rc_pingpong needs -g)")
	}
	if err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("read the address of the server at %v: %w", conn.RemoteAddr(), err))
	}
	if _, err := conn.Write([]byte(farewell)); err != nil {
		return Address{}, interrupted(ctx, fmt.Errorf("tell the server at %v that its address has come: %w", conn.RemoteAddr(), err))
	}
	return remote, nil
}

// receive reads one address.
func receive(conn net.Conn) (Address, error) {
	var msg [addressSize]byte
	n, err := io.ReadFull(conn, msg[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return Address{}, notAnAddress(msg[:n])
	}
	if err != nil {
		return Address{}, err
	}
	return parseAddress(msg[:])
}

// hold bounds the time that conn may take and ends what goes on there with ctx.
// The function that it returns closes conn.
func hold(ctx context.Context, conn net.Conn) (release func()) {
	conn.SetDeadline(time.Now().Add(exchangeTimeout))
	unwatch := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		unwatch()
		conn.Close()
	}
}

// interrupted puts the end of ctx in place of the error that it brought about.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
