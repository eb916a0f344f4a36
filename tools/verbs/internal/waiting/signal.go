package waiting

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"
)

// signalPause is the time between two signals: long against what one takes.
const signalPause = 50 * time.Microsecond

// signalCost is how long a SIGURG keeps a thread from an empty loop, other than by what the runtime
// does when it wants the goroutine to stop. It may be less than 0, where other programs
// disturb the loop more than the signals do.
func signalCost(length time.Duration) (time.Duration, error) {
	quiet, err := spin{}.run(length)
	if err != nil {
		return 0, err
	}
	target := thread() // this goroutine owns its thread
	var over atomic.Bool
	sent := make(chan int)
	var failed error
	go func() {
		n := 0
		// On another processor, or it would keep the loop from this one. The thread ends with the
		// goroutine.
		runtime.LockOSThread()
		failed = pin(false)
		for !over.Load() && failed == nil {
			if failed = errors.Join(urge(target), sleep(signalPause)); failed == nil {
				n++
			}
		}
		sent <- n
	}()
	begin := time.Now()
	stormy, err := spin{}.run(length)
	took := time.Since(begin)
	over.Store(true)
	n := <-sent
	if err = errors.Join(err, failed); err != nil || n == 0 {
		return 0, err
	}
	return time.Duration((1 - stormy/quiet) * float64(took) / float64(n)), nil
}
