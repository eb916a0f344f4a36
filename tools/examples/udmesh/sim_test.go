package main

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/sim"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// Three nodes of the model ping one another, and each itself, under a false clock:
// no datagram is lost, none takes time.
func TestSimMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pings = 20
		fabric := uverbstest.NewFabric(t, &sim.Options{Devices: make([]model.DeviceConfig, 3)})
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var nodes [3]*node
		for i, name := range []string{"sim0", "sim1", "sim2"} {
			dev := must(fabric.Open(name, nil))
			defer dev.Close()
			nodes[i] = join(dev)
			defer nodes[i].w.Close()
		}
		var all sync.WaitGroup
		for _, n := range nodes {
			all.Go(func() {
				for peer, p := range nodes {
					n.ping(ctx, peer, p.qp.Endpoint(), pings)
				}
				n.serve(ctx)
			})
		}
		time.Sleep(time.Minute) // of the false clock
		interrupt()
		all.Wait()
		for i, n := range nodes {
			for peer := range nodes {
				if n.pongs[peer] != pings || n.total[peer] != 0 {
					t.Errorf("node %d: %d of %d pings of %d, %v in all", i, n.pongs[peer], pings, peer, n.total[peer])
				}
			}
			if len(n.back) != len(nodes) {
				t.Errorf("node %d: %d ways back, want %d", i, len(n.back), len(nodes))
			}
		}
	})
}

// Nodes tell one another where their datagrams go.
func TestSimTell(t *testing.T) {
	dev := must(uverbstest.NewFabric(t, nil).Open("sim0", nil))
	defer dev.Close()
	n := join(dev)
	defer n.w.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	go func() { defer close(told); tell(l, n.qp.Endpoint()) }()
	for range 2 {
		if e := ask(l.Addr().String()); e != n.qp.Endpoint() || e.QPN == 0 || e.QKey == 0 || e.GID.IsZero() {
			t.Errorf("%+v, want %+v", e, n.qp.Endpoint())
		}
	}
	l.Close()
	<-told
}
