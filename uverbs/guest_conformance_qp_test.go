package uverbs_test

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// conformanceQP makes a queue pair of a type with a completion queue of its own.
func conformanceQP(t *testing.T, typ uverbs.QPType, opts uverbs.QPOptions) (*uverbs.QP, error) {
	t.Helper()
	d := guestDevice(t)
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	if opts.CQ, err = d.NewCQ(100, nil); err != nil {
		t.Fatal(err)
	}
	return pd.NewQP(typ, &opts)
}

var allTypes = []uverbs.QPType{uverbs.RC, uverbs.UC, uverbs.UD}

// New queue pairs are in INIT, those for datagrams in RTS; back in RESET they are in
// RESET, also by what the kernel says.
func TestGuestConformanceQP_Create(t *testing.T) {
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			want := uverbs.StateInit
			if typ == uverbs.UD {
				want = uverbs.StateRTS
			}
			qp, err := conformanceQP(t, typ, uverbs.QPOptions{SendDepth: 10, RecvDepth: 20, SendSGE: 2, RecvSGE: 3, Inline: 16})
			if err != nil {
				t.Fatal(err)
			}
			if s, err := qp.QueryState(); err != nil || s != want || qp.State() != want || qp.Type() != typ || qp.QPN() == 0 || qp.QPN() > 1<<24-1 {
				t.Errorf("%v %#x in %v, by the kernel %v, %v; want %v", qp.Type(), qp.QPN(), qp.State(), s, err, want)
			}
			if err := qp.Modify(uverbs.StateReset); err != nil {
				t.Fatal(err)
			}
			if s, err := qp.QueryState(); err != nil || s != uverbs.StateReset || qp.State() != s {
				t.Errorf("after RESET in %v, by the kernel %v, %v", qp.State(), s, err)
			}
			if err := qp.Restart(); err != nil {
				t.Fatal(err)
			}
			if s, err := qp.QueryState(); err != nil || s != want {
				t.Errorf("restarted in %v, %v; want %v", s, err, want)
			}
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
			if err := qp.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("closed again: %v", err)
			}
		})
	}
}

// A queue pair takes what it was asked to take, or more, and the kernel says the same.
func TestGuestConformanceQP_Query(t *testing.T) {
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			asked := uverbs.QPLimits{SendDepth: 13, RecvDepth: 21, SendSGE: 3, RecvSGE: 2, Inline: 60}
			qp, err := conformanceQP(t, typ, uverbs.QPOptions{SendDepth: asked.SendDepth, RecvDepth: asked.RecvDepth, SendSGE: asked.SendSGE, RecvSGE: asked.RecvSGE, Inline: asked.Inline})
			if err != nil {
				t.Fatal(err)
			}
			i, err := qp.Query()
			if err != nil {
				t.Fatal(err)
			}
			if i.State != qp.State() || i.Port != 1 {
				t.Errorf("in %v on port %d, want %v on port 1", i.State, i.Port, qp.State())
			}
			for whose, got := range map[string]uverbs.QPLimits{"the kernel's": i.Limits, "ours": qp.Limits()} {
				if got.SendDepth < asked.SendDepth || got.RecvDepth < asked.RecvDepth || got.SendSGE < asked.SendSGE || got.RecvSGE < asked.RecvSGE || got.Inline < asked.Inline {
					t.Errorf("%s limits are %+v, asked were %+v", whose, got, asked)
				}
			}
			if sends, receives := qp.SendQueue().Room(), qp.RecvQueue().Room(); sends != qp.Limits().SendDepth || receives != qp.Limits().RecvDepth {
				t.Errorf("room for %d sends and %d receives, the limits are %+v", sends, receives, qp.Limits())
			}
		})
	}
}

// Numbers that no queue pair can have are refused, each alone.
func TestGuestConformanceQP_IllegalCaps(t *testing.T) {
	for name, opts := range map[string]uverbs.QPOptions{
		"send depth":       {SendDepth: math.MaxInt32},
		"receive depth":    {RecvDepth: math.MaxInt32},
		"spans of send":    {SendSGE: 0xffff},
		"spans of receive": {RecvSGE: 0xffff},
	} {
		t.Run(name, func(t *testing.T) {
			for _, overrun := range []bool{false, true} {
				opts.AllowOverrun = overrun
				qp, err := conformanceQP(t, uverbs.UD, opts)
				if !errors.Is(err, uverbs.ErrInvalid) {
					t.Errorf("%+v: %v, %v", opts, qp, err)
				}
			}
		})
	}
	// One more than the device says is too many, too.
	a := guestDevice(t).Attr()
	for _, opts := range []uverbs.QPOptions{{SendDepth: a.MaxQPWR + 1}, {RecvDepth: a.MaxQPWR + 1}, {SendSGE: a.MaxSGE + 1}, {RecvSGE: a.MaxSGE + 1}} {
		opts.AllowOverrun = true
		if qp, err := conformanceQP(t, uverbs.RC, opts); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%+v: %v, %v", opts, qp, err)
		}
	}
}

// A datagram queue pair that is taken from RESET to RTS by hand has the Q_Key and the
// packet sequence number that it was given on the way.
func TestGuestConformanceQP_ModifyUD(t *testing.T) {
	qp, err := conformanceQP(t, uverbs.UD, uverbs.QPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time, from the RESET that the first ends with
		if err := qp.Modify(uverbs.StateReset); err != nil {
			t.Fatal(err)
		}
		if err := qp.Modify(uverbs.StateInit, uverbs.AttrPKeyIndex(0), uverbs.AttrPort(1), uverbs.AttrQKey(0x123)); err != nil {
			t.Fatal(err)
		}
		if i, err := qp.Query(); err != nil || i.State != uverbs.StateInit || i.QKey != 0x123 || i.PKeyIndex != 0 {
			t.Errorf("%+v, %v", i, err)
		}
		if err := errors.Join(qp.Modify(uverbs.StateRTR), qp.Modify(uverbs.StateRTS, uverbs.AttrSendPSN(0x45))); err != nil {
			t.Fatal(err)
		}
		if i, err := qp.Query(); err != nil || i.State != uverbs.StateRTS || i.SendPSN != 0x45 || i.QKey != 0x123 {
			t.Errorf("%+v, %v", i, err)
		}
	}
	if err := qp.Modify(uverbs.StateReset); err != nil {
		t.Fatal(err)
	}
	if s, err := qp.QueryState(); err != nil || s != uverbs.StateReset {
		t.Errorf("%v, %v", s, err)
	}
}
