package model_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

func getContext(f *model.File, req []byte) (resp abi.MLX5IBAllocUcontextResp, err error) {
	b := make([]byte, abi.SizeofMLX5IBAllocUcontextResp)
	err = ioctl(f, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT,
		out(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, make([]byte, 4)), out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, make([]byte, 8)), uhw(req), uhwOut(b))
	copy(resp.Bytes(), b)
	return resp, err
}

func TestGetContext(t *testing.T) {
	type req = abi.MLX5IBAllocUcontextReqV2
	for _, c := range []struct {
		name string
		cfg  model.DeviceConfig
		req  req
		n    int // bytes of it: all by default
		want request.Errno
		ok   func(abi.MLX5IBAllocUcontextResp) bool
	}{
		{name: "dynamic", req: req{TotalNumBfregs: 16, NumLowLatencyBfregs: 4, MaxCQEVersion: 1, LibCaps: 3}, ok: func(r abi.MLX5IBAllocUcontextResp) bool {
			return r.TotBfregs == 0 && r.CQEVersion == 1 && r.BfRegSize == 512 && r.ResponseLength == 72 && r.LogUARSize == 12
		}},
		{name: "static", req: req{TotalNumBfregs: 15, NumLowLatencyBfregs: 4, MaxCQEVersion: 1, LibCaps: 1}, ok: func(r abi.MLX5IBAllocUcontextResp) bool { return r.TotBfregs == 16 }},
		{name: "old", req: req{TotalNumBfregs: 16, NumLowLatencyBfregs: 4}, n: 8, ok: func(r abi.MLX5IBAllocUcontextResp) bool { return r.TotBfregs == 16 && r.CQEVersion == 0 }},
		{name: "kernel without dynamic UARs", cfg: model.DeviceConfig{StaticUARs: true}, req: req{TotalNumBfregs: 16, LibCaps: 3}, ok: func(r abi.MLX5IBAllocUcontextResp) bool { return r.TotBfregs == 16 }},
		{name: "no BlueFlame", cfg: model.DeviceConfig{NoBlueFlame: true}, req: req{TotalNumBfregs: 16, LibCaps: 3}, ok: func(r abi.MLX5IBAllocUcontextResp) bool { return r.BfRegSize == 0 }},
		{name: "DEVX", req: req{TotalNumBfregs: 16, LibCaps: 3, Flags: 1}},
		{name: "DEVX refused", cfg: model.DeviceConfig{NoDevX: true}, req: req{TotalNumBfregs: 16, LibCaps: 3, Flags: 1}, want: request.EINVAL},
		{name: "odd length", req: req{TotalNumBfregs: 16}, n: 12, want: request.EINVAL},
		{name: "no registers", req: req{NumLowLatencyBfregs: 0, LibCaps: 1}, want: request.EINVAL},
		{name: "all exclusive", req: req{TotalNumBfregs: 16, NumLowLatencyBfregs: 16, LibCaps: 3}, want: request.EINVAL},
		{name: "too many", req: req{TotalNumBfregs: 514}, want: request.ENOMEM},
		{name: "unknown flag", req: req{TotalNumBfregs: 16, Flags: 2}, want: request.EOPNOTSUPP},
		{name: "comp_mask", req: req{TotalNumBfregs: 16, CompMask: 1}, want: request.EOPNOTSUPP},
		{name: "reserved", req: req{TotalNumBfregs: 16, Reserved2: 1}, want: request.EOPNOTSUPP},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Name = "sim0"
			m := newModel(t, c.cfg)
			f, err := m.Device("sim0").Open(model.Local{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			b := c.req.Bytes()
			if c.n > 0 {
				b = b[:c.n]
			}
			r, err := getContext(f, b)
			wantErrno(t, "GET_CONTEXT", err, c.want)
			if err == nil && c.ok != nil && !c.ok(r) {
				t.Errorf("context %+v", r)
			}
			if err == nil {
				_, err = getContext(f, b)
				wantErrno(t, "a second GET_CONTEXT", err, request.EINVAL)
			}
		})
	}
}

// What the kernel refuses when queues are made, with its errno.
func TestCreateRefusals(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	buf, db := newRing(t, 16, 64), pages(t, 64)
	createCQ := func(edit func(u *abi.MLX5IBCreateCQ) (cqe, vector uint32)) error {
		u := abi.MLX5IBCreateCQ{BufAddr: at(buf), DBAddr: at(db), CQESize: 64, Flags: 2, UARPageIndex: uint16(c.ncID)}
		cqe, vector := edit(&u)
		return ioctl(c.f, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE,
			object(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, 0), in(abi.UVERBS_ATTR_CREATE_CQ_CQE, u32(cqe)), in(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, u64(0)),
			in(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, u32(vector)), out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, make([]byte, 4)), uhw(u.Bytes()), uhwOut(make([]byte, 8)))
	}
	for name, x := range map[string]struct {
		want request.Errno
		edit func(u *abi.MLX5IBCreateCQ) (cqe, vector uint32)
	}{
		"good":           {0, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { return 15, 3 }},
		"no entries":     {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { return 0, 0 }},
		"too many":       {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { return 1 << 22, 0 }},
		"vector":         {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { return 15, 4 }},
		"size":           {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.CQESize = 32; return 15, 0 }},
		"flag":           {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.Flags |= 8; return 15, 0 }},
		"no UAR":         {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.Flags = 0; return 15, 0 }},
		"unknown UAR":    {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.UARPageIndex = 99; return 15, 0 }},
		"reserved":       {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.Reserved1 = 1; return 15, 0 }},
		"crooked buffer": {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.BufAddr += 64; return 15, 0 }},
		"crooked record": {request.EINVAL, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.DBAddr += 4; return 15, 0 }},
		"no buffer":      {request.EFAULT, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.BufAddr = 0; return 15, 0 }},
		"padding":        {request.EOPNOTSUPP, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.Flags |= 1; return 15, 0 }},
		"no such format": {request.EOPNOTSUPP, func(u *abi.MLX5IBCreateCQ) (uint32, uint32) { u.CQECompEn = 1; return 15, 0 }},
	} {
		wantErrno(t, "CQ: "+name, createCQ(x.edit), x.want)
	}

	cq := c.cq(16, cqOptions{})
	wq := pages(t, 1<<14)
	createQP := func(edit func(u *abi.MLX5IBCreateQP, caps *abi.UverbsQPCap, typ *uint64)) error {
		u := abi.MLX5IBCreateQP{BufAddr: at(wq), DBAddr: at(db), SQWQECount: 64, RQWQECount: 16, RQWQEShift: 6, Flags: 1024, Uidx: 5000, BfregIndex: c.ncID}
		caps, typ := abi.UverbsQPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}, uint64(rc)
		edit(&u, &caps, &typ)
		return ioctl(c.f, abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE,
			object(abi.UVERBS_ATTR_CREATE_QP_HANDLE, 0), object(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, c.pd), object(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq.handle),
			object(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq.handle), in(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, u64(0)), in(abi.UVERBS_ATTR_CREATE_QP_CAP, caps.Bytes()),
			in(abi.UVERBS_ATTR_CREATE_QP_TYPE, u64(typ)), out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, make([]byte, 20)), out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, make([]byte, 4)),
			uhw(u.Bytes()), uhwOut(make([]byte, 40)))
	}
	type edit = func(u *abi.MLX5IBCreateQP, caps *abi.UverbsQPCap, typ *uint64)
	for name, x := range map[string]struct {
		want request.Errno
		edit edit
	}{
		"good":            {0, func(*abi.MLX5IBCreateQP, *abi.UverbsQPCap, *uint64) {}},
		"type":            {request.EOPNOTSUPP, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, typ *uint64) { *typ = 9 }},
		"unknown flag":    {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.Flags |= 1 << 20 }},
		"signature":       {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.Flags |= 1 }},
		"bfreg and UAR":   {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.Flags |= 8 }},
		"no UAR":          {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.Flags = 0 }},
		"unknown UAR":     {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.BfregIndex = 99 }},
		"user index":      {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.Uidx = 0xffffff }},
		"blocks":          {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.SQWQECount = 48 }},
		"too many blocks": {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.SQWQECount = 1 << 16 }},
		"receives":        {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.RQWQECount = 12 }},
		"small receives":  {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.RQWQEShift = 3 }},
		"large receives":  {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.RQWQEShift = 10 }},
		"no send queue":   {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.SQWQECount = 0 }},
		"requests":        {request.EINVAL, func(u *abi.MLX5IBCreateQP, caps *abi.UverbsQPCap, _ *uint64) { caps.MaxSendWR = 1 << 20 }},
		"crooked record":  {request.EINVAL, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.DBAddr += 4 }},
		"no buffer":       {request.EFAULT, func(u *abi.MLX5IBCreateQP, _ *abi.UverbsQPCap, _ *uint64) { u.BufAddr = 0 }},
	} {
		wantErrno(t, "QP: "+name, createQP(x.edit), x.want)
	}

	r := c.mr(8192, allAccess)
	reg := func(edit func(q *abi.UverbsRegMR)) error {
		q := abi.UverbsRegMR{Start: r.addr, Length: 4096, HCAVA: r.addr, PDHandle: c.pd, AccessFlags: 1}
		edit(&q)
		return ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_REG_MR, core(q.Bytes()), coreOut(make([]byte, 12)))...)
	}
	for name, x := range map[string]struct {
		want request.Errno
		edit func(q *abi.UverbsRegMR)
	}{
		"good":                       {0, func(q *abi.UverbsRegMR) {}},
		"optional":                   {0, func(q *abi.UverbsRegMR) { q.AccessFlags |= 1 << 20 }},
		"remote write without local": {request.EINVAL, func(q *abi.UverbsRegMR) { q.AccessFlags = 2 }},
		"unknown right":              {request.EINVAL, func(q *abi.UverbsRegMR) { q.AccessFlags |= 1 << 16 }},
		"no bytes":                   {request.EINVAL, func(q *abi.UverbsRegMR) { q.Length = 0 }},
		"too long":                   {request.EINVAL, func(q *abi.UverbsRegMR) { q.Length = 1<<64 - 1 }},
		"crooked":                    {request.EINVAL, func(q *abi.UverbsRegMR) { q.HCAVA++ }},
		"no PD":                      {request.EINVAL, func(q *abi.UverbsRegMR) { q.PDHandle = 99 }},
		"no memory":                  {request.EFAULT, func(q *abi.UverbsRegMR) { q.Start, q.HCAVA = 0, 0 }},
	} {
		wantErrno(t, "MR: "+name, reg(x.edit), x.want)
	}
}

// What stands below others cannot go, and handles that are gone are no handles.
func TestDestroy(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	f := w.a.f
	destroyCQ := func() error {
		return ioctl(f, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY, object(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, w.qa.scq.handle), out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, make([]byte, 8)))
	}
	destroyPD := func() error {
		return ioctl(f, abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY, object(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, w.a.pd))
	}
	destroyQP := func() error {
		return ioctl(f, abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY, object(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, w.qa.handle), out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4)))
	}
	wantErrno(t, "CQ below a QP", destroyCQ(), request.EBUSY)
	wantErrno(t, "PD below a QP", destroyPD(), request.EBUSY)
	wantErrno(t, "a PD's handle for a QP", ioctl(f, abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY, object(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, w.a.pd), out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4))), request.ENOENT)
	wantErrno(t, "QP", destroyQP(), 0)
	wantErrno(t, "QP again", destroyQP(), request.ENOENT)
	wantErrno(t, "CQ", destroyCQ(), 0)
	wantErrno(t, "PD below an MR", destroyPD(), request.EBUSY)
	wantErrno(t, "MR", ioctl(f, abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY, object(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, w.ma.handle)), 0)
	wantErrno(t, "PD", destroyPD(), 0)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != os.ErrClosed {
		t.Errorf("closed twice: %v", err)
	}
	if err := destroyPD(); err != os.ErrClosed {
		t.Errorf("an ioctl after Close: %v", err)
	}
}

// Every way from state to state, with all that it needs, without each, and with what it
// does not take.
func TestTransitions(t *testing.T) {
	type way struct{ from, to uint8 }
	masks := map[uint64]map[way]uint32{
		rc: {{0, 1}: initMask, {1, 1}: 1, {1, 2}: rtrMask, {2, 3}: rtsMask, {3, 3}: 1, {3, 4}: 1, {4, 3}: 1, {4, 4}: 1},
		uc: {{0, 1}: initMask, {1, 1}: 1, {1, 2}: rtrMaskUC, {2, 3}: rtsMaskUC, {3, 3}: 1, {3, 4}: 1, {4, 3}: 1, {4, 4}: 1},
		ud: {{0, 1}: initMaskUD, {1, 1}: 1, {1, 2}: 1, {2, 3}: rtsMaskUC, {3, 3}: 1, {3, 4}: 1, {4, 3}: 1, {4, 4}: 1},
	}
	for typ, ways := range masks {
		m := newModel(t, model.DeviceConfig{Name: "sim0"})
		c := open(t, m, "sim0")
		cq := c.cq(16, cqOptions{})
		attrs := func(mask uint32, to uint8) abi.UverbsModifyQP {
			return abi.UverbsModifyQP{
				AttrMask: mask, QPState: to, PortNum: 1, PathMTU: 3, DestQPNum: 1, QKey: 1, Timeout: 1,
				Dest: abi.UverbsQPDest{DGID: c.gid(1), SGIDIndex: 1, IsGlobal: 1, PortNum: 1},
			}
		}
		reach := func(q *pair, state uint8) {
			for s := range state {
				to := s + 1
				if state == stateErr {
					q.to(stateErr)
					return
				}
				c.must(fmt.Sprintf("state %d", to), q.modify(attrs(ways[way{s, to}], to)))
			}
		}
		for _, from := range []uint8{0, 1, 2, 3, 4, 6} {
			for to := range uint8(8) {
				q := c.qp(typ, cq, cq, qpOptions{})
				reach(q, from)
				mask, allowed := ways[way{from, to}]
				if to == stateReset || to == stateErr {
					mask, allowed = 1, true
				}
				if !allowed {
					for _, mask := range []uint32{1, initMask, rtrMask, rtsMask} {
						wantErrno(t, fmt.Sprintf("type %d from %d to %d", typ, from, to), q.modify(attrs(mask, to)), request.EINVAL)
					}
					continue
				}
				for bit := uint32(2); bit < 1<<21; bit <<= 1 {
					if mask&bit != 0 {
						wantErrno(t, fmt.Sprintf("type %d from %d to %d without %#x", typ, from, to, bit), q.modify(attrs(mask&^bit, to)), request.EINVAL)
					}
				}
				wantErrno(t, fmt.Sprintf("type %d from %d to %d with a capability", typ, from, to), q.modify(attrs(mask|1<<19, to)), request.EINVAL)
				wantErrno(t, fmt.Sprintf("type %d from %d to %d", typ, from, to), q.modify(attrs(mask, to)), 0)
				if got := q.state(); got != to {
					t.Errorf("type %d from %d to %d: state %d", typ, from, to, got)
				}
			}
		}
	}
}

func TestModifyRefusals(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	cq := c.cq(16, cqOptions{})
	q := c.qp(rc, cq, cq, qpOptions{})
	q.init(usual)
	good := func() abi.UverbsModifyQP {
		return abi.UverbsModifyQP{AttrMask: rtrMask, QPState: stateRTR, PathMTU: 3, DestQPNum: 1, MaxDestRdAtomic: 16, Dest: abi.UverbsQPDest{DGID: c.gid(1), SGIDIndex: 1, IsGlobal: 1, PortNum: 1}}
	}
	for name, x := range map[string]struct {
		want request.Errno
		edit func(m *abi.UverbsModifyQP)
	}{
		"MTU":            {request.EINVAL, func(m *abi.UverbsModifyQP) { m.PathMTU = 6 }},
		"no MTU":         {request.EINVAL, func(m *abi.UverbsModifyQP) { m.PathMTU = 0 }},
		"reads":          {request.EINVAL, func(m *abi.UverbsModifyQP) { m.MaxDestRdAtomic = 17 }},
		"QPN":            {request.EINVAL, func(m *abi.UverbsModifyQP) { m.DestQPNum = 1 << 24 }},
		"timer":          {request.EINVAL, func(m *abi.UverbsModifyQP) { m.MinRNRTimer = 32 }},
		"port":           {request.EINVAL, func(m *abi.UverbsModifyQP) { m.Dest.PortNum = 2 }},
		"local":          {request.EINVAL, func(m *abi.UverbsModifyQP) { m.Dest.IsGlobal = 0 }},
		"GID":            {request.ENODATA, func(m *abi.UverbsModifyQP) { m.Dest.SGIDIndex = 9 }},
		"alternate path": {request.EOPNOTSUPP, func(m *abi.UverbsModifyQP) { m.AttrMask |= 1 << 14 }},
		"unknown":        {request.EOPNOTSUPP, func(m *abi.UverbsModifyQP) { m.AttrMask |= 1 << 28 }},
	} {
		r := good()
		x.edit(&r)
		wantErrno(t, name, q.modify(r), x.want)
	}
	c.must("RTR", q.modify(good()))
	if r := q.query(); r.QPState != stateRTR || r.PathMTU != 3 || r.DestQPNum != 1 || r.MaxDestRdAtomic != 16 || r.Dest.SGIDIndex != 1 {
		t.Errorf("attributes %+v", r)
	}
}

// A region that is registered anew: its parts change one by one.
func TestRereg(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	rereg := func(r *abi.UverbsReregMR) (key uint32, err error) {
		r.MRHandle = w.mb.handle
		b := make([]byte, 8)
		err = ioctl(w.b.f, 0, 0, write(abi.IB_USER_VERBS_CMD_REREG_MR, core(r.Bytes()), coreOut(b))...)
		return ne.Uint32(b), err
	}
	write8 := func(key uint32) cqe {
		w.qa.post(opWrite, signaled, 0, raddr(&region{addr: w.mb.addr, key: key}, 0), sge(w.ma, 0, 8))
		return w.qa.scq.one()
	}
	key, err := rereg(&abi.UverbsReregMR{Flags: 1, Start: w.mb.addr, Length: 8, HCAVA: w.mb.addr})
	w.b.must("REREG_MR", err)
	if c := write8(key); c.opcode != 0 || key == w.mb.key {
		t.Errorf("key %#x, completion %+v", key, c)
	}
	same, err := rereg(&abi.UverbsReregMR{Flags: 4, AccessFlags: remoteRead})
	if err != nil || same != key {
		t.Errorf("key %#x: %v", same, err)
	}
	if c := write8(key); c.syndrome != 0x13 {
		t.Errorf("completion %+v", c)
	}
	_, err = rereg(&abi.UverbsReregMR{Flags: 8})
	wantErrno(t, "unknown flag", err, request.EINVAL)
	b := make([]byte, 8)
	w.b.must("QUERY_MR", ioctl(w.b.f, abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_QUERY_MR, object(abi.UVERBS_ATTR_QUERY_MR_HANDLE, w.mb.handle), out(abi.UVERBS_ATTR_QUERY_MR_RESP_LKEY, make([]byte, 4)),
		out(abi.UVERBS_ATTR_QUERY_MR_RESP_RKEY, make([]byte, 4)), out(abi.UVERBS_ATTR_QUERY_MR_RESP_LENGTH, b)))
	if ne.Uint64(b) != 8 {
		t.Errorf("length %d", ne.Uint64(b))
	}
}

// Event counts of destroyed objects cover what was read, and what was not is dropped.
func TestEventCounts(t *testing.T) {
	w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
	q := w.qb.rcq
	for range 3 {
		q.arm(false)
		w.qb.recv()
		w.qa.post(opSend, 0, 0)
		if !q.event() {
			t.Fatal("no event")
		}
		q.all()
	}
	q.arm(false)
	w.qb.recv()
	w.qa.post(opSend, 0, 0) // an event that nobody reads
	w.b.must("destroy", ioctl(w.b.f, abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY, object(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, w.qb.handle), out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4))))
	b := make([]byte, 8)
	w.b.must("destroy", ioctl(w.b.f, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY, object(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, q.handle), out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, b)))
	if n := ne.Uint32(b); n != 3 {
		t.Errorf("%d events reported, 3 were read", n)
	}
	if q.event() {
		t.Error("an event of a queue that is gone")
	}
}

func TestQueries(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0", Ports: []model.PortConfig{{}, {Down: true, MTU: 1024}}})
	c := open(t, m, "sim0")
	b, u := make([]byte, abi.SizeofUverbsExQueryDeviceResp), make([]byte, abi.SizeofMLX5IBQueryDeviceResp)
	c.must("QUERY_DEVICE", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_FLAG_EXTENDED|abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE, core(make([]byte, 8)), coreOut(b), uhwOut(u))...))
	var d abi.UverbsExQueryDeviceResp
	copy(d.Bytes(), b)
	if d.Base.PhysPortCnt != 2 || d.Base.MaxQPWR != 32768 || d.HCACoreClock != 1_000_000 || int(d.ResponseLength) != len(b) || ne.Uint32(u[4:]) != uint32(len(u)) {
		t.Errorf("device %+v", d)
	}
	if v := d.Base.FWVer; m.Device("sim0").Firmware() != fmt.Sprintf("%d.%d.%04d", v>>32, uint16(v>>16), uint16(v)) {
		t.Errorf("firmware %s by name, %#x by number", m.Device("sim0").Firmware(), v)
	}
	port := func(n uint64) (r abi.UverbsQueryPortRespEx, err error) {
		b := make([]byte, abi.SizeofUverbsQueryPortRespEx)
		err = ioctl(c.f, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT, in(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, u64(n)), out(abi.UVERBS_ATTR_QUERY_PORT_RESP, b))
		copy(r.Bytes(), b)
		return r, err
	}
	p1, err1 := port(1)
	p2, err2 := port(2)
	if err1 != nil || err2 != nil || p1.LegacyResp.State != 4 || p2.LegacyResp.State != 1 || p2.LegacyResp.ActiveMTU != 3 || p1.LegacyResp.LinkLayer != 2 {
		t.Errorf("ports %+v, %+v: %v, %v", p1, p2, err1, err2)
	}
	_, err := port(3)
	wantErrno(t, "port 3", err, request.EINVAL)
	table, n := make([]byte, 10*abi.SizeofUverbsGIDEntry), make([]byte, 8)
	gids := func(room int) error {
		return ioctl(c.f, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_TABLE, in(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, u64(abi.SizeofUverbsGIDEntry)),
			out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table[:room]), out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, n))
	}
	c.must("QUERY_GID_TABLE", gids(len(table)))
	if ne.Uint64(n) != 6 || !slices.Equal(table[:16], sliceOf(c.gid(0))) {
		t.Errorf("%d GIDs, %x", ne.Uint64(n), table[:32])
	}
	wantErrno(t, "little room", gids(abi.SizeofUverbsGIDEntry), request.EINVAL)
	pdn := make([]byte, 4)
	c.must("PD QUERY", ioctl(c.f, abi.UVERBS_OBJECT_PD, abi.MLX5_IB_METHOD_PD_QUERY, object(abi.MLX5_IB_ATTR_QUERY_PD_HANDLE, c.pd), out(abi.MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pdn)))
	if ne.Uint32(pdn) == 0 {
		t.Error("no PDN")
	}
	wantErrno(t, "a method of no driver", ioctl(c.f, abi.UVERBS_OBJECT_XRCD, 0), request.EPROTONOSUPPORT)
	wantErrno(t, "libibverbs' probe", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_QUERY_DEVICE)...), request.ENOSPC)
	resp := make([]byte, abi.SizeofMLX5IBAllocUcontextResp)
	c.must("QUERY_CONTEXT", ioctl(c.f, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_CONTEXT, out(abi.MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, resp)))
	if !slices.Equal(resp, c.ctx.Bytes()) {
		t.Errorf("QUERY_CONTEXT %x, GET_CONTEXT %x", resp, c.ctx.Bytes())
	}
}

func sliceOf(g [16]byte) []byte { return g[:] }

func TestConfigErrors(t *testing.T) {
	for name, c := range map[string][]model.DeviceConfig{
		"no name":       {{}},
		"two names":     {{Name: "a"}, {Name: "a"}},
		"three ports":   {{Name: "a", Ports: make([]model.PortConfig, 3)}},
		"mixed ports":   {{Name: "a", Ports: []model.PortConfig{{}, {InfiniBand: true}}}},
		"MTU":           {{Name: "a", Ports: []model.PortConfig{{MTU: 1500}}}},
		"GID type":      {{Name: "a", Ports: []model.PortConfig{{GIDs: []model.GID{{Addr: [16]byte{1}}}}}}},
		"one GID twice": {{Name: "a", Ports: []model.PortConfig{{GIDs: []model.GID{{Addr: [16]byte{1}, Type: model.GIDRoCE2}}}}}, {Name: "b", Ports: []model.PortConfig{{GIDs: []model.GID{{Addr: [16]byte{1}, Type: model.GIDRoCE2}}}}}},
		"one LID twice": {{Name: "a", Ports: []model.PortConfig{{InfiniBand: true, LID: 5}, {InfiniBand: true, LID: 5}}}},
		"clock":         {{Name: "a", ClockKHz: 5_000_000}},
	} {
		if _, err := model.New(c...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
