// Udmesh is a node of a mesh that pings others with datagrams and reports
// round-trip times: udmesh -listen :7473 -n 100 host1:7473 host2:7473
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

const depth, bufSize = 64, 256

// message is a ping, and comes back as a pong.
type message struct {
	Pong bool
	Peer int // the sender's number for the receiver
	Sent int64
}

type node struct {
	pd    *uverbs.PD
	mem   *uverbs.Memory
	mr    *uverbs.MR
	qp    *uverbs.QP
	w     *poll.Waiter              // on its one CQ
	back  map[uverbs.GID]*uverbs.AH // ways back to those who pinged
	pongs map[int]int               // by peer, and the sum of their round-trip times
	total map[int]time.Duration
}

func (n *node) recv(id uint64) { n.qp.RecvQueue().Recv(id, n.mr.Span(int(id)*bufSize, bufSize)) }

func (n *node) send(to uverbs.Dest, m message) {
	n.qp.SendQueue().SendToInline(0, to, must(json.Marshal(m)), uverbs.Unsignaled)
	must(0, n.qp.SendQueue().Flush())
}

// serve answers pings and books pongs until ctx ends.
func (n *node) serve(ctx context.Context) {
	var wcs [depth]uverbs.WC
	for {
		k, err := n.w.Wait(ctx, wcs[:])
		if err != nil && ctx.Err() != nil { // it has taken no completion
			return
		}
		for _, w := range wcs[:must(k, err)] {
			must(0, w.Err())
			b := n.mem.Bytes()[w.ID*bufSize:][:w.Bytes]
			var m message
			if json.Unmarshal(b[uverbs.GRHLen:], &m); m.Pong {
				n.pongs[m.Peer]++
				n.total[m.Peer] += time.Duration(time.Now().UnixNano() - m.Sent)
			} else if from, err := uverbs.ParseGRH(b); err == nil {
				if n.back[from.Source] == nil {
					n.back[from.Source] = must(n.pd.NewAHFor(w, b))
				}
				n.send(uverbs.Dest{AH: n.back[from.Source], QPN: w.SrcQPN}, message{true, m.Peer, m.Sent})
			}
			n.recv(w.ID)
		}
		must(0, n.qp.RecvQueue().Flush())
	}
}

// join makes a node that can receive.
func join(dev *uverbs.Device) *node {
	n := &node{pd: must(dev.NewPD()), mem: must(uverbs.Alloc(depth*bufSize, nil)), back: map[uverbs.GID]*uverbs.AH{}, pongs: map[int]int{}, total: map[int]time.Duration{}}
	n.mr = must(n.pd.Register(n.mem.Bytes(), uverbs.LocalWrite))
	q := must(dev.NewCQ(2*depth, &uverbs.CQOptions{Events: true}))
	n.qp = must(n.pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: q, SendDepth: depth, RecvDepth: depth, Inline: 128}))
	n.w = must(poll.NewWaiter(poll.Event{}, q))
	for id := range uint64(depth) {
		n.recv(id)
	}
	must(0, n.qp.RecvQueue().Flush())
	return n
}

// ping pings a peer, and answers others meanwhile.
func (n *node) ping(ctx context.Context, peer int, e uverbs.Endpoint, count int) {
	to := uverbs.Dest{AH: must(n.pd.NewAH(e, nil)), QPN: e.QPN}
	for range count {
		n.send(to, message{Peer: peer, Sent: time.Now().UnixNano()})
		wait, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		n.serve(wait)
		cancel()
	}
}

func main() {
	listen, count := flag.String("listen", ":7473", "tell peers who we are on this `address`"), flag.Int("n", 10, "pings to each peer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dev := must(uverbs.Open(must(uverbs.Devices())[0].Name, nil))
	defer dev.Close()
	n := join(dev)
	go tell(must(net.Listen("tcp", *listen)), n.qp.Endpoint())
	for i, addr := range flag.Args() {
		n.ping(ctx, i, ask(addr), *count)
		fmt.Printf("%s: %d of %d pings, %v each\n", addr, n.pongs[i], *count, n.total[i]/time.Duration(max(1, n.pongs[i])))
	}
	n.serve(ctx) // the others may go on
}
