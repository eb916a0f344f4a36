package cq_test

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

func ExampleWC_Err() {
	w := cq.WC{ID: 7, QPN: 17, Status: cq.StatusRNRRetryExceeded}
	err := w.Err()
	fmt.Println(err)
	fmt.Println(errors.Is(err, cq.StatusRNRRetryExceeded))
	// Output:
	// send request 7 on QP 17: RNR retry exceeded (status 13): the peer had no receive posted for too long
	// true
}

// What a program does after a failure depends on how far away its cause is.
func ExampleStatus_Remedy() {
	for _, s := range []cq.Status{cq.StatusRemoteAccess, cq.StatusRetryExceeded, cq.StatusFlushed, cq.Status(77)} {
		fmt.Printf("%v: look at %v; then %v\n", s, s.Fault(), s.Remedy())
	}
	// Output:
	// remote access error: look at this program; then reset and connect the queue pair again
	// transport retry exceeded: look at the path, or nobody is at its end; then find the peer, and connect anew
	// flushed: look at an earlier failure; then reset and connect the queue pair again
	// Status(77): look at this device; then find the peer, and connect anew
}

// Durations, and what share of them was how long at most.
func ExampleHistogram() {
	var h cq.Histogram
	for us := range 1000 {
		h.Record(uint64(us) * 1000) // nanoseconds
	}
	p99 := h.Quantile(0.99)
	fmt.Println(h.Count(), p99 >= 989_000, p99 < 989_000*33/32, h.Max())
	// Output: 1000 true true 999000
}
