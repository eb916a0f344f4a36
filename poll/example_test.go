package poll_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// Spin for up to 50 microseconds while completions come fast, and sleep between bursts.
func ExampleAdaptive() {
	ctx := context.Background()
	send, q, done := loopback(ctx)
	defer done()

	w, err := poll.NewWaiter(poll.Adaptive{Spin: 50 * time.Microsecond}, q)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	go func() {
		for id := range uint64(3) {
			time.Sleep(time.Millisecond)
			send(id)
		}
	}()
	var wcs [16]uverbs.WC
	for seen := 0; seen < 3; {
		n, err := w.Wait(ctx, wcs[:])
		if err != nil {
			log.Fatal(err)
		}
		for i := range wcs[:n] {
			fmt.Println(wcs[i].ID, wcs[i].Opcode, wcs[i].Status)
		}
		seen += n
	}
	// Output:
	// 0 write success
	// 1 write success
	// 2 write success
}

// Sleep through the night, and spin by day. The statistics say whether that was wise.
func ExampleWaiter_SetStrategy() {
	ctx := context.Background()
	send, q, done := loopback(ctx)
	defer done()

	w, err := poll.NewWaiter(poll.Event{}, q)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	ended := make(chan error)
	go func() {
		var wcs [16]uverbs.WC
		_, err := w.Wait(ctx, wcs[:])
		ended <- err
	}()

	// From any goroutine, also while the waiter sleeps.
	if err := w.SetStrategy(poll.Adaptive{}); err != nil {
		log.Fatal(err)
	}
	send(1)
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	s := w.Stats()
	fmt.Println(s.Completions, "completion; spinning was a waste:", s.Waits > 1000 && s.EmptyShare() > 0.3)
	// Output:
	// 1 completion; spinning was a waste: false
}

// loopback is a queue pair that writes to another one of the same device, in software,
// and its completion queue.
func loopback(ctx context.Context) (send func(id uint64), q *uverbs.CQ, done func()) {
	fabric, err := sim.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		log.Fatal(err)
	}
	pd, err := dev.NewPD()
	if err != nil {
		log.Fatal(err)
	}
	var queues [2]*uverbs.CQ
	var qps [2]*uverbs.QP
	for i := range qps {
		if queues[i], err = dev.NewCQ(64, &uverbs.CQOptions{Events: true}); err != nil {
			log.Fatal(err)
		}
		if qps[i], err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: queues[i]}); err != nil {
			log.Fatal(err)
		}
	}
	for i, qp := range qps {
		if err := qp.Connect(ctx, qps[1-i].Endpoint(), nil); err != nil {
			log.Fatal(err)
		}
	}
	mr, err := pd.Register(make([]byte, 4096), uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		log.Fatal(err)
	}
	return func(id uint64) {
		qps[0].SendQueue().Write(id, mr.Remote().At(2048), mr.Span(0, 64))
		if err := qps[0].SendQueue().Flush(); err != nil {
			log.Fatal(err)
		}
	}, queues[0], func() { dev.Close() }
}
