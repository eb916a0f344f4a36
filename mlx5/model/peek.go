package model

import (
	"os"

	"github.com/goverbs/goverbs/abi/request"
)

// Peek copies the n-th record that waits, counted from 0, and leaves it there, so it
// does not count as read. It is for who hands records on and learns later whether the program
// has taken them. It fails as Read does, where there is no n-th with EAGAIN, or EIO
// when the device is gone.
func (e *EventQueue) Peek(n int, p []byte) (int, error) {
	e.f.m.enter()
	defer e.f.m.leave()
	switch {
	case e.closed:
		return 0, os.ErrClosed
	case n < 0:
		return 0, request.EINVAL
	case n >= len(e.records) && e.broken:
		return 0, request.EIO
	case n >= len(e.records):
		return 0, request.EAGAIN
	}
	r := &e.records[n]
	if len(p) < r.size {
		return 0, request.EINVAL
	}
	return copy(p, r.bytes[:r.size]), nil
}
