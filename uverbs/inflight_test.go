package uverbs

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// slowFile holds one ioctl back, before or after the kernel has carried it out,
// and reports destructions meanwhile: the kernel refuses those with EBUSY when
// the call uses the object.
type slowFile struct {
	kernel.File
	command  uint32 // of the write interface
	object   uint16 // or of this object, a creation
	entered  chan struct{}
	goOn     chan struct{}
	after    bool // hold it back after the kernel has carried it out
	taken    atomic.Bool
	inside   atomic.Bool
	destroys atomic.Int32
}

func newSlowFile(d *Device, command uint32) *slowFile {
	s := &slowFile{File: d.file, command: command, entered: make(chan struct{}), goOn: make(chan struct{})}
	d.file = s
	return s
}

func (s *slowFile) Ioctl(req []byte) error {
	object, method := native.Uint16(req[2:]), native.Uint16(req[4:])
	destroy, ok := map[uint16]uint16{
		abi.UVERBS_OBJECT_PD: abi.UVERBS_METHOD_PD_DESTROY, abi.UVERBS_OBJECT_MR: abi.UVERBS_METHOD_MR_DESTROY,
		abi.UVERBS_OBJECT_CQ: abi.UVERBS_METHOD_CQ_DESTROY, abi.UVERBS_OBJECT_QP: abi.UVERBS_METHOD_QP_DESTROY,
	}[object]
	if ok && method == destroy && s.inside.Load() {
		s.destroys.Add(1)
	}
	slow := object == abi.UVERBS_OBJECT_DEVICE && method == abi.UVERBS_METHOD_INVOKE_WRITE && native.Uint32(req[headerSize+8:]) == s.command
	if s.command == 0 {
		slow = object == s.object && method == abi.UVERBS_METHOD_QP_CREATE
	}
	if !slow || s.taken.Swap(true) {
		return s.File.Ioctl(req)
	}
	var err error
	if s.after {
		err = s.File.Ioctl(req)
	}
	s.inside.Store(true)
	close(s.entered)
	<-s.goOn
	s.inside.Store(false)
	if !s.after {
		err = s.File.Ioctl(req)
	}
	return err
}

// beside runs shut while call is inside the kernel, and returns what came of
// both.
func (s *slowFile) beside(t *testing.T, call, shut func() error) (called, shutErr error) {
	t.Helper()
	done, closed := make(chan error, 1), make(chan error, 1)
	go func() { done <- call() }()
	select {
	case <-s.entered:
	case <-time.After(patience):
		t.Fatal("the call did not reach the kernel")
	}
	go func() { closed <- shut() }()
	select {
	case shutErr = <-closed:
		closed <- shutErr
	case <-time.After(20 * time.Millisecond): // it waits for the call
	}
	close(s.goOn)
	called, shutErr = <-done, <-closed
	if n := s.destroys.Load(); n != 0 {
		t.Errorf("%d objects were destroyed while a call used them", n)
	}
	return called, shutErr
}

// Close waits for calls on the object that are inside the kernel.
func TestCloseWaitsForCalls(t *testing.T) {
	for name, test := range map[string]struct {
		command uint32
		call    func(r *rig) error
		shut    func(r *rig) error
	}{
		"modify": {abi.IB_USER_VERBS_CMD_MODIFY_QP, func(r *rig) error { return r.a.Modify(StateErr) }, func(r *rig) error { return r.a.Close() }},
		"query state": {abi.IB_USER_VERBS_CMD_QUERY_QP, func(r *rig) error { _, err := r.a.QueryState(); return err },
			func(r *rig) error { return r.a.Close() }},
		"query": {abi.IB_USER_VERBS_CMD_QUERY_QP, func(r *rig) error { _, err := r.a.Query(); return err },
			func(r *rig) error { return r.a.Close() }},
		"arm": {abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, func(r *rig) error { return r.sendQ.Arm(false) },
			func(r *rig) error { return errors.Join(r.a.Close(), r.b.Close(), r.sendQ.Close()) }},
		"resize": {abi.IB_USER_VERBS_CMD_RESIZE_CQ, func(r *rig) error { return r.sendQ.ResizeOwned(100) },
			func(r *rig) error { return errors.Join(r.a.Close(), r.b.Close(), r.sendQ.Close()) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, true)
			if name == "arm" || name == "resize" {
				if err := errors.Join(r.a.Close(), r.b.Close()); err != nil {
					t.Fatal(err)
				}
				shut := test.shut
				test.shut = func(r *rig) error {
					if err := shut(r); !errors.Is(err, os.ErrClosed) {
						return err
					}
					return nil
				}
			}
			called, closed := newSlowFile(r.dev, test.command).beside(t,
				func() error { return test.call(r) }, func() error { return test.shut(r) })
			if called != nil || closed != nil {
				t.Errorf("the call: %v; Close: %v", called, closed)
			}
		})
	}
}

// What an object is being made on cannot be closed before it stands.
func TestCloseWaitsForMakers(t *testing.T) {
	region := func(r *rig) error { _, err := r.pd.Register(r.mem.Bytes(), LocalWrite); return err }
	pair := func(r *rig) error {
		_, err := r.pd.NewQP(RC, &QPOptions{CQ: r.recvQ, SendDepth: 1, RecvDepth: 1})
		return err
	}
	for name, test := range map[string]struct {
		command uint32
		object  uint16
		make    func(r *rig) error
		shut    func(r *rig) error
	}{
		"PD under a region": {abi.IB_USER_VERBS_CMD_REG_MR, 0, region, func(r *rig) error { return r.pd.Close() }},
		"PD under a QP":     {0, abi.UVERBS_OBJECT_QP, pair, func(r *rig) error { return r.pd.Close() }},
		"CQ under a QP":     {0, abi.UVERBS_OBJECT_QP, pair, func(r *rig) error { return r.recvQ.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false)
			if err := errors.Join(r.a.Close(), r.b.Close(), r.mr.Close()); err != nil {
				t.Fatal(err)
			}
			s := newSlowFile(r.dev, test.command)
			s.object = test.object
			made, closed := s.beside(t, func() error { return test.make(r) }, func() error { return test.shut(r) })
			if made != nil || !errors.Is(closed, ErrInUse) {
				t.Errorf("made: %v; Close: %v, want %v", made, closed, ErrInUse)
			}
		})
	}
}

// Device.Close beside a call that makes something: whichever is first, all is
// closed afterwards and the memory is free.
func TestDeviceCloseBesideMakers(t *testing.T) {
	for name, test := range map[string]struct {
		command uint32
		object  uint16
		make    func(r *rig) error
	}{
		"PD":     {abi.IB_USER_VERBS_CMD_ALLOC_PD, 0, func(r *rig) error { _, err := r.dev.NewPD(); return err }},
		"region": {abi.IB_USER_VERBS_CMD_REG_MR, 0, func(r *rig) error { _, err := r.pd.Register(r.mem.Bytes(), LocalWrite); return err }},
		"CQ": {0, abi.UVERBS_OBJECT_CQ, func(r *rig) error {
			_, err := r.dev.NewCQ(4, &CQOptions{Events: true})
			return err
		}},
		"QP": {0, abi.UVERBS_OBJECT_QP, func(r *rig) error {
			_, err := r.pd.NewQP(RC, &QPOptions{CQ: r.recvQ, SendDepth: 1, RecvDepth: 1})
			return err
		}},
		"channel": {abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 0, func(r *rig) error { _, err := r.dev.NewChannel(); return err }},
	} {
		for _, after := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, true)
				s := newSlowFile(r.dev, test.command)
				s.object, s.after = test.object, after
				made, closed := s.beside(t, func() error { return test.make(r) }, r.dev.Close)
				if made != nil && !errors.Is(made, os.ErrClosed) || closed != nil {
					t.Errorf("made: %v; Close: %v", made, closed)
				}
				if err := r.mem.Close(); err != nil {
					t.Errorf("close memory: %v", err)
				}
			})
		}
	}
}

// The handle of a closed object, which may be another's by now, does not reach
// the kernel.
func TestNothingIsMadeOnClosedObjects(t *testing.T) {
	r := newRig(t, false)
	pd, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	q, err := r.dev.NewCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pd.Close(), q.Close()); err != nil {
		t.Fatal(err)
	}
	made := 0
	r.k.Fail(func(c fakekernel.Call) error {
		if c.Command == abi.IB_USER_VERBS_CMD_REG_MR || c.Method == (fakekernel.Method{Object: abi.UVERBS_OBJECT_QP, Method: abi.UVERBS_METHOD_QP_CREATE}) {
			made++
		}
		return nil
	})
	_, err = pd.Register(r.mem.Bytes(), LocalWrite)
	says(t, "region", err, os.ErrClosed, "PD was closed")
	_, err = pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 1, RecvDepth: 1})
	says(t, "QP on a closed PD", err, os.ErrClosed, "PD was closed")
	_, err = r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 1})
	says(t, "QP on a closed CQ", err, os.ErrClosed, "CQ was closed")
	if made != 0 {
		t.Errorf("%d requests with the handles of closed objects", made)
	}
}
