package uverbs_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// A peer has died. Its successor waits at the same address, and takes its place on the
// queue pair, whose completion queue and memory stay. Another goroutine polls.
func ExampleQP_Recover() {
	var qp *uverbs.QP // failed
	var mr *uverbs.MR

	first, ok := qp.FirstFailure()
	if !ok || first.Status.Remedy() == cq.RemedyReopen {
		log.Fatal(qp.Cause()) // nothing to recover from, or with
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var peer *uverbs.Peer
	err := qp.Recover(ctx, func(ctx context.Context, qp *uverbs.QP) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", "10.0.0.2:7471")
		if err != nil {
			return err
		}
		defer conn.Close()
		qp.RecvQueue().Recv(1, mr.Span(0, 4096)) // before the peer can send
		if err := qp.RecvQueue().Flush(); err != nil {
			return err
		}
		peer, err = qp.Handshake(ctx, conn, mr.Remote())
		return err
	})
	if err != nil {
		log.Fatal(err) // it can be called again
	}
	fmt.Println("goes on with", peer.Endpoint.GID)
}
