//go:build !linux

package poll

import (
	"errors"
	"runtime"
)

var errNoAffinity = errors.New("binding to processors needs Linux; this is " + runtime.GOOS)

func allowedCPUs() ([]int, error) { return nil, errNoAffinity }

func bindThread([]int) error { return errNoAffinity }

func onMainThread() bool { return false }
