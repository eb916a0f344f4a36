package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// request sends n requests, as many at a time as there are slots, and checks the
// answers.
func request(ctx context.Context, dev *uverbs.Device, conn net.Conn, n int) {
	s := open(ctx, dev, conn)
	defer s.close()
	defer conn.Close()
	var wcs [slots]uverbs.WC
	for sent, answered := 0, 0; answered < n; {
		for ; sent < n && sent-answered < slots && s.qp.SendQueue().Room() > 0; sent++ {
			s.qp.SendQueue().SendInline(uint64(sent), fmt.Appendf(nil, "request number %d", sent))
		}
		must(0, s.qp.SendQueue().Flush())
		k := must(s.w.Wait(ctx, wcs[:]))
		for _, w := range wcs[:k] {
			must(0, w.Err())
			if w.Side == uverbs.SendSide {
				continue
			}
			b, _ := s.slot(w.ID, int(w.Bytes))
			if want := fmt.Sprintf("REQUEST NUMBER %d", answered); string(b) != want {
				log.Fatalf("answer %q, want %q", strings.Clone(string(b)), want)
			}
			answered++
			s.recv(w.ID)
		}
		must(0, s.qp.RecvQueue().Flush())
	}
	fmt.Println(n, "requests answered")
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
