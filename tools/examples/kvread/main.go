// Kvread is a key-value store that its clients read without the server's help:
// one-sided READs, 64 of them in flight.
//
//	kvread -listen :7472
//	kvread -connect host:7472 -n 10000
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	keys, valueSize = 1024, 256
	inFlight        = 64
)

// value fills b with what key stands for, and its number in front.
func value(key uint64, b []byte) {
	for i := range b {
		b[i] = byte(key>>3) + byte(i)
	}
	binary.LittleEndian.PutUint64(b, key)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() {
	listen, connect := flag.String("listen", ":7472", "serve on this `address`"), flag.String("connect", "", "read from the server at this `address`")
	n := flag.Int("n", 1000, "how many values to read")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dev := must(uverbs.Open(must(uverbs.Devices())[0].Name, nil))
	defer dev.Close()
	if *connect != "" {
		fmt.Printf("values read: %d, the slowest in %v\n", *n, read(ctx, dev, must(net.Dial("tcp", *connect)), *n))
	} else {
		serve(ctx, dev, must(net.Listen("tcp", *listen)))
	}
}

func serve(ctx context.Context, dev *uverbs.Device, l net.Listener) {
	pd, table := must(dev.NewPD()), must(uverbs.Alloc(keys*valueSize, nil))
	for key := range uint64(keys) {
		value(key, table.Bytes()[key*valueSize:][:valueSize])
	}
	mr := must(pd.Register(table.Bytes(), uverbs.LocalWrite|uverbs.RemoteRead))
	q := must(dev.NewCQ(1, nil)) // where nothing completes
	context.AfterFunc(ctx, func() { l.Close() })
	for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
		qp := must(pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: 1, RecvDepth: 1, AllowOverrun: true}))
		if _, err := qp.Handshake(ctx, conn, mr.Remote()); err != nil {
			log.Print(err)
		}
		go func() { conn.Read(make([]byte, 1)); qp.Close(); conn.Close() }() // gone when the client is
	}
}

// pending is a READ under way: which key, into which buffer, since when.
type pending struct {
	key   uint64
	slot  int
	since time.Time
}

func read(ctx context.Context, dev *uverbs.Device, conn net.Conn, n int) (slowest time.Duration) {
	defer conn.Close()
	pd, mem := must(dev.NewPD()), must(uverbs.Alloc(inFlight*valueSize, nil))
	mr := must(pd.Register(mem.Bytes(), uverbs.LocalWrite))
	q := must(dev.NewCQ(inFlight+1, &uverbs.CQOptions{Events: true}))
	qp := must(pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: inFlight, RecvDepth: 1}))
	store := must(qp.Handshake(ctx, conn)).Regions[0]
	w := must(poll.NewWaiter(poll.Event{}, q))
	defer w.Close()
	reads, free := cq.NewTable[pending](inFlight), make([]int, inFlight)
	for i := range free {
		free[i] = i
	}
	wcs, want := make([]uverbs.WC, inFlight), make([]byte, valueSize)
	for sent, got := 0, 0; got < n; {
		for ; sent < n && len(free) > 0; sent++ {
			p := pending{key: rand.Uint64N(keys), slot: free[len(free)-1], since: time.Now()}
			free = free[:len(free)-1]
			id, _ := reads.Put(p) // as many places as buffers
			qp.SendQueue().Read(id, mr.Span(p.slot*valueSize, valueSize), store.At(p.key*valueSize))
		}
		must(0, qp.SendQueue().Flush())
		k := must(w.Wait(ctx, wcs))
		for _, c := range wcs[:k] {
			must(0, c.Err())
			p, ok := reads.Take(c.ID)
			value(p.key, want)
			if have := mem.Bytes()[p.slot*valueSize:][:valueSize]; !ok || string(have) != string(want) {
				log.Fatalf("key %d: got %x, want %x", p.key, have, want)
			}
			free, slowest = append(free, p.slot), max(slowest, time.Since(p.since))
			got++
		}
	}
	return slowest
}
