package main

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/tools/examples/internal/run"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// together runs the server and four clients, each on a device of the model, and then
// interrupts the server. Clients end the program on a wrong answer.
func together(t *testing.T, l net.Listener, dial func() net.Conn) {
	fabric := uverbstest.NewFabric(t, &sim.Options{Devices: make([]model.DeviceConfig, 3)})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveAll(ctx, func() *uverbs.Device { return must(fabric.Open("sim0", nil)) }, l)
	}()
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			request(t.Context(), must(fabric.Open([]string{"sim1", "sim2"}[i%2], nil)), dial(), 200)
		})
	}
	clients.Wait()
	interrupt()
	<-served
}

func TestSimRequestResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := run.NewPipes()
		together(t, l, l.Dial)
	})
}

func TestSimRequestResponseTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	together(t, l, func() net.Conn { return must(net.Dial("tcp", l.Addr().String())) })
}

// A server that is interrupted while a client is connected drains its queue pair and
// says how much it served; the client may go on waiting.
func TestSimInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := uverbstest.NewFabric(t, nil)
		here, there := net.Pipe()
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		served := make(chan int)
		go func() {
			s := open(ctx, must(fabric.Open("sim0", nil)), there)
			n := s.serve(ctx)
			s.close()
			there.Close()
			served <- n
		}()
		client := open(t.Context(), must(fabric.Open("sim1", nil)), here)
		for id := range uint64(5) {
			client.qp.SendQueue().SendInline(id, []byte("hello"))
		}
		must(0, client.qp.SendQueue().Flush())
		for got := 0; got < 5; {
			var wcs [slots]uverbs.WC
			for _, w := range wcs[:must(client.w.Wait(t.Context(), wcs[:]))] {
				must(0, w.Err())
				if b, _ := client.slot(w.ID, int(w.Bytes)); w.Side == uverbs.RecvSide {
					if got++; string(b) != "HELLO" {
						t.Errorf("answer %q", b)
					}
				}
			}
		}
		interrupt()
		if n := <-served; n != 5 {
			t.Errorf("%d requests served, want 5", n)
		}
		client.close()
		here.Close()
	})
}
