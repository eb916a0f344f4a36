package sim_test

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// life is all that a program does, on a device with room for one program. It returns
// the first error of what it did, and those of closing.
func life(f *sim.Fabric) (err error, closing []error) {
	mem, err := uverbs.Alloc(8192, nil)
	if err != nil {
		return err, nil
	}
	ends := []func() error{mem.Close}
	defer func() {
		for i := range ends {
			if e := ends[len(ends)-1-i](); e != nil {
				closing = append(closing, e)
			}
		}
	}()
	end := func(c interface{ Close() error }) { ends = append(ends, c.Close) }
	d, err := f.Open("sim0", nil)
	if err != nil {
		return err, nil
	}
	end(d)
	pd, err := d.NewPD()
	if err != nil {
		return err, nil
	}
	end(pd)
	mr, err := pd.Register(mem.Bytes(), allAccess)
	if err != nil {
		return err, nil
	}
	end(mr)
	q, err := d.NewCQ(16, &uverbs.CQOptions{Events: true})
	if err != nil {
		return err, nil
	}
	end(q)
	srq, err := pd.NewSRQ(&uverbs.SRQOptions{Depth: 8, Limit: 2})
	if err != nil {
		return err, nil
	}
	end(srq)
	var qps [3]*uverbs.QP
	for i, o := range []*uverbs.QPOptions{{CQ: q, SendDepth: 2, RecvDepth: 1}, {CQ: q, SendDepth: 2, SRQ: srq}, {CQ: q, SendDepth: 1, RecvDepth: 1}} {
		typ := uverbs.RC
		if i == 2 {
			typ = uverbs.UD
		}
		o.AllowOverrun = true
		if qps[i], err = pd.NewQP(typ, o); err != nil {
			return err, nil
		}
		end(qps[i])
	}
	ah, err := pd.NewAH(qps[2].Endpoint(), nil)
	if err != nil {
		return err, nil
	}
	end(ah)
	if err := q.ResizeOwned(100); err != nil {
		return err, nil
	}
	for i := range 2 {
		if err := qps[i].Connect(context.Background(), qps[1-i].Endpoint(), nil); err != nil {
			return err, nil
		}
	}
	srq.RecvQueue().Recv(1, mr.Span(0, 64))
	if err := srq.RecvQueue().Flush(); err != nil {
		return err, nil
	}
	qps[0].SendQueue().Send(2, mr.Span(64, 64))
	if err := qps[0].SendQueue().Flush(); err != nil {
		return err, nil
	}
	w, err := poll.NewWaiter(poll.Event{}, q)
	if err != nil {
		return err, nil
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wcs [4]uverbs.WC
	for left := 2; left > 0; {
		n, err := w.Wait(ctx, wcs[:])
		if err != nil {
			return err, nil
		}
		for _, c := range wcs[:n] {
			if err := c.Err(); err != nil {
				return err, nil
			}
		}
		left -= n
	}
	return qps[0].Drain(ctx, func(uverbs.WC) {}), nil
}

// Each call of a program is refused once. The error comes out, of what was done or of
// closing; nothing hangs, and the next program finds all the room that there is.
func TestRefuseEveryCall(t *testing.T) {
	room := model.DeviceConfig{MaxPD: 1, MaxMR: 1, MaxCQ: 1, MaxSRQ: 1, MaxQP: 3}
	for errno, want := range map[request.Errno]error{request.ENOMEM: syscall.ENOMEM, 110: syscall.ETIMEDOUT} {
		t.Run(want.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{room}})
				if err, closing := life(f); err != nil || closing != nil {
					t.Fatalf("with nothing refused: %v, %v", err, closing)
				}
				calls := countCalls(t, f)
				unseen := 0
				for n := 1; n <= calls; n++ {
					if err := f.Model().Inject(model.Fault{At: model.AtIoctl, Nth: n, Do: model.Refuse{Errno: errno}}); err != nil {
						t.Fatal(err)
					}
					err, closing := life(f)
					f.Model().ClearFaults()
					noObjects(t, f)
					if n%8 == 0 {
						runtime.GC() // what it forgot
					}
					switch all := errors.Join(append(closing, err)...); {
					case all == nil:
						unseen++
					case !errors.Is(all, want):
						t.Errorf("call %d of %d: %v, %v", n, calls, err, closing)
					}
				}
				// The library does without some: a page of registers, of three, and
				// what it asks to say better what is wrong with an address.
				if calls < 40 || unseen > 5 {
					t.Errorf("%d calls, of which %d were refused and nobody said so", calls, unseen)
				}
				if err, closing := life(f); err != nil || closing != nil {
					t.Errorf("in the end: %v, %v", err, closing)
				}
			})
		})
	}
}

// countCalls counts the calls of a life by their time, when each takes a second.
func countCalls(t *testing.T, f *sim.Fabric) int {
	t.Helper()
	if err := f.Model().Inject(model.Fault{At: model.AtIoctl, Times: model.Forever, Do: model.Slow{For: time.Second}}); err != nil {
		t.Fatal(err)
	}
	defer f.Model().ClearFaults()
	start := time.Now()
	if err, closing := life(f); err != nil || closing != nil {
		t.Fatalf("a life in slow motion: %v, %v", err, closing)
	}
	return int(time.Since(start) / time.Second)
}

// What needs a privilege is refused to who has none.
func TestPrivileged(t *testing.T) {
	for _, privileged := range []bool{false, true} {
		f := newFabric(t, &sim.Options{Privileged: privileged})
		d := open(t, f, "sim0")
		pd := must(d.NewPD())
		_, err := pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: must(d.NewCQ(64, nil)), QKey: 0x80000001})
		if privileged && err != nil || !privileged && !errors.Is(err, syscall.EPERM) {
			t.Errorf("privileged %v: %v", privileged, err)
		}
	}
}
