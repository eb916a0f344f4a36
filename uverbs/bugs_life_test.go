package uverbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Nobody ends what was posted to a device that is gone, and who sleeps for it sleeps
// for ever. (mlx5's shutdown; hns and its resets.) A sleeper wakes with an error, and
// every request ends once, on demand.
func TestBug21DeviceGone(t *testing.T) {
	const sends, recvs = 7, 5
	r := newRig(t, true)
	qp, err := r.pd.NewQP(RC, &QPOptions{SendCQ: r.sendQ, RecvCQ: r.recvQ})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := r.pd.NewQP(RC, &QPOptions{CQ: r.recvQ, SendDepth: 1, RecvDepth: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(qp.Connect(t.Context(), peer.Endpoint(), &ConnectOptions{RNRRetries: RetryForever}), peer.Connect(t.Context(), qp.Endpoint(), nil)); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(sends) {
		qp.SendQueue().Send(i, r.mr.Span(0, 8)) // the peer has no receive for it
	}
	for i := range uint64(recvs) {
		qp.RecvQueue().Recv(i, r.mr.Span(0, 8))
	}
	if err := errors.Join(qp.SendQueue().Flush(), qp.RecvQueue().Flush()); err != nil {
		t.Fatal(err)
	}
	var sleepers sync.WaitGroup
	var mu sync.Mutex
	var ended [2]int // sends and receives
	for _, q := range []*CQ{r.sendQ, r.recvQ} {
		w, err := poll.NewWaiter(poll.Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		sleepers.Go(func() {
			defer w.Close()
			var wcs [4]WC
			n, err := w.Wait(t.Context(), wcs[:])
			for ; err == nil; n, err = w.Wait(t.Context(), wcs[:]) {
				for _, w := range wcs[:n] {
					if w.Status != StatusFlushed || w.Flags != cq.FlagSynthetic {
						t.Errorf("%+v", w)
					}
					if mu.Lock(); w.Side == SendSide {
						ended[0]++
					} else {
						ended[1]++
					}
					mu.Unlock()
				}
			}
			if !errors.Is(err, ErrDeviceGone) {
				t.Errorf("Wait: %v", err)
			}
			if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, ErrDeviceGone) {
				t.Errorf("Wait again: %d, %v", n, err)
			}
		})
	}
	busy, err := r.dev.NewCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.k.RemoveDevice("rxe0")
	within(t, "the waiter", sleepers.Wait)
	if ended != [2]int{sends, recvs} {
		t.Errorf("%v sends and receives ended, want %d and %d", ended, sends, recvs)
	}
	within(t, "who polls without events", func() {
		var wcs [1]WC
		for {
			if n, err := busy.Poll(wcs[:]); err != nil || n != 0 {
				if !errors.Is(err, ErrDeviceGone) {
					t.Errorf("Poll: %d, %v", n, err)
				}
				return
			}
			runtime.Gosched()
		}
	})
	within(t, "Drain", func() {
		if err := qp.Drain(t.Context(), func(w WC) { t.Errorf("an end too many: %+v", w) }); err != nil {
			t.Error(err)
		}
	})
	qp.SendQueue().Send(9, r.mr.Span(0, 8))
	if err := qp.SendQueue().Flush(); err == nil {
		t.Error("a send to a device that is gone was accepted after Drain")
	}
}

// After a fatal event the connection was torn down and the rest was not, or could
// not be, and blocked. https://github.com/spdk/spdk/issues/2786
// Every kind of object closes at once, whatever the order of the first two.
func TestBug22AllClosesOnAGoneDevice(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		r := &rig{k: fakekernel.New(fakekernel.Device{})}
		if err := r.open(true); err != nil {
			t.Fatal(err)
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		channel, err := r.dev.NewChannel()
		must(err)
		q, err := r.dev.NewCQ(40, &CQOptions{Channel: channel})
		must(err)
		srq, err := r.pd.NewSRQ(nil)
		must(err)
		ud, err := r.pd.NewQP(UD, &QPOptions{CQ: q, SRQ: srq})
		must(err)
		group := GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}
		must(ud.AttachMulticast(group))
		ah, err := r.pd.NewAH(ud.Endpoint(), nil)
		must(err)
		mw, err := r.pd.NewMW()
		must(err)
		w, err := poll.NewWaiter(poll.Event{}, r.sendQ, r.recvQ)
		must(err)
		r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
		r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		must(errors.Join(r.a.RecvQueue().Flush(), r.a.SendQueue().Flush()))
		r.k.RemoveDevice("rxe0")
		if e := event(t, r.dev); e.Type != EventDeviceFatal {
			t.Errorf("event %v", e)
		}
		within(t, "closing", func() {
			if !ordered { // all at once
				if err := errors.Join(w.Close(), r.dev.Close(), r.mem.Close()); err != nil {
					t.Error(err)
				}
				return
			}
			for _, c := range []interface{ Close() error }{w, mw, r.a, r.b, ud, srq, ah, q, r.sendQ, r.recvQ, channel, r.mr, r.pd, r.dev, r.mem} {
				if err := c.Close(); err != nil {
					t.Errorf("%T: %v", c, err)
				}
			}
		})
		if n := r.k.Objects()["context"]; n != 0 {
			t.Errorf("%d contexts are left, with %v", n, r.k.Objects())
		}
		for _, l := range r.k.Leaks() {
			t.Errorf("leaked: %s", l)
		}
	}
}

// A look at a queue that failed kept its lock, and the next one, or the end of a
// queue pair, waited for ever. https://github.com/linux-rdma/rdma-core/pull/1470
func TestBug23FailedPollHoldsNothing(t *testing.T) {
	for _, shared := range []bool{false, true} {
		r := newRig(t, false)
		q, err := r.dev.NewCQ(63, &CQOptions{Shared: shared, Events: true})
		if err != nil {
			t.Fatal(err)
		}
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q})
		if err != nil {
			t.Fatal(err)
		}
		flushed(t, r, qp, 1, 3)
		q.mailbox.kill(q, fmt.Errorf("lost: %w", ErrOverrun))
		within(t, "after a failed poll", func() {
			wait(t, q, 3)
			var wcs [1]WC
			var all sync.WaitGroup
			for range 2 {
				poll := func() {
					for range 5 {
						if n, err := q.Poll(wcs[:0]); n != 0 || !errors.Is(err, ErrOverrun) {
							t.Errorf("Poll: %d, %v", n, err)
						}
					}
				}
				if !shared {
					poll() // one poller at a time
					continue
				}
				all.Go(poll)
			}
			all.Wait()
			says(t, "resize", q.ResizeOwned(0), ErrInvalid)
			if err := errors.Join(q.Arm(false), qp.Close(), q.Close()); err != nil {
				t.Error(err)
			}
			if n, err := q.Poll(wcs[:]); n != 0 || !errors.Is(err, os.ErrClosed) {
				t.Errorf("Poll after Close: %d, %v", n, err)
			}
		})
	}
}

// spy is a kernel that lets a test see the requests of its files.
type spy struct {
	kernel.Kernel
	mu           sync.Mutex // one at a time
	ioctl, write func(req []byte)
}

type spiedFile struct {
	kernel.File
	spy *spy
}

func (s *spy) Open(path string, rdev uint64) (kernel.File, error) {
	f, err := s.Kernel.Open(path, rdev)
	if err != nil {
		return nil, err
	}
	return &spiedFile{f, s}, nil
}

func (f *spiedFile) Ioctl(req []byte) error {
	f.spy.see(f.spy.ioctl, req)
	return f.File.Ioctl(req)
}

func (f *spiedFile) Write(req []byte) error {
	f.spy.see(f.spy.write, req)
	return f.File.Write(req)
}

func (s *spy) see(look func([]byte), req []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look(req)
}

// The length of the core's part alone, where the driver's belongs to it, made every
// resize of a driver fail. https://github.com/linux-rdma/rdma-core/pull/1576
// Every command has the lengths that the kernel headers give it, in numbers.
func TestBug29LengthsOfCommands(t *testing.T) {
	type lengths struct{ in, out, driverIn, driverOut int }
	commands := map[string]lengths{ // from rdma/ib_user_verbs.h and rdma/rdma_user_rxe.h
		"QUERY_DEVICE, extended": {8, 304, 0, 0}, "ALLOC_PD": {8, 4, 0, 0}, "CREATE_AH": {56, 4, 0, 8}, "REG_MR": {40, 12, 0, 0},
		"ALLOC_MW": {16, 8, 0, 0}, "CREATE_COMP_CHANNEL": {8, 4, 0, 0}, "RESIZE_CQ": {16, 8, 0, 16}, "REQ_NOTIFY_CQ": {8, 0, 0, 0},
		"QUERY_QP": {16, 128, 0, 0}, "MODIFY_QP": {112, 0, 0, 0}, "POST_SEND": {24, 4, 0, 0}, "ATTACH_MCAST": {24, 0, 0, 0},
		"DETACH_MCAST": {24, 0, 0, 0}, "MODIFY_SRQ": {16, 0, 8, 0}, "QUERY_SRQ": {16, 16, 0, 0}, "MODIFY_CQ, extended": {16, 0, 0, 0},
		"create CQ": {0, 0, 0, 16}, "create QP": {0, 0, 0, 32}, "create SRQ": {0, 0, 0, 24},
	}
	names := map[uint32]string{
		abi.IB_USER_VERBS_CMD_ALLOC_PD: "ALLOC_PD", abi.IB_USER_VERBS_CMD_CREATE_AH: "CREATE_AH", abi.IB_USER_VERBS_CMD_REG_MR: "REG_MR",
		abi.IB_USER_VERBS_CMD_ALLOC_MW: "ALLOC_MW", abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: "CREATE_COMP_CHANNEL",
		abi.IB_USER_VERBS_CMD_RESIZE_CQ: "RESIZE_CQ", abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ: "REQ_NOTIFY_CQ",
		abi.IB_USER_VERBS_CMD_QUERY_QP: "QUERY_QP", abi.IB_USER_VERBS_CMD_MODIFY_QP: "MODIFY_QP", abi.IB_USER_VERBS_CMD_POST_SEND: "POST_SEND",
		abi.IB_USER_VERBS_CMD_ATTACH_MCAST: "ATTACH_MCAST", abi.IB_USER_VERBS_CMD_DETACH_MCAST: "DETACH_MCAST",
		abi.IB_USER_VERBS_CMD_MODIFY_SRQ: "MODIFY_SRQ", abi.IB_USER_VERBS_CMD_QUERY_SRQ: "QUERY_SRQ",
		extended(abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE): "QUERY_DEVICE, extended", extended(abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ): "MODIFY_CQ, extended",
	}
	seen := map[string]bool{}
	doorbells := 0
	s := &spy{Kernel: fakekernel.New(fakekernel.Device{NoWrite: syscall.EACCES})}
	s.write = func(req []byte) {
		if doorbells++; len(req) != 32 || native.Uint16(req[4:])*4 != 32 || native.Uint16(req[6:])*4 != 4 {
			t.Errorf("a doorbell of %d bytes that says %d and %d words", len(req), native.Uint16(req[4:]), native.Uint16(req[6:]))
		}
	}
	s.ioctl = func(req []byte) {
		object, method := native.Uint16(req[2:]), native.Uint16(req[4:])
		if int(native.Uint16(req)) != len(req) || len(req) != headerSize+attributeSize*int(native.Uint16(req[6:])) {
			t.Errorf("a request of %d bytes says %d and %d attributes", len(req), native.Uint16(req), native.Uint16(req[6:]))
		}
		name := map[[2]uint16]string{
			{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE}:   "create CQ",
			{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE}:   "create QP",
			{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE}: "create SRQ",
		}[[2]uint16{object, method}]
		invoke := object == abi.UVERBS_OBJECT_DEVICE && method == abi.UVERBS_METHOD_INVOKE_WRITE
		var got lengths
		for at := headerSize; at < len(req); at += attributeSize {
			n := int(native.Uint16(req[at+2:]))
			switch id := native.Uint16(req[at:]); {
			case id == abi.UVERBS_ATTR_UHW_IN:
				got.driverIn = n
			case id == abi.UVERBS_ATTR_UHW_OUT:
				got.driverOut = n
			case invoke && id == abi.UVERBS_ATTR_CORE_IN:
				got.in = n
			case invoke && id == abi.UVERBS_ATTR_CORE_OUT:
				got.out = n
			case invoke && id == abi.UVERBS_ATTR_WRITE_CMD:
				command := uint32(native.Uint64(req[at+8:]))
				if name = names[command]; name == "" {
					t.Errorf("command %#x is not in the table", command)
				}
			}
		}
		if name == "" {
			if got != (lengths{}) {
				t.Errorf("object %d, method %d has %+v", object, method, got)
			}
			return
		}
		seen[name] = true
		if want := commands[name]; got != want {
			t.Errorf("%s has %+v, want %+v", name, got, want)
		}
	}
	k := s.Kernel.(*fakekernel.Kernel)
	dev, err := system{kernel: s, dial: on(k).dial}.open("rxe0", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{k: k, dev: dev}
	if err := r.make(true); err != nil {
		t.Fatal(err)
	}
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	srq, err := r.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	ud, err := r.pd.NewQP(UD, &QPOptions{CQ: r.recvQ, SRQ: srq, SendDepth: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, errAH := r.pd.NewAH(ud.Endpoint(), nil)
	_, errMW := r.pd.NewMW()
	_, errQuery := r.a.QueryState()
	_, errLimit := srq.Limit()
	group := GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}
	r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	if err := errors.Join(errAH, errMW, errQuery, errLimit, ud.AttachMulticast(group), ud.DetachMulticast(group), srq.SetLimit(1), srq.Resize(20),
		r.sendQ.ResizeOwned(50), r.sendQ.Arm(false), r.a.SendQueue().Flush()); err != nil {
		t.Error(err)
	}
	says(t, "moderate", r.sendQ.Moderate(1, time.Microsecond), ErrNotSupported)
	r.close(t)
	r.clean(t)
	for name := range commands {
		if !seen[name] {
			t.Errorf("%s was never sent", name)
		}
	}
	if doorbells == 0 {
		t.Error("no doorbell by write()")
	}
}
