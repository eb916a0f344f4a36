package sim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// testPeerUnplugged is a test of a program: when the cable of its peer is out, a request
// ends as an error once it was repeated for seconds. Under the false clock of a bubble
// those take no time; and a goroutine that the program leaves behind fails the test.
func testPeerUnplugged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric, err := sim.New(nil) // inside of the bubble, whose clock it takes
		if err != nil {
			t.Fatal(err)
		}
		var qps [2]*uverbs.QP
		var queues [2]*uverbs.CQ
		for i, name := range []string{"sim0", "sim1"} {
			dev, err := fabric.Open(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			pd, err := dev.NewPD()
			if err != nil {
				t.Fatal(err)
			}
			if queues[i], err = dev.NewCQ(64, &uverbs.CQOptions{Events: true}); err != nil {
				t.Fatal(err)
			}
			if qps[i], err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: queues[i], Inline: 16}); err != nil {
				t.Fatal(err)
			}
		}
		for i, qp := range qps {
			opts := &uverbs.ConnectOptions{AckTimeout: 500 * time.Millisecond, Retries: 7}
			if err := qp.Connect(t.Context(), qps[1-i].Endpoint(), opts); err != nil {
				t.Fatal(err)
			}
		}
		w, err := poll.NewWaiter(poll.Event{}, queues[0])
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()

		if err := fabric.Model().Device("sim1").SetPort(1, false); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		qps[0].SendQueue().SendInline(1, []byte("anybody there?"))
		if err := qps[0].SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		var wcs [4]uverbs.WC
		n, err := w.Wait(context.Background(), wcs[:])
		if n != 1 || err != nil || wcs[0].Status != uverbs.StatusRetryExceeded {
			t.Errorf("%d completions, %v: %+v", n, err, wcs[0])
		}
		if took := time.Since(start); took < 4*time.Second {
			t.Errorf("given up after %v", took)
		}
	})
}

// A time-out of seconds in a test that takes none.
func Example_synctest() {
	var t *testing.T // of the test
	testPeerUnplugged(t)
}
