package uverbs_test

import (
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// A completion queue for 64 queue pairs, each with 32 sends and 16 receives outstanding at
// most.
func ExampleDevice_CQDepth() {
	fabric, err := sim.New(nil) // on a machine: uverbs.Open
	if err != nil {
		log.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	depth, err := dev.CQDepth(uverbs.CQSizing{QueuePairs: 64, Outstanding: 32 + 16})
	if err != nil {
		log.Fatal(err)
	}
	q, err := dev.NewCQ(depth, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(depth, q.Depth())
	// Output: 4095 4095
}

// When a message came, by the device's clock.
func ExampleDevice_Clock() {
	fabric, err := sim.New(nil) // on a machine: uverbs.Open
	if err != nil {
		log.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	clock, err := dev.Clock()
	if err != nil {
		log.Fatal(err)
	}
	q, err := dev.NewCQ(64, &uverbs.CQOptions{Timestamps: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(q.Depth(), "completions with stamps")

	// Of a completion that Poll brought it would be clock.Time(wc.Timestamp).
	ticks, err := clock.Ticks()
	if err != nil {
		log.Fatal(err)
	}
	now, err := clock.Time(ticks)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the clocks agree:", time.Since(now).Abs() < time.Hour)
	// Output:
	// 127 completions with stamps
	// the clocks agree: true
}

// Completions that come in rows take an eighth of the bytes where the device compresses
// them, and a queue that nobody can overrun spares the device a look.
func ExampleCompress() {
	fabric, err := sim.New(nil) // on a machine: uverbs.Open
	if err != nil {
		log.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	q, err := dev.NewCQ(1023, &uverbs.CQOptions{Compression: uverbs.Compress(), IgnoreOverrun: true})
	if err != nil {
		log.Fatal(err) // it wraps ErrNotSupported, and says what is missing
	}
	fmt.Println(q.Depth())
	// Output: 1023
}
