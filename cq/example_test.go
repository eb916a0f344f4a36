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
