//go:build !linux

package poll

import (
	"errors"
	"runtime"
)

func newFDParker([]int, bool) (parker, error) {
	return nil, errors.New("poll: sleeping on completion channels needs Linux; this is " + runtime.GOOS)
}
