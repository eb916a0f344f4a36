//go:build !linux

package poll

import "testing"

func withPipe(testing.TB, *fakeQueue) bool { return false }

func storm(testing.TB) (stop func()) { return func() {} }
