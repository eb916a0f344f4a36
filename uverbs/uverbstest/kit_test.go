package uverbstest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

func TestRetryExceeded(t *testing.T) { testRetryExceeded(t) }

// bothWays runs a test in a bubble and outside.
func bothWays(t *testing.T, test func(t *testing.T)) {
	t.Run("real time", test)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
}

// Messages go both ways over every transport and every kind of pair.
func TestPairs(t *testing.T) {
	for name, opts := range map[string]*uverbstest.PairOptions{
		"default":       nil,
		"UC":            {Type: uverbs.UC},
		"UD":            {Type: uverbs.UD},
		"busy":          {NoEvents: true},
		"deep":          {QP: uverbs.QPOptions{SendDepth: 500, RecvDepth: 300}, CQDepth: 4000, Memory: 1 << 20},
		"one device":    {Fabric: sim.Options{Devices: make([]model.DeviceConfig, 1)}},
		"three devices": {Fabric: sim.Options{Devices: make([]model.DeviceConfig, 3)}},
		"InfiniBand":    {Fabric: sim.Options{Devices: []model.DeviceConfig{{Ports: []model.PortConfig{{InfiniBand: true}}}, {Ports: []model.PortConfig{{InfiniBand: true}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T) {
				p := uverbstest.PairWith(t, opts)
				for _, ends := range [][2]*uverbstest.End{{p.A, p.B}, {p.B, p.A}} {
					from, to := ends[0], ends[1]
					head := 0
					if to.QP.Type() == uverbs.UD {
						head = uverbs.GRHLen
					}
					to.QP.RecvQueue().Recv(1, to.MR.Span(0, head+64))
					to.Flush()
					copy(from.Memory.Bytes()[1000:], "hello from "+from.Name)
					message := from.MR.Span(1000, 12)
					if head > 0 {
						from.QP.SendQueue().SendTo(2, from.To, message)
					} else {
						from.QP.SendQueue().Send(2, message)
					}
					from.Flush()
					if w := from.Next(); w.ID != 2 || w.Err() != nil {
						t.Errorf("%+v", w)
					}
					if w := to.Next(); w.ID != 1 || w.Err() != nil || w.Bytes != uint32(head+12) || !bytes.Equal(to.Memory.Bytes()[head:head+12], []byte("hello from "+from.Name)) {
						t.Errorf("%+v", w)
					}
				}
				if head := p.A.QP.Type() == uverbs.RC; head {
					p.A.QP.SendQueue().Write(3, p.A.Peer.At(5000), p.A.MR.Span(1000, 8))
					p.A.QP.SendQueue().FetchAdd(4, p.A.MR.Span(0, 8), p.A.Peer.At(5000), 1)
					p.A.Flush()
					for _, w := range p.A.Take(2) {
						if w.Err() != nil {
							t.Errorf("%+v", w)
						}
					}
				}
				if p.A.Model.Name() != p.A.Device.Name() || p.Model().Device(p.B.Device.Name()) != p.B.Model {
					t.Error("the two sides of a device are of different ones")
				}
			})
		})
	}
}

// A test may close anything before the kit does, and leave anything to it that the
// kit has made.
func TestClosedByTheTest(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		p := uverbstest.Pair(t)
		if err := errors.Join(p.A.QP.Close(), p.A.CQ.Close(), p.B.Device.Close(), p.B.Memory.Close()); err != nil {
			t.Error(err)
		}
		d, err := p.Open("sim1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.NewPD(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What is left behind fails the test, and all is closed all the same. What is no mistake is
// none.
func TestLeftBehind(t *testing.T) {
	must := func(t testing.TB, errs ...error) {
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		want string // of what the test is told, "" for nothing
		test func(t testing.TB, p *uverbstest.Link)
		// timeout is the device's, 0 for the usual one.
		timeout time.Duration
		busy    bool
	}{
		{name: "nothing", want: "", test: func(testing.TB, *uverbstest.Link) {}},
		{name: "a PD", want: "left behind: sim0: 1 PD", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := p.A.Device.NewPD()
			must(t, err)
		}},
		{name: "objects of every kind", want: "left behind: sim1: 1 AH, 1 CQ, 1 MR, 1 MW, 1 QP, 1 SRQ", test: func(t testing.TB, p *uverbstest.Link) {
			q, err := p.B.Device.NewCQ(64, nil)
			must(t, err)
			srq, err := p.B.PD.NewSRQ(nil)
			must(t, err)
			_, err = p.B.PD.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SRQ: srq})
			must(t, err)
			_, err = p.B.PD.NewMW()
			must(t, err)
			_, err = p.B.PD.NewAH(p.A.QP.Endpoint(), nil)
			must(t, err)
			_, err = p.B.PD.Register(p.Alloc(4096).Bytes(), uverbs.LocalWrite)
			must(t, err)
		}},
		{name: "a queue pair on the kit's queue", want: "left behind: sim1: 1 QP", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := p.B.PD.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: p.B.CQ})
			must(t, err)
		}},
		{name: "a queue pair on a queue without events", want: "left behind: sim1: 1 QP", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := p.B.PD.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: p.B.CQ})
			must(t, err)
		}, busy: true},
		{name: "a channel", want: "left behind: sim0: 1 channel", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := p.A.Device.NewChannel()
			must(t, err)
		}},
		{name: "a device", want: "left behind: sim1, which was opened at kit_test.go:", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := p.Open("sim1", nil)
			must(t, err)
		}},
		{name: "a poller", want: "left behind: somebody still waits on the completion queue of B: close the Waiter", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := poll.NewWaiter(poll.Event{}, p.B.CQ)
			must(t, err)
		}},
		{name: "requests that end", want: "", test: func(t testing.TB, p *uverbstest.Link) {
			for i := range uint64(16) {
				p.B.QP.RecvQueue().Recv(i, p.B.MR.Span(0, 64))
				p.A.QP.SendQueue().Read(i, p.A.MR.Span(0, 64), p.A.Peer.At(0))
			}
			p.A.Flush()
			p.B.Flush()
		}},
		{name: "requests that faults hold up", want: "", test: func(t testing.TB, p *uverbstest.Link) {
			p.Fault("request times=forever: drop\ncompletion: hold")
			for i := range uint64(16) {
				p.A.QP.SendQueue().SendInline(i, []byte("x"))
				p.B.QP.SendQueue().Read(i, p.B.MR.Span(0, 64), p.B.Peer.At(0))
			}
			p.A.Flush()
			p.B.Flush()
		}},
		{name: "a request that never ends", want: "left behind: requests of A that do not end: goverbs: sim0: drain QP 256: context deadline exceeded", test: func(t testing.TB, p *uverbstest.Link) {
			p.Fault("request: drop")
			p.A.QP.SendQueue().SendInline(1, []byte("x"))
			p.A.Flush()
		}, timeout: uverbs.AckTimeoutForever},
		{name: "a device that failed", want: "", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := p.A.Device.NewPD()
			must(t, err)
			p.A.Model.Fail()
		}},
		{name: "what a test that failed did not come to close", want: "enough", test: func(t testing.TB, p *uverbstest.Link) {
			_, err := p.A.Device.NewPD()
			must(t, err)
			t.Fatal("enough")
		}},
		{name: "a script that is none", want: "model: line 2 of the script: ", test: func(t testing.TB, p *uverbstest.Link) {
			p.Fault("request 3: drop\nrequest 4: explode")
		}},
		{name: "a fault that is none", want: "model: a fault that does nothing", test: func(t testing.TB, p *uverbstest.Link) { p.Inject(model.Fault{}) }},
		{name: "a device that is none", want: "no such device", test: func(t testing.TB, p *uverbstest.Link) { p.Device("mlx5_0") }},
		{name: "no completion", want: "A: 0 completions of 1, then: poll: wait: context deadline exceeded", test: func(t testing.TB, p *uverbstest.Link) { p.A.Next() }},
		{name: "a queue that is closed", want: "goverbs: sim0: ", test: func(t testing.TB, p *uverbstest.Link) {
			must(t, p.A.QP.Close())
			p.A.QP.SendQueue().SendInline(1, []byte("x"))
			p.A.Flush()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *uverbstest.Fabric
				said := run(t, func(t testing.TB) {
					p := uverbstest.PairWith(t, &uverbstest.PairOptions{Connect: uverbs.ConnectOptions{AckTimeout: c.timeout}, NoEvents: c.busy, Patience: time.Second})
					f = p.Fabric
					c.test(t, p)
				})
				switch {
				case c.want == "" && len(said) > 0, c.want != "" && len(said) != 1:
					t.Errorf("the test was told %q, want %q", said, c.want)
				case c.want != "" && !strings.Contains(said[0], c.want):
					t.Errorf("the test was told %q, want %q", said[0], c.want)
				}
				for _, d := range f.Model().Devices() {
					if left := d.Objects(); len(left) > 0 {
						t.Errorf("%s: still there: %v", d.Name(), left)
					}
				}
			})
		})
	}
}

// The rules that nobody enforces are looked at too.
func TestViolations(t *testing.T) {
	said := run(t, func(t testing.TB) {
		f, err := uverbstest.Pair(t).Fabric.Model().Device("sim0").Open(model.Local{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		// GET_CONTEXT with struct mlx5_ib_alloc_ucontext_req: two registers.
		req := make([]byte, abi.SizeofUverbsIoctlHdr+abi.SizeofUverbsAttr)
		ne := binary.NativeEndian
		ne.PutUint16(req, uint16(len(req)))
		ne.PutUint16(req[2:], abi.UVERBS_OBJECT_DEVICE)
		ne.PutUint16(req[4:], abi.UVERBS_METHOD_GET_CONTEXT)
		ne.PutUint16(req[6:], 1)
		ne.PutUint32(req[16:], uint32(abi.RDMA_DRIVER_MLX5))
		attr := req[abi.SizeofUverbsIoctlHdr:]
		ne.PutUint16(attr, abi.UVERBS_ATTR_UHW_IN)
		ne.PutUint16(attr[2:], 8)
		ne.PutUint32(attr[8:], 2)
		if err := f.Ioctl(req); err != nil {
			t.Fatal(err)
		}
		f.Ring(99, 0x800, 0) // a page that it never mapped
	})
	if len(said) != 1 || !strings.Contains(said[0], "the device saw what no correct program does: a doorbell in UAR 0x63") {
		t.Errorf("the test was told %q", said)
	}
}

// A fault that could not happen at its time made the test another one than it says.
func TestMissedFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := run(t, func(t testing.TB) {
			p := uverbstest.Pair(t)
			p.Fault("time 1ms device=sim0: gid 1 9 2001::5 roce2\ntime 2ms device=sim1: gid 1 9 2001::5 roce2")
			time.Sleep(10 * time.Millisecond)
		})
		if len(said) != 1 || !strings.Contains(said[0], "could not happen: GID 2001::5 roce2 belongs to device sim0 port 1") {
			t.Errorf("the test was told %q", said)
		}
	})
}

// Without options there are two devices; a program opens them and closes them.
func TestFabric(t *testing.T) {
	f := uverbstest.NewFabric(t, nil)
	d, err := f.Open("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open("sim7", nil); !errors.Is(err, uverbs.ErrUnknownDevice) {
		t.Errorf("%v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
	if m := f.Alloc(100); m.Len() < 100 {
		t.Errorf("%d bytes", m.Len())
	}
	said := run(t, func(t testing.TB) { uverbstest.NewFabric(t, &sim.Options{Devices: []model.DeviceConfig{{Name: "/"}}}) })
	if len(said) != 1 || !strings.HasPrefix(said[0], "sim: device 0") {
		t.Errorf("a name that is none: %q", said)
	}
}

// Many tests at once do not take one another's objects for leaks.
func TestSideBySide(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if said := run(t, func(t testing.TB) {
				p := uverbstest.Pair(t)
				for i := range uint64(50) {
					p.A.QP.SendQueue().WriteInline(i, p.A.Peer.At(0), []byte("x"))
					p.A.Flush()
					p.A.Next()
				}
			}); len(said) > 0 {
				t.Errorf("%q", said)
			}
		})
	}
	all.Wait()
}
