package run

import (
	"net"
	"os"
)

// Pipes is a listener without a network, for programs in a testing/synctest bubble:
// waiting on a socket would keep the bubble's clock from going on.
type Pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

// NewPipes makes a listener.
func NewPipes() *Pipes { return &Pipes{make(chan net.Conn), make(chan struct{})} }

// Dial connects to it, as soon as it accepts.
func (p *Pipes) Dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// Accept implements [net.Listener].
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, os.ErrClosed
	}
}

// Close implements [net.Listener]. It is called once.
func (p *Pipes) Close() error { close(p.closed); return nil }

// Addr implements [net.Listener].
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
