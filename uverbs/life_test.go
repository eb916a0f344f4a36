package uverbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// live is the whole life of a ping-pong: it opens, connects, waits for events,
// plays both sides and returns the first error.
func (r *rig) live() error {
	if err := r.open(true); err != nil {
		return err
	}
	w, err := poll.NewWaiter(poll.Event{}, r.sendQ, r.recvQ)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	buf := r.mem.Bytes()
	for i := range byte(3) {
		for side, qp := range []*QP{r.a, r.b} {
			to := []*QP{r.b, r.a}[side]
			copy(buf, bytes.Repeat([]byte{i + 1}, 100))
			to.RecvQueue().Recv(1, r.mr.Span(4096, 100))
			if err := to.RecvQueue().Flush(); err != nil {
				return err
			}
			qp.SendQueue().Send(2, r.mr.Span(0, 100))
			if err := qp.SendQueue().Flush(); err != nil {
				return err
			}
			var wcs [4]WC
			for n := 0; n < 2; {
				k, err := w.Wait(ctx, wcs[:])
				if err != nil {
					return err
				}
				for _, wc := range wcs[:k] {
					if err := wc.Err(); err != nil {
						return err
					}
				}
				n += k
			}
			if !bytes.Equal(buf[4096:4196], buf[:100]) {
				return fmt.Errorf("the data did not arrive")
			}
		}
	}
	return nil
}

func TestLife(t *testing.T) {
	r := &rig{k: fakekernel.New(fakekernel.Device{})}
	if err := r.live(); err != nil {
		t.Error(err)
	}
	r.close(t)
	r.clean(t)
}

// An error at every call of a life, one by one: it comes back as an error, or
// does no harm; nothing panics, hangs or leaks.
func TestLifeWithAFailureAtEveryCall(t *testing.T) {
	whole := &rig{k: fakekernel.New(fakekernel.Device{})}
	if err := whole.live(); err != nil {
		t.Fatal(err)
	}
	calls := whole.k.Calls()
	whole.close(t)
	if calls < 40 {
		t.Fatalf("a life of %d calls is too short to be one", calls)
	}
	before := runtime.NumGoroutine()
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EIO, syscall.EINVAL, syscall.EPROTONOSUPPORT, syscall.EACCES} {
		survived := 0
		for n := 1; n <= calls; n++ {
			r := &rig{k: fakekernel.New(fakekernel.Device{})}
			var failed fakekernel.Call
			r.k.Fail(func(c fakekernel.Call) error {
				if c.N != n {
					return nil
				}
				failed = c
				return errno
			})
			err := r.live()
			if err == nil {
				survived++
				// The doorbell has a second way, and a table that is said
				// to be too small is asked for again with more room.
				doorbell := failed.Op == fakekernel.Write && (errno == syscall.EACCES || errno == syscall.EINVAL)
				table := errno == syscall.EINVAL && failed.Method == fakekernel.Method{Object: abi.UVERBS_OBJECT_DEVICE, Method: abi.UVERBS_METHOD_QUERY_GID_TABLE}
				if !doorbell && !table {
					t.Errorf("%v at call %d (%v) went unnoticed", errno, n, failed)
				}
			}
			r.k.Fail(nil)
			r.close(t)
			r.clean(t)
			if t.Failed() {
				t.Fatalf("%v at call %d (%v): the life ended with %v", errno, n, failed, err)
			}
		}
		t.Logf("%v: %d of %d failures had a second way", errno, survived, calls)
	}
	settles(t, before, "afterwards")
}

// Signals at every call change nothing.
func TestLifeInterrupted(t *testing.T) {
	r := &rig{k: fakekernel.New(fakekernel.Device{})}
	r.k.Interrupt(3)
	if err := r.live(); err != nil {
		t.Error(err)
	}
	r.close(t)
	r.clean(t)
}

// The doorbell has two ways, and the refused one is not tried again.
func TestDoorbellWays(t *testing.T) {
	for name, test := range map[string]struct {
		noWrite syscall.Errno
		env     string
		writes  int // at least, of 6 doorbells
	}{
		"write":        {0, "", 6},
		"refused":      {syscall.EACCES, "", 1},
		"no such call": {syscall.ENOSYS, "", 1},
		"invalid":      {syscall.EINVAL, "", 1},
		"forbidden":    {0, "1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOVERBS_NOWRITE", test.env)
			d := fakekernel.Device{}
			if test.noWrite != 0 {
				d.NoWrite = test.noWrite
			}
			r := &rig{k: fakekernel.New(d)}
			writes := 0
			r.k.Fail(func(c fakekernel.Call) error {
				if c.Op == fakekernel.Write {
					writes++
				}
				return nil
			})
			if err := r.live(); err != nil {
				t.Error(err)
			}
			if writes != test.writes {
				t.Errorf("%d doorbells by write(), want %d", writes, test.writes)
			}
			r.close(t)
			r.clean(t)
		})
	}
}

// settles waits until there are so many goroutines at most: one that has done its work is
// still counted until it is run again to end, and the runtime's own are while they run
// finalizers.
func settles(t *testing.T, most int, what string) {
	t.Helper()
	for end := time.Now().Add(patience); runtime.NumGoroutine() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: %d goroutines, want %d", what, runtime.NumGoroutine(), most)
		}
	}
}

// An open device has two goroutines, for its events and to see it go, and a closed one has
// none left.
func TestGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	r := &rig{k: fakekernel.New(fakekernel.Device{})}
	if err := r.open(false); err != nil {
		t.Fatal(err)
	}
	settles(t, before+2, "open")
	r.close(t)
	settles(t, before, "closed")
	if _, ok := <-r.dev.Events(); ok {
		t.Error("the channel of events is still open")
	}
	if err := r.dev.Close(); err == nil || !isClosed(err) {
		t.Errorf("second Close: %v", err)
	}
}

func isClosed(err error) bool { return err != nil && errors.Is(err, os.ErrClosed) }
