package uverbstest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// testRetryExceeded is a test of a program's time-out: the peer stays silent, so the device
// repeats the request as often as it was told and gives up. That takes half a second,
// exactly, and under the false clock of the bubble no time.
func testRetryExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := uverbstest.Pair(t) // closes all, and looks for leaks
		p.Fault("request times=forever device=sim0: drop")

		start := time.Now()
		p.A.QP.SendQueue().SendInline(7, []byte("anybody there?"))
		p.A.Flush()
		w := p.A.Next() // sleeps until the device gives up

		if w.ID != 7 || w.Status != uverbs.StatusRetryExceeded {
			t.Errorf("%+v", w)
		}
		// Sent once and repeated six times; each waits for 4.096 us times two to the
		// power of 14.
		if took := time.Since(start); took != 7*4096*time.Nanosecond<<14 {
			t.Errorf("given up after %v", took)
		}
	})
}

// A time-out in a test that takes none.
func Example_retryExceeded() {
	var t *testing.T // of the test
	testRetryExceeded(t)
}
