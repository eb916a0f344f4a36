// Reqresp is a request/response server in event mode that an interrupt ends in
// good order, and, in request.go, its client.
//
//	reqresp -listen :7471 # and reqresp -connect host:7471 -n 1000
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

const slots, slotSize = 32, 4096 // messages under way on a connection, and their bytes

// session is one connection: slots buffers to receive into, and to answer from.
type session struct {
	dev *uverbs.Device // its own
	mem *uverbs.Memory
	mr  *uverbs.MR
	qp  *uverbs.QP
	w   *poll.Waiter // on the one CQ
}

func (s *session) slot(id uint64, n int) ([]byte, uverbs.Span) {
	at := int(id) * slotSize
	return s.mem.Bytes()[at : at+n], s.mr.Span(at, n)
}

func (s *session) recv(id uint64) {
	_, span := s.slot(id, slotSize)
	s.qp.RecvQueue().Recv(id, span)
}

func (s *session) close() { s.w.Close(); s.dev.Close(); s.mem.Close() }

func open(ctx context.Context, dev *uverbs.Device, conn net.Conn) *session {
	s := &session{dev: dev, mem: must(uverbs.Alloc(slots*slotSize, nil))}
	pd := must(dev.NewPD())
	s.mr = must(pd.Register(s.mem.Bytes(), uverbs.LocalWrite))
	q := must(dev.NewCQ(2*slots, &uverbs.CQOptions{Events: true}))
	s.qp = must(pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: slots, RecvDepth: slots, Inline: 64}))
	s.w = must(poll.NewWaiter(poll.Event{}, q))
	for id := range uint64(slots) {
		s.recv(id)
	}
	must(0, s.qp.RecvQueue().Flush()) // before the client can send
	must(s.qp.Handshake(ctx, conn))
	return s
}

// serve answers requests in upper case until ctx ends: each is answered from the
// buffer that it came in, which takes the next one when the answer is out.
func (s *session) serve(ctx context.Context) (served int) {
	var wcs [slots]uverbs.WC
	for {
		n, err := s.w.Wait(ctx, wcs[:])
		if err != nil && ctx.Err() != nil { // it has taken no completion
			end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			must(0, s.qp.Drain(end, func(uverbs.WC) {}))
			return served
		}
		must(n, err)
		for _, w := range wcs[:n] {
			must(0, w.Err())
			if w.Side == uverbs.SendSide {
				s.recv(w.ID)
				continue
			}
			b, span := s.slot(w.ID, int(w.Bytes))
			copy(b, bytes.ToUpper(b))
			s.qp.SendQueue().Send(w.ID, span)
			served++
		}
		must(0, s.qp.RecvQueue().Flush())
		must(0, s.qp.SendQueue().Flush())
	}
}

// serveAll serves every client, each in a goroutine, until ctx ends.
func serveAll(ctx context.Context, device func() *uverbs.Device, l net.Listener) {
	context.AfterFunc(ctx, func() { l.Close() })
	var wg sync.WaitGroup
	defer wg.Wait()
	for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
		wg.Go(func() {
			defer conn.Close()
			s := open(ctx, device(), conn)
			defer s.close()
			own, hangUp := context.WithCancel(ctx)
			go func() { conn.Read(make([]byte, 1)); hangUp() }() // the client is gone
			fmt.Println(conn.RemoteAddr(), "sent", s.serve(own), "requests")
		})
	}
}

func main() {
	listen, connect := flag.String("listen", ":7471", "serve on this `address`"), flag.String("connect", "", "send requests to this `address`")
	n := flag.Int("n", 100, "how many requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	name := must(uverbs.Devices())[0].Name // before anybody connects
	device := func() *uverbs.Device { return must(uverbs.Open(name, nil)) }
	if *connect != "" {
		request(ctx, device(), must(net.Dial("tcp", *connect)), *n)
	} else {
		serveAll(ctx, device, must(net.Listen("tcp", *listen)))
	}
}
