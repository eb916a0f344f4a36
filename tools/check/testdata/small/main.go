// A program that does the main things, and imports uverbs and poll only beside what
// it cannot do without.
package main

import (
	"context"
	"os"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

func must[T any](v T, err error) T {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	return v
}

func main() {
	ctx := context.Background()
	dev := must(uverbs.Open(os.Args[1], nil))
	defer dev.Close()
	pd := must(dev.NewPD())
	mem := must(uverbs.Alloc(8192, nil))
	mr := must(pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite))
	q := must(dev.NewCQ(64, &uverbs.CQOptions{Events: true}))
	qp := must(pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q}))
	peer := must(qp.Handshake(ctx, nil, mr.Remote()))
	qp.RecvQueue().Recv(1, mr.Span(0, 4096))
	must(0, qp.RecvQueue().Flush())
	qp.SendQueue().Write(2, peer.Regions[0].At(0), mr.Span(4096, 4096))
	qp.SendQueue().SendInline(3, []byte("done"))
	must(0, qp.SendQueue().Flush())
	w := must(poll.NewWaiter(poll.Event{}, q))
	var wcs [8]uverbs.WC
	must(w.Wait(ctx, wcs[:]))
	must(0, wcs[0].Err())
	must(0, qp.Shutdown(ctx))
}
