package fakekernel

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

func one(t *testing.T, d Device) (*Kernel, *program) {
	t.Helper()
	k := New(d)
	return k, start(t, k, "/dev/infiniband/uverbs0")
}

func TestOpen(t *testing.T) {
	k := New(Device{}, Device{NoPermission: true}, Device{NoNode: true}, Device{NoUverbs: true})
	for path, want := range map[string]error{
		"/dev/infiniband/uverbs0": nil, "/dev/infiniband/uverbs1": syscall.EACCES, "/dev/infiniband/uverbs2": syscall.ENOENT,
		"/dev/infiniband/uverbs3": syscall.ENOENT, "/dev/infiniband/uverbs9": syscall.ENOENT, "/dev/null": syscall.ENOENT,
	} {
		if _, err := k.Open(path, 0); err != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if _, err := k.Open("/dev/infiniband/uverbs0", 1); err != syscall.ENXIO {
		t.Errorf("another device number: %v", err)
	}
	if _, err := k.Open("/dev/infiniband/uverbs0", 231<<8|192); err != nil {
		t.Errorf("the device number: %v", err)
	}
}

func TestContextComesFirst(t *testing.T) {
	k := New(Device{})
	f, err := k.Open("/dev/infiniband/uverbs0", 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, k: k, f: f}
	wantErr(t, "query port", p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT,
		in64(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1), out(abi.UVERBS_ATTR_QUERY_PORT_RESP, make([]byte, 48))), syscall.EINVAL)
	wantErr(t, "the probe of libibverbs", p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE,
		in64(abi.UVERBS_ATTR_WRITE_CMD, abi.IB_USER_VERBS_CMD_QUERY_DEVICE)), syscall.ENOSPC)
	wantErr(t, "allocate PD", p.write(abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 8), make([]byte, 4)), syscall.EINVAL)
	_, err = f.Map(0, 4096)
	wantErr(t, "map", err, syscall.EINVAL)
	p.must(p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT))
	wantErr(t, "a second context", p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT), syscall.EINVAL)
}

func TestUnknown(t *testing.T) {
	_, p := one(t, Device{
		Lacks:         []Method{{abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}},
		LacksCommands: []uint32{abi.IB_USER_VERBS_CMD_QUERY_DEVICE},
	})
	wantErr(t, "method", p.call(abi.UVERBS_OBJECT_DEVICE, 77), syscall.EPROTONOSUPPORT)
	wantErr(t, "lacking method", p.call(abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, ref(0, 0)), syscall.EPROTONOSUPPORT)
	wantErr(t, "lacking command", p.write(abi.IB_USER_VERBS_CMD_QUERY_DEVICE, make([]byte, 8), make([]byte, 176)), syscall.EOPNOTSUPP)
	wantErr(t, "write command 1000", p.write(0x1000, make([]byte, 8), nil), syscall.EINVAL)
	wantErr(t, "short command", p.write(abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 4), make([]byte, 4)), syscall.ENOSPC)
	wantErr(t, "half a request", p.f.Ioctl(make([]byte, 10)), syscall.EINVAL)
	lying := make([]byte, 24)
	ne.PutUint16(lying, 40)
	ne.PutUint16(lying[6:], 1)
	wantErr(t, "a request longer than its memory", p.f.Ioctl(lying), syscall.EINVAL)
	wantErr(t, "output to nowhere", p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT,
		in64(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1), attr{id: abi.UVERBS_ATTR_QUERY_PORT_RESP, n: 48, data: 8}), syscall.EFAULT)
}

func TestHandlesStartAtZero(t *testing.T) {
	k, p := one(t, Device{})
	if h := p.allocPD(); h != 0 {
		t.Errorf("first handle %d", h)
	}
	q := p.cq(1)
	if q.handle != 1 {
		t.Errorf("second handle %d", q.handle)
	}
	wantErr(t, "destroying a CQ as a PD", p.destroy(abi.UVERBS_OBJECT_PD, 1), syscall.ENOENT)
	wantErr(t, "destroying nothing", p.destroy(abi.UVERBS_OBJECT_PD, 9), syscall.ENOENT)
	p.must(p.destroy(abi.UVERBS_OBJECT_PD, 0))
	if h := p.allocPD(); h != 0 {
		t.Errorf("reused handle %d", h)
	}
	if got := k.Objects(); got["PD"] != 1 || got["CQ"] != 1 || got["context"] != 1 {
		t.Errorf("objects %v", got)
	}
}

func TestBusy(t *testing.T) {
	_, p := one(t, Device{})
	pd := p.allocPD()
	q := p.cq(8)
	m := p.reg(pd, pages(1), 0)
	u := p.qp(pd, q)
	wantErr(t, "PD of a QP", p.destroy(abi.UVERBS_OBJECT_PD, pd), syscall.EBUSY)
	wantErr(t, "CQ of a QP", p.destroy(abi.UVERBS_OBJECT_CQ, q.handle), syscall.EBUSY)
	p.must(p.destroy(abi.UVERBS_OBJECT_QP, u.handle))
	p.must(p.destroy(abi.UVERBS_OBJECT_CQ, q.handle))
	wantErr(t, "PD of an MR", p.destroy(abi.UVERBS_OBJECT_PD, pd), syscall.EBUSY)
	p.must(p.destroy(abi.UVERBS_OBJECT_MR, m.MRHandle))
	p.must(p.destroy(abi.UVERBS_OBJECT_PD, pd))
}

func TestRegister(t *testing.T) {
	k, p := one(t, Device{})
	pd := p.allocPD()
	b := pages(3 * pageSize)
	at := addressOf(b)
	for what, c := range map[string]struct {
		q    abi.UverbsRegMR
		want error
	}{
		"local":                        {abi.UverbsRegMR{Start: at + 1, HCAVA: at + 1, Length: 10}, nil},
		"another iova":                 {abi.UverbsRegMR{Start: at + 1, HCAVA: 0x10001, Length: 10}, nil},
		"another page offset":          {abi.UverbsRegMR{Start: at, HCAVA: at + 1, Length: 10}, syscall.EINVAL},
		"no length":                    {abi.UverbsRegMR{Start: at, HCAVA: at}, syscall.EINVAL},
		"remote write without local":   {abi.UverbsRegMR{Start: at, HCAVA: at, Length: 1, AccessFlags: remoteWrite}, syscall.EINVAL},
		"an unknown mandatory bit":     {abi.UverbsRegMR{Start: at, HCAVA: at, Length: 1, AccessFlags: 1 << 15}, syscall.EINVAL},
		"an unknown optional bit":      {abi.UverbsRegMR{Start: at, HCAVA: at, Length: 1, AccessFlags: 1 << 25}, nil},
		"on demand":                    {abi.UverbsRegMR{Start: at, HCAVA: at, Length: 1, AccessFlags: 1 << 6}, syscall.EINVAL},
		"not mapped":                   {abi.UverbsRegMR{Start: 4096, HCAVA: 4096, Length: 1}, syscall.EFAULT},
		"around the end of the memory": {abi.UverbsRegMR{Start: ^uint64(0) - 9, HCAVA: ^uint64(0) - 9, Length: 100}, syscall.EINVAL},
		"all of the memory":            {abi.UverbsRegMR{Start: 4096, HCAVA: 4096, Length: 1 << 62}, syscall.ENOMEM},
	} {
		r, err := p.tryReg(pd, c.q)
		if err != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if err == nil && (r.LKey == 0 || r.RKey != 0) {
			t.Errorf("%s: keys %x %x", what, r.LKey, r.RKey)
		}
	}
	_, err := p.tryReg(99, abi.UverbsRegMR{Start: at, HCAVA: at, Length: 1})
	wantErr(t, "no such PD", err, syscall.ENOENT)
	if r := p.reg(pd, b, remoteRead); r.RKey != r.LKey {
		t.Errorf("keys %x %x", r.LKey, r.RKey)
	}
	k.SetMemlock(8*pageSize, false)
	_, err = p.tryReg(pd, abi.UverbsRegMR{Start: at, HCAVA: at, Length: 3 * pageSize})
	wantErr(t, "over the limit: 6 pages are pinned", err, syscall.ENOMEM)
	k.SetMemlock(8*pageSize, true)
	if limit, exempt := k.Memlock(); limit != 8*pageSize || !exempt {
		t.Error("Memlock does not say what SetMemlock set")
	}
	p.reg(pd, b, 0)
}

func TestCompletionQueueDepths(t *testing.T) {
	_, p := one(t, Device{})
	for ask, want := range map[uint32]uint32{1: 1, 3: 3, 4: 7, 15: 15, 16: 31, 100: 127, 501: 511} {
		if q := p.cq(ask); q.cqe != want || q.mask() != want || q.stride() != 128 {
			t.Errorf("asked for %d: %d, mask %d, slots of %d bytes", ask, q.cqe, q.mask(), q.stride())
		}
	}
	vector := in32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0)
	for what, c := range map[string]struct {
		cqe  uint32
		more []attr
		want error
	}{
		"depth 0":                         {0, []attr{vector}, syscall.EINVAL},
		"depth 32768":                     {32768, []attr{vector}, syscall.EINVAL},
		"no vector":                       {1, nil, syscall.EINVAL},
		"vector 2 of 2":                   {1, []attr{in32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 2)}, syscall.EINVAL},
		"timestamps":                      {1, []attr{vector, in64(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, 1)}, syscall.EOPNOTSUPP},
		"a channel that is 99":            {1, []attr{vector, ref(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 99)}, syscall.EBADF},
		"an asynchronous file as channel": {1, []attr{vector, ref(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, uint64(p.asyncEvents().FD()))}, syscall.EBADF},
	} {
		_, err := p.tryCQ(c.cqe, c.more...)
		wantErr(t, what, err, errnoOr(c.want))
	}
	if q := start(t, New(Device{CQEStride: 64}), "/dev/infiniband/uverbs0").cq(4); q.stride() != 64 {
		t.Errorf("slots of %d bytes", q.stride())
	}
}

func errnoOr(err error) syscall.Errno { e, _ := err.(syscall.Errno); return e }

func TestQueuePairLimits(t *testing.T) {
	_, p := one(t, Device{})
	pd, q := p.allocPD(), p.cq(8)
	u, err := p.tryQP(pd, q, q, abi.UverbsQPCap{MaxSendWR: 1, MaxRecvWR: 500, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInlineData: 100})
	p.must(err)
	if u.cap.MaxSendSGE != 6 || u.cap.MaxInlineData != 100 || len(u.rq.b) != 36864 || len(u.sq.b) != 4096 || u.rq.stride() != 64 {
		t.Errorf("%+v, rings of %d and %d bytes, receives of %d", u.cap, len(u.sq.b), len(u.rq.b), u.rq.stride())
	}
	if u.qpn != 17 {
		t.Errorf("first QP number %d", u.qpn)
	}
	for what, c := range map[string]abi.UverbsQPCap{
		"sends": {MaxSendWR: 1<<20 + 1}, "spans": {MaxSendSGE: 33}, "inline": {MaxInlineData: 513},
	} {
		_, err := p.tryQP(pd, q, q, c)
		wantErr(t, what, err, syscall.EINVAL)
	}
	_, err = p.tryQP(pd, q, q, usualCap, in(abi.UVERBS_ATTR_UHW_IN, []byte{1}))
	wantErr(t, "a driver request", err, syscall.EINVAL)
	_, err = p.tryQP(99, q, q, usualCap)
	wantErr(t, "no such PD", err, syscall.ENOENT)
}

func TestModifyRules(t *testing.T) {
	_, p := one(t, Device{})
	u := p.qp(p.allocPD(), p.cq(8))
	wantErr(t, "RESET to RTR", u.toRTR(u, gids[0]), syscall.EINVAL)
	wantErr(t, "doorbell in RESET", u.ring(), syscall.EINVAL)
	wantErr(t, "INIT on port 2", u.modify(abi.UverbsModifyQP{
		AttrMask: maskState | maskPKeyIndex | maskPort | maskAccess, QPState: uint8(stateInit), PortNum: 2,
	}), syscall.EINVAL)
	wantErr(t, "INIT without access", u.modify(abi.UverbsModifyQP{
		AttrMask: maskState | maskPKeyIndex | maskPort, QPState: uint8(stateInit), PortNum: 1,
	}), syscall.EINVAL)
	p.must(u.toInit())
	wantErr(t, "an unknown bit", u.modify(abi.UverbsModifyQP{AttrMask: 1 << 30}), syscall.EOPNOTSUPP)
	rtr := abi.UverbsModifyQP{
		AttrMask: maskState | maskAV | maskPathMTU | maskDestQPN | maskRQPSN | maskMaxDestRead | maskMinRNRTimer,
		QPState:  uint8(stateRTR), PathMTU: 3, Dest: abi.UverbsQPDest{SGIDIndex: 1, IsGlobal: 1, PortNum: 1},
	}
	for what, c := range map[string]struct {
		spoil func(*abi.UverbsModifyQP)
		want  syscall.Errno
	}{
		"not global":   {func(m *abi.UverbsModifyQP) { m.Dest.IsGlobal = 0 }, syscall.EINVAL},
		"port 0":       {func(m *abi.UverbsModifyQP) { m.Dest.PortNum = 0 }, syscall.EINVAL},
		"an empty GID": {func(m *abi.UverbsModifyQP) { m.Dest.SGIDIndex = 5 }, syscall.ENODATA},
		"MTU 6":        {func(m *abi.UverbsModifyQP) { m.PathMTU = 6 }, syscall.EINVAL},
		"too much":     {func(m *abi.UverbsModifyQP) { m.AttrMask |= maskTimeout }, syscall.EINVAL},
		"too little":   {func(m *abi.UverbsModifyQP) { m.AttrMask &^= maskRQPSN }, syscall.EINVAL},
	} {
		m := rtr
		c.spoil(&m)
		wantErr(t, what, u.modify(m), c.want)
	}
	p.must(u.modify(rtr))
	wantErr(t, "the wrong current state", u.modify(abi.UverbsModifyQP{
		AttrMask: maskState | maskCurState, QPState: uint8(stateRTS), CurQPState: uint8(stateInit),
	}), syscall.EINVAL)
	p.must(u.toRTS())
	resp := new(abi.UverbsQueryQPResp)
	p.must(p.write(abi.IB_USER_VERBS_CMD_QUERY_QP, (&abi.UverbsQueryQP{QPHandle: u.handle}).Bytes(), resp.Bytes()))
	if resp.QPState != uint8(stateRTS) || resp.Timeout != 8 || resp.PathMTU != 3 || resp.SQPSN != psnMask || resp.MaxSendSGE != u.cap.MaxSendSGE {
		t.Errorf("%+v", resp)
	}
	wantErr(t, "RESET with attributes", u.modify(abi.UverbsModifyQP{AttrMask: maskState | maskPort, PortNum: 1}), syscall.EINVAL)
	p.must(u.to(stateErr))
	wantErr(t, "ERR to RTS", u.toRTS(), syscall.EINVAL)
	p.must(u.to(stateReset))
	p.must(u.toInit())
}

func TestTokensAreGoodForOneTime(t *testing.T) {
	k, p := one(t, Device{})
	other := start(t, k, "/dev/infiniband/uverbs0")
	var h uint64
	resp := new(abi.RxeCreateCQResp)
	p.must(p.call(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, made(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, &h),
		in32(abi.UVERBS_ATTR_CREATE_CQ_CQE, 100), in64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 1),
		in32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0), out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, make([]byte, 4)),
		out(abi.UVERBS_ATTR_UHW_OUT, resp.Bytes())))
	at, n := int64(resp.MI.Offset), int(resp.MI.Size)
	for what, try := range map[string]func() (*kernel.Mapping, error){
		"too much":        func() (*kernel.Mapping, error) { return p.f.Map(at, n+1) },
		"nothing":         func() (*kernel.Mapping, error) { return p.f.Map(at, 0) },
		"another offset":  func() (*kernel.Mapping, error) { return p.f.Map(at+pageSize, n) },
		"another context": func() (*kernel.Mapping, error) { return other.f.Map(at, n) },
	} {
		_, err := try()
		wantErr(t, what, err, syscall.EINVAL)
	}
	m, err := p.f.Map(at, n)
	p.must(err)
	_, err = p.f.Map(at, n)
	wantErr(t, "a second time", err, syscall.EINVAL)

	// A mapped ring keeps the context, and its objects, alive.
	p.must(p.f.Close())
	if k.Objects()["CQ"] != 1 {
		t.Error("the CQ is gone though its ring is mapped")
	}
	p.must(m.Unmap())
	p.must(m.Detach())
	if k.Objects()["CQ"] != 0 {
		t.Error("the CQ is there though its ring is not mapped")
	}
}

func TestClosedFile(t *testing.T) {
	k, p := one(t, Device{})
	leaks := strings.Join(k.Leaks(), "\n")
	if !strings.Contains(leaks, "file uverbs0 is open") {
		t.Errorf("leaks: %s", leaks)
	}
	p.must(p.f.Close())
	_, errMap := p.f.Map(1, 1)
	_, errEvents := p.f.Events(1)
	for what, err := range map[string]error{
		"ioctl": p.call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT), "write": p.f.Write(nil),
		"map": errMap, "events": errEvents, "close": p.f.Close(),
	} {
		if err != os.ErrClosed {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWriteInterface(t *testing.T) {
	_, p := one(t, Device{NoWrite: syscall.EACCES})
	wantErr(t, "after a change of credentials", p.f.Write(make([]byte, 32)), syscall.EACCES)
	_, p = one(t, Device{})
	wantErr(t, "half a header", p.f.Write(make([]byte, 4)), syscall.EINVAL)
	b := make([]byte, 32)
	ne.PutUint16(b[4:], 8)
	wantErr(t, "another command", p.f.Write(b), syscall.EOPNOTSUPP)
	ne.PutUint32(b, abi.IB_USER_VERBS_CMD_POST_SEND)
	wantErr(t, "no room for the answer", p.f.Write(b), syscall.ENOSPC)
	ne.PutUint16(b[6:], 1)
	wantErr(t, "no such QP", p.f.Write(b), syscall.EINVAL)
}
