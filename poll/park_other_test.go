//go:build !linux

package poll

import "testing"

func withPipe(testing.TB, *fakeQueue) bool { return false }
