package uverbs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// patience is how long something may take that takes microseconds: the machine may be busy,
// or stand still.
const patience = 2 * time.Minute

// modelPair is a connected pair of queue pairs of a ConnectX in software. What a
// program did that a correct one does not do fails the test.
func modelPair(t testing.TB, config model.DeviceConfig) (*sim.Fabric, *pair) {
	t.Helper()
	f, d := wired(t, config)
	return f, newPairOn(t, d, false)
}

func inject(t testing.TB, f *sim.Fabric, script string) {
	t.Helper()
	if err := f.Model().Script(script); err != nil {
		t.Fatal(err)
	}
}

// collect polls until told to stop, and remembers.
type collect struct {
	q    *uverbs.CQ
	stop chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex
	got  []uverbs.WC
}

func newCollect(t testing.TB, q *uverbs.CQ) *collect {
	c := &collect{q: q, stop: make(chan struct{})}
	c.done.Go(func() {
		var wcs [16]uverbs.WC
		for {
			n, err := c.q.Poll(wcs[:])
			if err != nil {
				t.Error(err)
				return
			}
			c.mu.Lock()
			c.got = append(c.got, wcs[:n]...)
			c.mu.Unlock()
			if n > 0 {
				continue
			}
			select {
			case <-c.stop:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	return c
}

func (c *collect) end() []uverbs.WC {
	close(c.stop)
	c.done.Wait()
	return c.got
}

// A ConnectX says by completions alone how far a queue has got. Shutdown waits all the
// same for quiet sends at the end of one, and nobody hears of what it posts for that.
func TestModelShutdownWaitsForQuietSends(t *testing.T) {
	for _, quiet := range []int{1, 2, 3, 15, 16, 17, 31, 32} {
		t.Run(fmt.Sprint(quiet), func(t *testing.T) {
			f, p := modelPair(t, model.DeviceConfig{})
			inject(t, f, "request op=write: delay 50ms")
			buf := p.mem.Bytes()
			for i := range quiet {
				buf[i] = byte(i + 1)
				p.a.SendQueue().Write(uint64(i), p.peer.Regions[0].At(uint64(4096+i)), p.mr.Span(i, 1), uverbs.Unsignaled)
			}
			if err := p.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			// The poster came no further with this.
			if quiet < 32 {
				p.a.SendQueue().Write(99, p.peer.Regions[0].At(8192), p.mr.Span(0, 1))
			}
			c := newCollect(t, p.q)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := p.a.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			if got := c.end(); len(got) != 0 {
				t.Errorf("completions of quiet requests that succeeded: %+v", got)
			}
			for i := range quiet {
				if buf[4096+i] != byte(i+1) {
					t.Fatalf("write %d of %d was not carried out", i, quiet)
				}
			}
			if err := p.a.SendQueue().Flush(); !errors.Is(err, uverbs.ErrState) && quiet < 32 || buf[8192] != 0 {
				t.Errorf("flush of what was staged before: %v; %d was written", err, buf[8192])
			}
		})
	}
}

// The ends of quiet sends that fail are heard of, and of nothing else.
func TestModelShutdownHearsOfFailures(t *testing.T) {
	f, p := modelPair(t, model.DeviceConfig{})
	inject(t, f, "request 2 op=write: fail syndrome=0x13 vendor=0x88")
	for i := range 4 {
		p.a.SendQueue().Write(uint64(i), p.peer.Regions[0].At(4096), p.mr.Span(0, 1), uverbs.Unsignaled)
	}
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	c := newCollect(t, p.q)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.a.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	got := c.end()
	if len(got) != 3 {
		t.Fatalf("%d ends, want 3: %+v", len(got), got)
	}
	for i, w := range got {
		want := uverbs.StatusFlushed
		if i == 0 {
			want = uverbs.StatusRemoteAccess
		}
		if w.ID != uint64(i+1) || w.Status != want || w.Side != uverbs.SendSide {
			t.Errorf("end %d: %+v, want %v", i, w, want)
		}
	}
}

// A queue pair is used again after a reset: the device counts from 0, whatever was
// posted, staged or taken back before.
func TestModelRestart(t *testing.T) {
	_, p := modelPair(t, model.DeviceConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	drop := func(uverbs.WC) {}
	for round := range 20 {
		for i := range 5 + round {
			p.b.RecvQueue().Recv(uint64(i), p.mr.Span(4096, 64))
			if err := p.b.RecvQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			p.a.SendQueue().SendInline(uint64(i), []byte("once more, and longer than one block of the ring"))
			if err := p.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			for _, w := range p.wait(t, 2) {
				if w.Err() != nil || w.ID != uint64(i) {
					t.Fatalf("round %d: %+v", round, w)
				}
			}
		}
		// Some are left, on both sides, and some are staged.
		p.b.RecvQueue().Recv(100, p.mr.Span(4096, 64))
		p.b.RecvQueue().Recv(101, p.mr.Span(4096, 64))
		if err := p.b.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		p.b.RecvQueue().Recv(102, p.mr.Span(4096, 64))
		p.a.SendQueue().SendInline(103, []byte("staged"))
		for _, qp := range []*uverbs.QP{p.a, p.b} {
			if err := qp.Drain(ctx, drop); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		for _, q := range []interface{ Flush() error }{p.a.SendQueue(), p.b.RecvQueue()} {
			if err := q.Flush(); !errors.Is(err, uverbs.ErrState) {
				t.Fatalf("round %d: flush after the end: %v", round, err)
			}
		}
		for _, qp := range []*uverbs.QP{p.a, p.b} {
			if err := qp.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		p.connect(t)
	}
	if s := p.q.Stats(); s != (uverbs.CQStats{}) {
		t.Errorf("dropped %+v", s)
	}
}

// More queue pairs than registers: some have one of their own, the others share, and
// all work; registers and doorbell records come back when nobody can ring any more.
func TestModelRegisters(t *testing.T) {
	for _, config := range []model.DeviceConfig{{}, {NoBlueFlame: true}, {StaticUARs: true}, {StaticUARs: true, NoBlueFlame: true}} {
		t.Run(fmt.Sprintf("static %v, no write-combining %v", config.StaticUARs, config.NoBlueFlame), func(t *testing.T) {
			_, p := modelPair(t, config)
			for round := range 3 {
				var pairs []*pair
				for range 20 {
					c := *p
					opts := &uverbs.QPOptions{CQ: p.q, SendDepth: 1, RecvDepth: 1, Inline: 64}
					var err error
					if c.a, err = p.pd.NewQP(uverbs.RC, opts); err != nil {
						t.Fatal(err)
					}
					if c.b, err = p.pd.NewQP(uverbs.RC, opts); err != nil {
						t.Fatal(err)
					}
					c.connect(t)
					pairs = append(pairs, &c)
				}
				for i, c := range pairs {
					c.b.RecvQueue().Recv(uint64(i), c.mr.Span(4096, 64))
					if err := c.b.RecvQueue().Flush(); err != nil {
						t.Fatal(err)
					}
					c.a.SendQueue().SendInline(uint64(i), []byte("one"))
					if err := c.a.SendQueue().Flush(); err != nil {
						t.Fatal(err)
					}
					for _, w := range c.wait(t, 2) {
						if w.Err() != nil || w.ID != uint64(i) {
							t.Fatalf("round %d: %+v", round, w)
						}
					}
				}
				for _, c := range pairs {
					if err := errors.Join(c.a.Close(), c.b.Close()); err != nil {
						t.Fatal(err)
					}
				}
				pairs = nil
				runtime.GC()
			}
		})
	}
}

// The kernel refuses every call of a life once. Nothing that was made is left, and the
// next life is undisturbed.
func TestModelEveryCallRefused(t *testing.T) {
	const more = 60 // than a life has
	failed := 0
	for nth := 1; nth <= more; nth++ {
		f, err := sim.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		inject(t, f, fmt.Sprintf("ioctl %d: refuse ENOMEM", nth))
		refused := modelLife(t, f)
		f.Model().ClearFaults()
		if err := modelLife(t, f); err != nil {
			t.Fatalf("after call %d was refused: %v", nth, err)
		}
		for _, v := range f.Model().Violations() {
			t.Errorf("call %d refused: %s", nth, v)
		}
		var e *uverbs.Error
		switch {
		case refused == nil: // it has a second way, or there is no such call
		case errors.As(refused, &e) && errors.Is(refused, syscall.ENOMEM):
			failed++
		default:
			t.Errorf("call %d: %v", nth, refused)
		}
	}
	if failed < 30 || failed > more-10 {
		t.Errorf("%d calls of a life failed it, of %d", failed, more)
	}
}

// modelLife opens a device, makes one object of every kind, lets them work, and closes
// all. What cannot be closed is reported, whatever came before.
func modelLife(t *testing.T, f *sim.Fabric) (err error) {
	d, err := f.Open("sim0", nil)
	if err != nil {
		return err
	}
	closing := true
	defer func() {
		if e := d.Close(); e != nil && closing {
			err = errors.Join(err, e)
		}
	}()
	pd, err := d.NewPD()
	if err != nil {
		return err
	}
	mem, err := uverbs.Alloc(4096, nil)
	if err != nil {
		return err
	}
	defer func() {
		d.Close() // the region with it
		closing = false
		if e := mem.Close(); e != nil {
			t.Error(e)
		}
	}()
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite)
	if err != nil {
		return err
	}
	q, err := d.NewCQ(64, &uverbs.CQOptions{Events: true})
	if err != nil {
		return err
	}
	srq, err := pd.NewSRQ(&uverbs.SRQOptions{Depth: 4})
	if err != nil {
		return err
	}
	qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SRQ: srq})
	if err != nil {
		return err
	}
	if err := qp.Connect(t.Context(), qp.Endpoint(), nil); err != nil {
		return err
	}
	ud, err := pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: q})
	if err != nil {
		return err
	}
	ah, err := pd.NewAH(ud.Endpoint(), nil)
	if err != nil {
		return err
	}
	mw, err := pd.NewMW()
	if err != nil {
		return err
	}
	if err := q.Arm(false); err != nil {
		return err
	}
	srq.RecvQueue().Recv(1, mr.Span(0, 64))
	ud.RecvQueue().Recv(2, mr.Span(64, 64))
	qp.SendQueue().Send(3, mr.Span(128, 8))
	ud.SendQueue().SendTo(4, uverbs.Dest{AH: ah, QPN: ud.QPN()}, mr.Span(128, 8))
	for _, q := range []interface{ Flush() error }{srq.RecvQueue(), ud.RecvQueue(), qp.SendQueue(), ud.SendQueue()} {
		if err := q.Flush(); err != nil {
			return err
		}
	}
	if err := q.ResizeOwned(128); err != nil {
		return err
	}
	var wcs [8]uverbs.WC
	for n, end := 0, time.Now().Add(patience); n < 4; {
		k, err := q.Poll(wcs[:])
		if err != nil {
			return err
		}
		for _, w := range wcs[:k] {
			if err := w.Err(); err != nil {
				t.Errorf("%+v", w)
			}
		}
		if n += k; time.Now().After(end) {
			t.Errorf("%d completions of 4", n)
			return nil
		}
	}
	return errors.Join(mw.Close(), ah.Close(), ud.Close(), qp.Close(), srq.Close(), q.Close(), mr.Close(), pd.Close())
}
