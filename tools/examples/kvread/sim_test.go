package main

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/tools/examples/internal/run"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// together runs the server and three clients on the model, and then interrupts the
// server. Clients end the program on a wrong value.
func together(t *testing.T, l net.Listener, dial func() net.Conn) {
	fabric := uverbstest.NewFabric(t, nil)
	store, reader := must(fabric.Open("sim0", nil)), must(fabric.Open("sim1", nil))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(ctx, store, l)
	}()
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() { read(t.Context(), reader, dial(), 500) })
	}
	clients.Wait()
	interrupt()
	<-served
	must(0, store.Close())
	must(0, reader.Close())
}

func TestSimKeyValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := run.NewPipes()
		together(t, l, l.Dial)
	})
}

func TestSimKeyValueTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	together(t, l, func() net.Conn { return must(net.Dial("tcp", l.Addr().String())) })
}
