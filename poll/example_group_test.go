package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// A queue for each completion vector, served by two goroutines, and queue pairs that
// spread over the queues. On a machine with more than one NUMA node the goroutines stay
// on that of the device.
func ExampleGroup() {
	fabric, err := sim.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.NewPD()
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	g, err := poll.NewGroup(func(q poll.Queue, wcs []uverbs.WC) {
		for i := range wcs {
			fmt.Println(wcs[i].ID, wcs[i].Opcode, wcs[i].Status)
		}
		cancel() // this program is done
	}, &poll.GroupOptions{Pollers: 2})
	if err != nil {
		log.Fatal(err)
	}
	for vector := range dev.CompletionVectors() {
		q, err := dev.NewCQ(64, &uverbs.CQOptions{Events: true, Vector: vector})
		if err != nil {
			log.Fatal(err)
		}
		if err := g.Add(q); err != nil {
			log.Fatal(err)
		}
	}

	// Each queue pair goes to the queue with fewest.
	var qps [2]*uverbs.QP
	for i := range qps {
		q, back, err := g.Pick()
		if err != nil {
			log.Fatal(err)
		}
		defer back()
		if qps[i], err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q.(*uverbs.CQ)}); err != nil {
			log.Fatal(err)
		}
	}
	for i, qp := range qps {
		if err := qp.Connect(ctx, qps[1-i].Endpoint(), nil); err != nil {
			log.Fatal(err)
		}
	}

	buf := make([]byte, 4096)
	mr, err := pd.Register(buf, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		log.Fatal(err)
	}
	qps[0].SendQueue().Write(7, mr.Remote().At(2048), mr.Span(0, 2048))
	if err := qps[0].SendQueue().Flush(); err != nil {
		log.Fatal(err)
	}
	if err := g.Run(ctx); !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	// Output:
	// 7 write success
}

// Where the interrupts of a device run, and where to poll for them.
func ExampleReadVectors() {
	v, err := poll.ReadVectors("mlx5_0")
	if err != nil {
		fmt.Println("there is no mlx5_0 here")
		return
	}
	if v.Unknown != nil {
		fmt.Println(v.Unknown)
	}
	for _, w := range v.Vectors {
		cpu, ok := v.CPU(w.Index, nil)
		fmt.Println(w.Index, w.IRQ, w.Name, "runs on", w.Effective, "poll on", cpu, ok)
	}
}

// A group whose pollers stay on the processors next to the device, and moderate the events
// of busy queues.
func ExampleNearDevice() {
	g, err := poll.NewGroup(func(q poll.Queue, wcs []uverbs.WC) {}, &poll.GroupOptions{
		Pollers:    2,
		Strategy:   poll.Adaptive{},
		CPUs:       poll.NearDevice("mlx5_0"), // none where the system does not say: nothing is bound
		Moderation: &poll.Moderation{},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	fmt.Println(g.Pollers(), "pollers")
	// Output: 2 pollers
}
