package run

import (
	"net"
	"os"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// Sim is n devices in software that reach one another. At the end of the test they
// hold nothing any more, and no rule was broken on them.
func Sim(t *testing.T, n int) *sim.Fabric {
	t.Helper()
	fabric, err := sim.New(&sim.Options{Devices: make([]model.DeviceConfig, n)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, broken := range fabric.Model().Violations() {
			t.Error(broken)
		}
		for _, d := range fabric.Model().Devices() {
			if left := d.Objects(); len(left) > 0 {
				t.Errorf("left on %s: %v", d.Name(), left)
			}
		}
	})
	return fabric
}

// Open opens a device of the fabric.
func Open(t *testing.T, fabric *sim.Fabric, name string) *uverbs.Device {
	t.Helper()
	dev, err := fabric.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// Close closes what a test opened.
func Close(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

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
