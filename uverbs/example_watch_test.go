package uverbs_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// A completion queue that counts, and becomes deeper for queue pairs that do not fit.
func ExampleGrowTo() {
	fabric, err := sim.New(nil) // on a machine: uverbs.Open
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
	q, err := dev.NewCQ(60, &uverbs.CQOptions{Stats: &uverbs.StatsOptions{Name: "requests"}, Grow: uverbs.GrowTo(4000)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(q.Depth(), "deep")
	opts := &uverbs.QPOptions{CQ: q, SendDepth: 128, RecvDepth: 128}
	_, err = pd.NewQP(uverbs.RC, opts)
	fmt.Println("does not fit:", errors.Is(err, uverbs.ErrCQFull))
	var wcs [16]uverbs.WC
	if _, err := q.Poll(wcs[:]); err != nil { // the queue pair has asked for more room
		log.Fatal(err)
	}
	if _, err := pd.NewQP(uverbs.RC, opts); err != nil {
		log.Fatal(err)
	}
	s := q.Stats()
	fmt.Println(q.Depth(), "deep,", q.Usage().Committed, "promised, grown", s.Grown, "times, overruns:", s.Overruns)
	// Output:
	// 63 deep
	// does not fit: true
	// 511 deep, 256 promised, grown 1 times, overruns: 0
}

// What a monitoring system reads of a queue: see cq.WriteOpenMetrics for many.
func ExampleCQ_WriteOpenMetrics() {
	var q *uverbs.CQ // made with CQOptions.Stats
	if err := q.WriteOpenMetrics(os.Stdout); err != nil {
		log.Print(err)
	}
}

// A service that outlives its device: everything of it has ended when the events do, and
// Close is all that is left to do.
func Example_deviceGone() {
	fabric, err := sim.New(nil) // on a machine: uverbs.Open
	if err != nil {
		log.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		log.Fatal(err)
	}
	q, err := dev.NewCQ(64, nil)
	if err != nil {
		log.Fatal(err)
	}
	fabric.Model().Device("sim0").Fail() // on a machine it breaks, or is pulled out
	for e := range dev.Events() {
		if e.Type == uverbs.EventDeviceGone {
			fmt.Println("open it, or another one, again")
		}
	}
	var wcs [16]uverbs.WC
	for err == nil { // what is outstanding ends before
		_, err = q.Poll(wcs[:])
	}
	fmt.Println(errors.Is(err, uverbs.ErrDeviceGone), dev.Close())
	// Output:
	// open it, or another one, again
	// true <nil>
}
