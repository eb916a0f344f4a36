package uverbs

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// What the kernel refuses to destroy stays usable, and can be closed later.
func TestCloseRefused(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	ah, err := p.pd.NewAH(p.a.Endpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	srq, err := p.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.k.Fail(func(c fakekernel.Call) error {
		switch c.Method {
		case fakekernel.Method{Object: abi.UVERBS_OBJECT_AH, Method: abi.UVERBS_METHOD_AH_DESTROY},
			fakekernel.Method{Object: abi.UVERBS_OBJECT_SRQ, Method: abi.UVERBS_METHOD_SRQ_DESTROY}:
			return syscall.EBUSY
		}
		return nil
	})
	says(t, "AH", ah.Close(), ErrInUse)
	says(t, "SRQ", srq.Close(), ErrInUse)
	p.k.Fail(nil)
	if err := ah.usable(p.pd); err != nil {
		t.Error(err)
	}
	srq.RecvQueue().Recv(1, p.mr.Span(0, 8))
	if err := errors.Join(srq.RecvQueue().Flush(), srq.SetLimit(1), ah.Close(), srq.Close()); err != nil {
		t.Error(err)
	}
}

// A life with datagrams and an SRQ, and an error at every call of it.
func TestSRQLifeWithAFailureAtEveryCall(t *testing.T) {
	live := func(r *rig) error {
		if err := r.open(false); err != nil {
			return err
		}
		srq, err := r.pd.NewSRQ(&SRQOptions{Depth: 4, Limit: 2})
		if err != nil {
			return err
		}
		qp, err := r.pd.NewQP(UD, &QPOptions{CQ: r.recvQ, SRQ: srq, SendDepth: 4, Inline: 8})
		if err != nil {
			return err
		}
		ah, err := r.pd.NewAH(qp.Endpoint(), nil)
		if err != nil {
			return err
		}
		group := GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}
		if err := qp.AttachMulticast(group); err != nil {
			return err
		}
		srq.RecvQueue().Recv(1, r.mr.Span(0, 64))
		if err := srq.RecvQueue().Flush(); err != nil {
			return err
		}
		qp.SendQueue().SendToInline(2, Dest{AH: ah, QPN: qp.QPN()}, []byte("hello"))
		if err := qp.SendQueue().Flush(); err != nil {
			return err
		}
		var wcs [4]WC
		for n, end := 0, time.Now().Add(patience); n < 2; {
			k, err := r.recvQ.Poll(wcs[:])
			if err != nil {
				return err
			}
			for _, w := range wcs[:k] {
				if w.Err() != nil {
					return w.Err()
				}
			}
			if n += k; time.Now().After(end) {
				return errors.New("no completions")
			}
		}
		if _, err := srq.Limit(); err != nil {
			return err
		}
		return errors.Join(srq.SetLimit(1), srq.Resize(3), qp.DetachMulticast(group), qp.AttachMulticast(group))
	}
	whole := &rig{k: fakekernel.New(fakekernel.Device{})}
	if err := live(whole); err != nil {
		t.Fatal(err)
	}
	calls := whole.k.Calls()
	whole.close(t)
	whole.clean(t)
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EIO, syscall.EINVAL, syscall.EPROTONOSUPPORT} {
		for n := 1; n <= calls; n++ {
			r := &rig{k: fakekernel.New(fakekernel.Device{})}
			var failed fakekernel.Call
			r.k.Fail(func(c fakekernel.Call) error {
				// What cannot be detached stays until the collector unmaps it;
				// and a device that says EIO has destroyed what it is asked to.
				gone := errno == syscall.EIO && c.Method == fakekernel.Method{Object: abi.UVERBS_OBJECT_SRQ, Method: abi.UVERBS_METHOD_SRQ_DESTROY}
				if c.N != n || c.Op == fakekernel.Detach || gone {
					return nil
				}
				failed = c
				return errno
			})
			err := live(r)
			r.k.Fail(nil)
			r.close(t)
			r.clean(t)
			if t.Failed() {
				t.Fatalf("%v at call %d (%v): the life ended with %v", errno, n, failed, err)
			}
		}
	}
}

// A queue that could not be destroyed takes nothing any more when its device is gone,
// however often it is closed.
func TestSRQOutlivesDevice(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	srq, err := p.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.k.Fail(func(c fakekernel.Call) error {
		if (c.Method == fakekernel.Method{Object: abi.UVERBS_OBJECT_SRQ, Method: abi.UVERBS_METHOD_SRQ_DESTROY}) {
			return syscall.EBUSY
		}
		return nil
	})
	says(t, "device", p.dev.Close(), syscall.EBUSY)
	p.k.Fail(nil)
	if err := srq.Close(); err == nil {
		t.Error("a queue of a closed device was closed")
	}
	srq.RecvQueue().RecvV(1, nil)
	says(t, "flush", srq.RecvQueue().Flush(), os.ErrClosed)
}

// A queue whose memory cannot be replaced is closed all the same.
func TestSRQDetachFails(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	srq, err := p.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.k.FailAt(fakekernel.Detach, 1, syscall.ENOMEM)
	says(t, "Close", srq.Close(), syscall.ENOMEM, "destroy SRQ")
	p.k.Fail(nil)
	says(t, "Close again", srq.Close(), os.ErrClosed)
	srq.half.(*rxeSRQ).mapping.Unmap() // as the garbage collector does
}
