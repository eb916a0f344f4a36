package uverbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// lived is what a whole life came to: what the program has seen, what the kernel
// was asked, and what it held at most.
type lived struct {
	story, calls []string
	objects      map[string]int
}

// liveWith lives the whole life on a new kernel that interrupts the n-th call, the
// interrupted ones not counted, so many times.
func liveWith(t *testing.T, interrupt func(n int) (times int)) (l lived, interrupted int) {
	t.Helper()
	k := fakekernel.New(wholeDevice)
	w := newWhole(k)
	w.peak = func() { l.objects = k.Objects() }
	n, left := 1, interrupt(1)
	k.Fail(func(c fakekernel.Call) error {
		if left > 0 {
			left--
			interrupted++
			return syscall.EINTR
		}
		c.N = 0
		l.calls = append(l.calls, fmt.Sprintf("%v %+v", c, c))
		n++
		left = interrupt(n)
		return nil
	})
	if err := w.live(); err != nil {
		t.Errorf("a life with %d interrupted calls: %v", interrupted, err)
	}
	l.story = w.story
	for _, text := range append(k.Leaks(), k.Violations()...) {
		t.Error(text)
	}
	return l, interrupted
}

// Signals at one call after the other of the whole life, and at all of them, many
// times in a row: the program sees the same, the kernel is asked the same, and holds
// as many objects.
func TestWholeLifeInterrupted(t *testing.T) {
	calm, _ := liveWith(t, func(int) int { return 0 })
	if len(calm.calls) < 100 || len(calm.objects) < 8 {
		t.Fatalf("%d calls, objects %v: too few to be a whole life", len(calm.calls), calm.objects)
	}
	same := func(l lived, what string) {
		t.Helper()
		if !slices.Equal(l.story, calm.story) || !slices.Equal(l.calls, calm.calls) || !maps.Equal(l.objects, calm.objects) {
			t.Errorf("%s: objects %v instead of %v; calls\n%q\ninstead of\n%q\nstory\n%q\ninstead of\n%q", what, l.objects, calm.objects, l.calls, calm.calls, l.story, calm.story)
		}
	}
	for at := 1; at <= len(calm.calls) && !t.Failed(); at++ {
		for _, times := range []int{1, 3} {
			l, n := liveWith(t, func(n int) int {
				if n == at {
					return times
				}
				return 0
			})
			if n != times {
				t.Errorf("call %d was interrupted %d times, not %d", at, n, times)
			}
			same(l, calm.calls[at-1])
		}
	}
	for _, times := range []int{1, 2, 20} {
		l, n := liveWith(t, func(int) int { return times })
		if n != times*(len(calm.calls)+1) && n != times*len(calm.calls) {
			t.Errorf("%d of %d calls were interrupted %d times each", n, len(calm.calls), times)
		}
		same(l, "all calls")
	}
	t.Logf("%d calls", len(calm.calls))
}

// An error at every call of the whole life, one by one: it comes back, or does no
// harm; nothing panics, hangs or leaks.
func TestWholeLifeWithAFailureAtEveryCall(t *testing.T) {
	calm, _ := liveWith(t, func(int) int { return 0 })
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EIO, syscall.EINVAL, syscall.EPROTONOSUPPORT, syscall.EACCES} {
		survived := 0
		for n := 1; n <= len(calm.calls); n++ {
			k := fakekernel.New(wholeDevice)
			w := newWhole(k)
			var failed fakekernel.Call
			k.Fail(func(c fakekernel.Call) error {
				if c.N != n || c.Op == fakekernel.Detach {
					return nil // what cannot be detached stays until the collector unmaps it
				}
				failed = c
				return errno
			})
			err := w.live()
			k.Fail(nil)
			if err == nil {
				survived++
				if failed.Op != fakekernel.AnyOp && len(w.lacks) == 1 && !secondWay(failed, errno) {
					t.Error("it went unnoticed")
				}
			}
			if w.ctx.Err() == context.DeadlineExceeded {
				t.Error("it hung")
			}
			for _, text := range append(k.Leaks(), k.Violations()...) {
				t.Error(text)
			}
			if t.Failed() {
				t.Fatalf("%v at call %d (%v): the life ended with %v", errno, n, failed, err)
			}
		}
		t.Logf("%v: %d of %d failures had a second way", errno, survived, len(calm.calls))
	}
}

// secondWay says what need not come back: what the library asks in another way, and
// a device that is gone while an object of it is destroyed. What a kernel does not
// have, the life does without.
func secondWay(c fakekernel.Call, errno syscall.Errno) bool {
	m, _ := abi.LookupMethod(0, c.Method.Object, c.Method.Method)
	switch {
	case c.Op == fakekernel.Write:
		return errno == syscall.EACCES || errno == syscall.EINVAL
	case c.Command == extended(abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ):
		return errno == syscall.EPROTONOSUPPORT // which is what it says anyway
	case m == nil:
		return false
	case m.Name == "UVERBS_METHOD_QUERY_GID_TABLE", m.Name == "UVERBS_METHOD_QUERY_PORT":
		return true // for a source of the kind of an address
	}
	return errno == syscall.EIO && strings.HasSuffix(m.Name, "_DESTROY")
}
