package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/tools/decode"
	"github.com/goverbs/goverbs/uverbs"
)

// readAll reads the other end's memory, all requests behind one doorbell, and checks
// every byte. The other end does nothing for it.
func readAll(ctx context.Context, p *pair, step *demoStep) error {
	there, here := p.b.mem.Bytes()[readAt:], p.a.mem.Bytes()[readAt:]
	seed := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for i := range there {
		there[i] = byte(seed.Uint32())
	}
	clear(here)
	begin := time.Now()
	for i := range pairDepth {
		at := readAt + i*readSize
		p.a.qp.SendQueue().Read(uint64(i), p.a.mr.Span(at, readSize), p.b.mr.Remote().At(uint64(at)))
	}
	if err := p.a.qp.SendQueue().Flush(); err != nil {
		return err
	}
	for got := 0; got < pairDepth; {
		n, err := p.a.spin(ctx)
		if err != nil {
			return err
		}
		for _, w := range p.a.wcs[:n] {
			if err := w.Err(); err != nil {
				return err
			}
			if w.Opcode != uverbs.OpRead || w.ID != uint64(got) {
				return fmt.Errorf("completion %d is of the %v %d", got, w.Opcode, w.ID)
			}
			got++
		}
	}
	took := time.Since(begin)
	if !bytes.Equal(there, here) {
		return errors.New("what was read is not what is there")
	}
	step.Rounds, step.Bytes, step.MeanUsec = pairDepth, readSize, usec(took/pairDepth)
	step.Text = fmt.Sprintf("%d reads of %d bytes behind one doorbell, every byte checked: %v in all", pairDepth, readSize, short(took))
	return nil
}

// wrongKey reads with a key that the other end never gave, and again with the right
// one behind it. The first has to be refused, the second flushed, the queue pair in
// error. It is the last step: nothing passes afterwards.
func wrongKey(ctx context.Context, p *pair, step *demoStep) error {
	right := p.b.mr.Remote()
	wrong := right
	wrong.RKey ^= 0xff // the part of a key that changes when memory is registered again
	sq := p.a.qp.SendQueue()
	sq.Read(1, p.a.mr.Span(readAt, readSize), wrong.At(readAt))
	sq.Read(2, p.a.mr.Span(readAt, readSize), right.At(readAt))
	if err := sq.Flush(); err != nil {
		return err
	}
	var ends []uverbs.WC
	for len(ends) < 2 {
		n, err := p.a.spin(ctx)
		if err != nil {
			return err
		}
		for _, w := range p.a.wcs[:n] {
			if w.Side == uverbs.SendSide { // receives are flushed too
				ends = append(ends, w)
			}
		}
	}
	first, second := ends[0], ends[1]
	if first.Status == uverbs.StatusSuccess {
		return errors.New("the READ with a wrong key succeeded")
	}
	driver := p.a.dev.Info().Driver
	step.explain(first, driver == uverbs.DriverMlx5)
	what := "refused"
	if driver == uverbs.DriverRXE && first.Status == uverbs.StatusRetryExceeded {
		what = "not answered, as soft-RoCE of Linux 5.10 does it," // that kernel sends no NAK
	}
	if first.ID != 1 || first.Status != uverbs.StatusRemoteAccess && what == "refused" || second.ID != 2 || second.Status != uverbs.StatusFlushed {
		return fmt.Errorf("the READ with a wrong key ended as %q and the one behind it as %q: want %q and %q", first.Status, second.Status, uverbs.StatusRemoteAccess, uverbs.StatusFlushed)
	}
	state, err := p.a.qp.QueryState()
	if err != nil {
		return err
	}
	if state != uverbs.StateErr {
		return fmt.Errorf("the queue pair is in %v after the error, want %v", state, uverbs.StateErr)
	}
	step.Text = fmt.Sprintf("a READ with a wrong rkey was %s, the READ behind it %v, the queue pair is in %v", what, second.Status, state)
	return nil
}

// explain writes into a step what a failed completion means.
func (s *demoStep) explain(w uverbs.WC, isMlx5 bool) {
	f := decode.Finding{
		Status: decode.Opt[cq.Status]{V: w.Status, OK: true},
		Side:   decode.Opt[cq.Side]{V: w.Side, OK: true},
	}
	if isMlx5 {
		f.Vendor = decode.Opt[uint32]{V: w.VendorErr, OK: true}
		s.VendorSyndrome, s.Vendor = &w.VendorErr, mlx5.VendorSyndrome(w.VendorErr).String()
	}
	e := decode.Explain(&f)
	s.Status, s.StatusText, s.Means, s.Look = new(uint32(w.Status)), w.Status.String(), e.Means, e.Look
}
