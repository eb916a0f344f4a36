package sim_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// side is one end of a connection.
type side struct {
	dev *uverbs.Device
	pd  *uverbs.PD
	q   *uverbs.CQ
	qp  *uverbs.QP
	mem *uverbs.Memory
	mr  *uverbs.MR

	peer *uverbs.Peer
	wcs  [4]uverbs.WC
}

const allAccess = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic

// newSide makes one end on a port. All that it has goes with the device, but for the
// memory.
func newSide(t testing.TB, dev *uverbs.Device, port int, typ uverbs.QPType, events bool) *side {
	t.Helper()
	s := &side{dev: dev}
	var err error
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.pd, err = dev.NewPD()
	fail(err)
	s.q, err = dev.NewCQ(64, &uverbs.CQOptions{Events: events})
	fail(err)
	s.qp, err = s.pd.NewQP(typ, &uverbs.QPOptions{CQ: s.q, Inline: 32, Source: uverbs.FromPort(port), PeerAccess: uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic})
	fail(err)
	s.mem, err = uverbs.Alloc(1<<16, nil)
	fail(err)
	s.mr, err = s.pd.Register(s.mem.Bytes(), allAccess)
	fail(err)
	return s
}

// join connects two ends.
func join(t testing.TB, a, b *side, opts *uverbs.ConnectOptions) {
	t.Helper()
	ca, cb := net.Pipe()
	defer ca.Close()
	defer cb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var both sync.WaitGroup
	for s, c := range map[*side]net.Conn{a: ca, b: cb} {
		both.Go(func() {
			var err error
			if s.peer, err = s.qp.HandshakeWith(ctx, c, opts, s.mr.Remote()); err != nil {
				t.Errorf("handshake: %v", err)
			}
		})
	}
	both.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// finish closes an end and the device below it.
func (s *side) finish(t testing.TB) {
	t.Helper()
	if err := s.qp.Drain(context.Background(), func(uverbs.WC) {}); err != nil {
		t.Errorf("drain: %v", err)
	}
	if err := errors.Join(s.dev.Close(), s.mem.Close()); err != nil {
		t.Error(err)
	}
}

// completion takes the one completion that is there: the device works inside of
// the call that rings its doorbell.
func (s *side) completion(t testing.TB) uverbs.WC {
	t.Helper()
	n, err := s.q.Poll(s.wcs[:])
	if err != nil || n != 1 {
		t.Fatalf("%d completions, %v: want one", n, err)
	}
	if err := s.wcs[0].Err(); err != nil {
		t.Fatal(err)
	}
	return s.wcs[0]
}

func (s *side) flush(t testing.TB) {
	t.Helper()
	if err := s.qp.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.qp.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
}

// fabrics are the kinds of devices on which traffic is the same.
var fabrics = map[string]struct {
	config model.DeviceConfig
	port   int
}{
	"RoCE":                           {port: 1},
	"RoCE, port 2":                   {model.DeviceConfig{Ports: make([]model.PortConfig, 2)}, 2},
	"InfiniBand":                     {model.DeviceConfig{Ports: []model.PortConfig{{InfiniBand: true}}}, 1},
	"InfiniBand, port 2":             {model.DeviceConfig{Ports: []model.PortConfig{{InfiniBand: true}, {InfiniBand: true}}}, 2},
	"MTU 256":                        {model.DeviceConfig{Ports: []model.PortConfig{{MTU: 256}}}, 1},
	"static registers":               {model.DeviceConfig{StaticUARs: true}, 1},
	"no write-combining":             {model.DeviceConfig{NoBlueFlame: true}, 1},
	"static, and no write-combining": {model.DeviceConfig{StaticUARs: true, NoBlueFlame: true}, 1},
	"no clock page":                  {model.DeviceConfig{NoClockPage: true}, 1},
	"firmware without DevX":          {model.DeviceConfig{NoDevX: true}, 1},
	"all that an old kernel lacks":   {model.DeviceConfig{StaticUARs: true, NoBlueFlame: true, NoDevX: true, NoClockPage: true}, 1},
}

func TestReliableTraffic(t *testing.T) {
	for name, c := range fabrics {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{c.config, c.config}})
			a, b := newSide(t, must(f.Open("sim0", nil)), c.port, uverbs.RC, false), newSide(t, must(f.Open("sim1", nil)), c.port, uverbs.RC, false)
			defer a.finish(t)
			defer b.finish(t)
			join(t, a, b, nil)
			there := a.peer.Regions[0]
			copy(a.mem.Bytes(), bytes.Repeat([]byte("goverbs "), 1000))

			b.qp.RecvQueue().Recv(1, b.mr.Span(0, 8000))
			b.flush(t)
			a.qp.SendQueue().SendImm(2, 0x12345678, a.mr.Span(0, 8000))
			a.flush(t)
			if w := a.completion(t); w.ID != 2 || w.Opcode != uverbs.OpSendImm || w.QPN != a.qp.QPN() {
				t.Errorf("%+v", w)
			}
			w := b.completion(t)
			if imm, ok := w.Imm(); w.ID != 1 || w.Bytes != 8000 || w.QPN != b.qp.QPN() || !ok || imm != 0x12345678 || !bytes.Equal(a.mem.Bytes()[:8000], b.mem.Bytes()[:8000]) {
				t.Errorf("%+v", w)
			}
			a.qp.SendQueue().Write(3, there.At(16384), a.mr.Span(1, 5000), uverbs.Unsignaled)
			a.qp.SendQueue().WriteInline(4, there.At(30000), []byte("in the request"))
			a.flush(t)
			if w := a.completion(t); w.ID != 4 || string(b.mem.Bytes()[30000:30014]) != "in the request" || !bytes.Equal(b.mem.Bytes()[16384:21384], a.mem.Bytes()[1:5001]) {
				t.Errorf("%+v", w)
			}
			a.qp.SendQueue().Read(5, a.mr.Span(40000, 5000), there.At(16384))
			a.flush(t)
			if w := a.completion(t); w.ID != 5 || w.Opcode != uverbs.OpRead || !bytes.Equal(a.mem.Bytes()[40000:45000], a.mem.Bytes()[1:5001]) {
				t.Errorf("%+v", w)
			}
			b.mem.Uint64(64).Store(40)
			a.qp.SendQueue().FetchAdd(6, a.mr.Span(128, 8), there.At(64), 2)
			a.flush(t)
			if w := a.completion(t); w.ID != 6 || a.mem.Uint64(128).Load() != 40 || b.mem.Uint64(64).Load() != 42 {
				t.Errorf("%+v: %d, %d", w, a.mem.Uint64(128).Load(), b.mem.Uint64(64).Load())
			}
			a.qp.SendQueue().CompareSwap(7, a.mr.Span(128, 8), there.At(64), 42, 7)
			a.flush(t)
			if w := a.completion(t); w.ID != 7 || a.mem.Uint64(128).Load() != 42 || b.mem.Uint64(64).Load() != 7 {
				t.Errorf("%+v: %d, %d", w, a.mem.Uint64(128).Load(), b.mem.Uint64(64).Load())
			}
		})
	}
}

func TestDatagrams(t *testing.T) {
	for name, c := range fabrics {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{c.config, c.config}})
			a, b := newSide(t, must(f.Open("sim0", nil)), c.port, uverbs.UD, false), newSide(t, must(f.Open("sim1", nil)), c.port, uverbs.UD, false)
			defer a.finish(t)
			defer b.finish(t)
			ah, err := a.pd.NewAH(b.qp.Endpoint(), nil)
			if err != nil {
				t.Fatal(err)
			}
			b.qp.RecvQueue().Recv(1, b.mr.Span(0, uverbs.GRHLen+256))
			b.flush(t)
			binary.BigEndian.PutUint64(a.mem.Bytes(), 0x0123456789abcdef)
			a.qp.SendQueue().SendTo(2, uverbs.Dest{AH: ah, QPN: b.qp.QPN()}, a.mr.Span(0, 200))
			a.flush(t)
			if w := a.completion(t); w.ID != 2 {
				t.Errorf("%+v", w)
			}
			w := b.completion(t)
			if w.ID != 1 || w.Bytes != uverbs.GRHLen+200 || w.SrcQPN != a.qp.QPN() || !bytes.Equal(b.mem.Bytes()[uverbs.GRHLen:][:200], a.mem.Bytes()[:200]) {
				t.Errorf("%+v", w)
			}
			// RoCE has no LIDs, whatever the device writes in their place.
			if from, _ := f.Model().Device("sim0").Port(c.port); w.SLID != from.LID {
				t.Errorf("from LID %#x, it is %#x", w.SLID, from.LID)
			}
			back, err := b.pd.NewAHFor(w, b.mem.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			a.qp.RecvQueue().Recv(3, a.mr.Span(1000, uverbs.GRHLen+64))
			a.flush(t)
			b.qp.SendQueue().SendToInline(4, uverbs.Dest{AH: back, QPN: w.SrcQPN}, []byte("back"))
			b.flush(t)
			b.completion(t)
			if w := a.completion(t); w.ID != 3 || w.Bytes != uverbs.GRHLen+4 || string(a.mem.Bytes()[1000+uverbs.GRHLen:][:4]) != "back" {
				t.Errorf("%+v", w)
			}
		})
	}
}

// Two goroutines that sleep until something comes, under a false clock.
func TestWaitingForEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, nil)
		a, b := newSide(t, must(f.Open("sim0", nil)), 1, uverbs.RC, true), newSide(t, must(f.Open("sim1", nil)), 1, uverbs.RC, true)
		defer a.finish(t)
		defer b.finish(t)
		join(t, a, b, nil)
		const rounds = 50
		play := func(s *side, first bool) error {
			w, err := poll.NewWaiter(poll.Event{}, s.q)
			if err != nil {
				return err
			}
			defer w.Close()
			sends, receives := 0, 0
			var wcs [4]uverbs.WC
			for receives < rounds || sends < rounds {
				n, err := w.Wait(t.Context(), wcs[:])
				if err != nil {
					return err
				}
				for _, c := range wcs[:n] {
					if err := c.Err(); err != nil {
						return err
					}
					if c.Side == uverbs.SendSide {
						sends++
						continue
					}
					receives++
					if receives < rounds {
						s.qp.RecvQueue().Recv(1, s.mr.Span(0, 64))
						if err := s.qp.RecvQueue().Flush(); err != nil {
							return err
						}
					}
					if first && receives == rounds {
						continue
					}
					time.Sleep(time.Second) // thinks
					s.qp.SendQueue().SendInline(2, []byte("pong"))
					if err := s.qp.SendQueue().Flush(); err != nil {
						return err
					}
				}
			}
			return nil
		}
		for _, s := range []*side{a, b} {
			s.qp.RecvQueue().Recv(1, s.mr.Span(0, 64))
			s.flush(t)
		}
		var both sync.WaitGroup
		start := time.Now()
		both.Go(func() {
			if err := play(b, false); err != nil {
				t.Errorf("b: %v", err)
			}
		})
		a.qp.SendQueue().SendInline(2, []byte("ping"))
		a.flush(t)
		if err := play(a, true); err != nil {
			t.Errorf("a: %v", err)
		}
		both.Wait()
		if took := time.Since(start); took != (2*rounds-1)*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestPeerUnplugged(t *testing.T) { testPeerUnplugged(t) }

// A waiter that sleeps learns of the end of its device, and Close does no harm.
func TestDeviceFatalUnderTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, nil)
		a, b := newSide(t, must(f.Open("sim0", nil)), 1, uverbs.RC, true), newSide(t, must(f.Open("sim1", nil)), 1, uverbs.RC, false)
		defer b.finish(t)
		join(t, a, b, nil)
		w, err := poll.NewWaiter(poll.Event{}, a.q)
		if err != nil {
			t.Fatal(err)
		}
		a.qp.RecvQueue().Recv(1, a.mr.Span(0, 64))
		a.flush(t)
		var waits sync.WaitGroup
		waits.Go(func() {
			var wcs [2]uverbs.WC
			if n, err := w.Wait(context.Background(), wcs[:]); n != 1 || err != nil || wcs[0].Status != uverbs.StatusFlushed {
				t.Errorf("%d, %v, %+v", n, err, wcs[0])
			}
			if n, err := w.Wait(context.Background(), wcs[:]); !errors.Is(err, uverbs.ErrDeviceGone) {
				t.Errorf("%d, %v", n, err)
			}
		})
		synctest.Wait()
		f.Model().Device("sim0").Fail()
		waits.Wait()
		a.qp.SendQueue().Write(2, a.peer.Regions[0].At(0), a.mr.Span(0, 64))
		if err := a.qp.SendQueue().Flush(); err != nil && !errors.Is(err, uverbs.ErrDeviceGone) {
			t.Errorf("Flush: %v", err)
		}
		if err := errors.Join(w.Close(), a.dev.Close(), a.mem.Close()); err != nil {
			t.Error(err)
		}
	})
}

// As TestCloseInEveryOrder, with queues.
func TestCloseQueuesInEveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{{MaxPD: 1, MaxMR: 1, MaxCQ: 1, MaxQP: 1, MaxSRQ: 1}}})
		for order := range permutations(6) {
			d := must(f.Open("sim0", nil))
			mem := must(uverbs.Alloc(4096, nil))
			var pd *uverbs.PD
			var q *uverbs.CQ
			var srq *uverbs.SRQ
			var qp *uverbs.QP
			var mr *uverbs.MR
			var errs [5]error
			pd, errs[0] = d.NewPD()
			if errs[0] == nil {
				q, errs[1] = d.NewCQ(32, &uverbs.CQOptions{Events: true})
				srq, errs[2] = pd.NewSRQ(nil)
				qp, errs[3] = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SRQ: srq})
				mr, errs[4] = pd.Register(mem.Bytes(), uverbs.LocalWrite)
			}
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatalf("order %v: %v", order, err)
			}
			closers := []func() error{mr.Close, qp.Close, srq.Close, q.Close, pd.Close, d.Close}
			for _, i := range order {
				if err := closers[i](); err != nil && !errors.Is(err, uverbs.ErrInUse) && !errors.Is(err, os.ErrClosed) {
					t.Errorf("order %v, at %d: %v", order, i, err)
				}
			}
			if err := mem.Close(); err != nil {
				t.Errorf("order %v: %v", order, err)
			}
			noObjects(t, f)
		}
	})
}

// BenchmarkPingPong is one round of a ping-pong, by one goroutine: two messages, four
// completions. No call of testing is in it, most of which look at the stack.
func BenchmarkPingPong(b *testing.B) {
	f, err := sim.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	one, two := newSide(b, must(f.Open("sim0", nil)), 1, uverbs.RC, false), newSide(b, must(f.Open("sim1", nil)), 1, uverbs.RC, false)
	defer one.finish(b)
	defer two.finish(b)
	join(b, one, two, nil)
	poll := func(s *side) bool {
		n, err := s.q.Poll(s.wcs[:])
		return n == 1 && err == nil && s.wcs[0].Status == uverbs.StatusSuccess
	}
	message := func(from, to *side) bool {
		to.qp.RecvQueue().Recv(1, to.mr.Span(0, 64))
		from.qp.SendQueue().Send(2, from.mr.Span(64, 64))
		return to.qp.RecvQueue().Flush() == nil && from.qp.SendQueue().Flush() == nil && poll(from) && poll(to)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !message(one, two) || !message(two, one) {
			b.Fatal("a message did not arrive")
		}
	}
}
