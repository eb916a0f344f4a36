package uverbs_test

import (
	"log"

	"github.com/goverbs/goverbs/uverbs"
)

// A UD queue pair answers whoever sends to it: the way back is in the completion
// and in the 40 bytes before the message.
func ExamplePD_NewAHFor() {
	var pd *uverbs.PD // as in the package's example
	var q *uverbs.CQ
	var mr *uverbs.MR
	var memory []byte // of mr

	qp, err := pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: q, Inline: 64})
	if err != nil {
		log.Fatal(err)
	}
	qp.RecvQueue().Recv(1, mr.Span(0, uverbs.GRHLen+qp.MaxDatagram()))
	if err := qp.RecvQueue().Flush(); err != nil {
		log.Fatal(err)
	}
	var wcs [8]uverbs.WC
	n, err := q.Poll(wcs[:])
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range wcs[:n] {
		if w.Side != uverbs.RecvSide || w.Err() != nil {
			continue
		}
		back, err := pd.NewAHFor(w, memory) // keep it for the next answer to the same peer
		if err != nil {
			log.Fatal(err)
		}
		message := memory[uverbs.GRHLen:w.Bytes]
		qp.SendQueue().SendToInline(2, uverbs.Dest{AH: back, QPN: w.SrcQPN}, message)
	}
	if err := qp.SendQueue().Flush(); err != nil {
		log.Fatal(err)
	}
}

// Receives for all peers stand in one queue.
func ExamplePD_NewSRQ() {
	var pd *uverbs.PD
	var q *uverbs.CQ
	var mr *uverbs.MR

	srq, err := pd.NewSRQ(&uverbs.SRQOptions{Depth: 256, Limit: 32})
	if err != nil {
		log.Fatal(err)
	}
	rq := srq.RecvQueue()
	for id := range uint64(rq.Room()) {
		rq.Recv(id, mr.Span(int(id)*4096, 4096))
	}
	if err := rq.Flush(); err != nil {
		log.Fatal(err)
	}
	for range 100 { // peers
		if _, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SRQ: srq}); err != nil {
			log.Fatal(err)
		}
	}
	// An EventSRQLimitReached on Device.Events says when fewer than 32 are
	// left. WC.ID is the receive, WC.QPN the peer's queue pair here.
}
