//go:build !linux

package waiting

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// stamp is a moment and the processor time that was used until then.
type stamp struct {
	at  time.Time
	cpu time.Duration
}

func processStamp() (stamp, error) { return stamp{}, errSystem() }
func threadStamp() (stamp, error)  { return stamp{}, errSystem() }
func sleep(time.Duration) error    { return errSystem() }
func thread() int                  { return 0 }
func urge(int) error               { return errSystem() }
func exactSleep() error            { return errSystem() }
func pin(bool) error               { return errSystem() }

// errSystem says why nothing is measured here.
func errSystem() error {
	return fmt.Errorf("the processor time of a thread is measured on Linux only, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
