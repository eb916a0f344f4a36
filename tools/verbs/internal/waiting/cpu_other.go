//go:build !linux

package waiting

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

func sleep(time.Duration) error { return errSystem() }
func thread() int               { return 0 }
func urge(int) error            { return errSystem() }
func exactSleep() error         { return errSystem() }
func pin(bool) error            { return errSystem() }

// errSystem says why nothing is measured here.
func errSystem() error {
	return fmt.Errorf("the processor time of a thread is measured on Linux only, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
