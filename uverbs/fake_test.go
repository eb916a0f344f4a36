package uverbs

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// on is the system that a fake kernel makes.
func on(k *fakekernel.Kernel) system {
	return system{kernel: k, dial: func() (netlink, error) {
		n, err := k.Netlink()
		if err != nil {
			return nil, err
		}
		return n, nil
	}}
}

// rig is two connected queue pairs on a fake kernel.
type rig struct {
	k            *fakekernel.Kernel
	dev          *Device
	pd           *PD
	mem          *Memory
	mr           *MR
	sendQ, recvQ *CQ
	a, b         *QP
	peer         *Peer // b as a sees it
}

// open makes and connects the objects of the rig, up to the first error.
func (r *rig) open(events bool) error {
	if err := r.make(events); err != nil {
		return err
	}
	return r.connect()
}

// make makes the objects, up to the first error.
func (r *rig) make(events bool) (err error) {
	if r.dev == nil {
		if r.dev, err = on(r.k).open("rxe0", nil); err != nil {
			return err
		}
	}
	if r.pd, err = r.dev.NewPD(); err != nil {
		return err
	}
	if r.mem, err = allocOn(r.k, 1<<16, nil); err != nil {
		return err
	}
	if r.mr, err = r.pd.Register(r.mem.Bytes(), LocalWrite|RemoteWrite|RemoteRead); err != nil {
		return err
	}
	opts := &CQOptions{Events: events, Vector: 1}
	if r.sendQ, err = r.dev.NewCQ(64, opts); err != nil {
		return err
	}
	if r.recvQ, err = r.dev.NewCQ(64, opts); err != nil {
		return err
	}
	qpo := &QPOptions{SendCQ: r.sendQ, RecvCQ: r.recvQ, SendSGE: 4, RecvSGE: 4, Inline: 64}
	if r.a, err = r.pd.NewQP(RC, qpo); err != nil {
		return err
	}
	r.b, err = r.pd.NewQP(RC, qpo)
	return err
}

func (r *rig) connect() error {
	ca, cb := net.Pipe()
	defer ca.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cb.Close()
		_, err := r.b.Handshake(ctx, cb, r.mr.Remote())
		done <- err
	}()
	var err error
	if r.peer, err = r.a.Handshake(ctx, ca, r.mr.Remote()); err != nil {
		ca.Close()
		<-done
		return err
	}
	return <-done
}

// close closes what there is. Everything must close, whatever happened before.
func (r *rig) close(t testing.TB) {
	t.Helper()
	if r.dev != nil {
		if err := r.dev.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close device: %v", err)
		}
	}
	if r.mem != nil {
		if err := r.mem.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close memory: %v", err)
		}
	}
}

// newRig is a rig that works, and is checked for leaks at the end of the test.
func newRig(t testing.TB, events bool, devices ...fakekernel.Device) *rig {
	t.Helper()
	if len(devices) == 0 {
		devices = []fakekernel.Device{{}}
	}
	r := &rig{k: fakekernel.New(devices...)}
	if err := r.open(events); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.close(t)
		r.clean(t)
	})
	return r
}

// clean fails the test if the kernel still holds anything, or has seen what no
// correct program does.
func (r *rig) clean(t testing.TB) {
	t.Helper()
	for _, l := range r.k.Leaks() {
		t.Errorf("leaked: %s", l)
	}
	for _, v := range r.k.Violations() {
		t.Errorf("violation: %s", v)
	}
}

// wait polls q for n completions, and takes no more.
func wait(t testing.TB, q *CQ, n int) []WC {
	t.Helper()
	var all []WC
	wcs := make([]WC, 16)
	for end := time.Now().Add(patience); len(all) < n; {
		k, err := q.Poll(wcs[:min(len(wcs), n-len(all))])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, wcs[:k]...)
		if time.Now().After(end) {
			t.Fatalf("%d of %d completions: %+v", len(all), n, all)
		}
	}
	return all
}
