package model_test

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// A queue pair is refused whose completion queues want to be stamped in two formats, or
// in one that the device has not: as get_qp_ts_format of the kernel's driver does, which
// this table is of. A queue that asks for nothing takes what the device has by itself.
func TestStampFormats(t *testing.T) {
	plain, ticks, realTime, both := cqOptions{}, cqOptions{timestamps: true}, cqOptions{realTime: true}, cqOptions{timestamps: true, realTime: true}
	const ok, no = request.Errno(0), request.EOPNOTSUPP
	for _, c := range []struct {
		send, recv                   cqOptions
		all, ticksOnly, realTimeOnly request.Errno
	}{
		{plain, plain, ok, ok, ok},
		{ticks, ticks, ok, ok, no},
		{ticks, plain, ok, ok, no},
		{plain, ticks, ok, ok, no},
		{realTime, realTime, ok, no, ok},
		{both, realTime, ok, no, ok}, // real time wins
		{realTime, plain, no, no, ok},
		{plain, realTime, no, no, ok},
		{realTime, ticks, no, no, no},
		{ticks, realTime, no, no, no},
	} {
		for formats, want := range map[model.TimestampFormats]request.Errno{model.AllTimestamps: c.all, model.TicksOnly: c.ticksOnly, model.RealTimeOnly: c.realTimeOnly} {
			m := newModel(t, model.DeviceConfig{Name: "sim0", Timestamps: formats})
			k := open(t, m, "sim0")
			_, err := k.tryQP(rc, k.cq(16, c.send), k.cq(16, c.recv), qpOptions{})
			if want == ok {
				k.must("make a queue pair", err)
			} else {
				wantErrno(t, "a queue pair", err, want)
			}
			if said := k.ctx.CompMask&uint32(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS) != 0; said != (formats != model.TicksOnly) {
				t.Errorf("formats %d: the context says that there is real time: %v", formats, said)
			}
			noViolations(t, m)
		}
	}
}

// A device that compresses nothing says so, and refuses what asks for it. What the driver
// takes for no wish is none.
func TestNoCompression(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0", NoCompression: true})
	c := open(t, m, "sim0")
	data := new(abi.MLX5IBQueryDeviceResp)
	c.must("query", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE|1<<31, core(make([]byte, 8)), coreOut(make([]byte, abi.SizeofUverbsExQueryDeviceResp)), uhwOut(data.Bytes()))...))
	if data.CQECompCaps != (abi.MLX5IBCQECompCaps{}) || data.Flags&uint32(abi.MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP) != 0 {
		t.Errorf("%+v", data)
	}
	for enable, want := range map[uint8]request.Errno{0: 0, 1: request.EOPNOTSUPP, 2: 0} {
		u := abi.MLX5IBCreateCQ{BufAddr: at(newRing(t, 16, 64)), DBAddr: at(pages(t, 64)), CQESize: 64, Flags: 2, UARPageIndex: uint16(c.ncID), CQECompEn: enable, CQECompResFormat: 1}
		wantErrno(t, "a queue that compresses", ioctl(c.f, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE,
			object(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, 0), in(abi.UVERBS_ATTR_CREATE_CQ_CQE, u32(15)), in(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, u64(0)),
			in(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, u32(0)), out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, make([]byte, 4)), uhw(u.Bytes()), uhwOut(make([]byte, 8))), want)
	}
}

// The page of the counter counts when it is asked to, until the program has it no more.
func TestCounterPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, model.DeviceConfig{Name: "sim0"})
		d := m.Device("sim0")
		const offset = 5 << 8 << 12 // MLX5_IB_MMAP_CORE_CLOCK
		c := open(t, m, "sim0")
		_, err := c.f.Map(offset, 4096, false)
		wantErrno(t, "the counter of a file that has none", err, request.EOPNOTSUPP)
		f, err := d.Open(model.Local{}, &model.OpenOptions{Counter: true})
		c.must("open", err)
		defer f.Close()
		r, err := getContext(f, (&abi.MLX5IBAllocUcontextReqV2{TotalNumBfregs: 16, NumLowLatencyBfregs: 4, MaxCQEVersion: 1, LibCaps: 3}).Bytes())
		c.must("GET_CONTEXT", err)
		if r.CompMask&uint32(abi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET) == 0 || r.HCACoreClockOffset != 0 {
			t.Errorf("%+v", r)
		}
		if _, err := f.Map(offset, 4096, true); err == nil {
			t.Error("the counter can be mapped for writing")
		}
		if _, err := f.Map(offset+4096, 4096, false); err == nil {
			t.Error("a second counter")
		}
		p, err := f.Map(offset, 4096, false)
		c.must("map the counter", err)
		if p.Kind != model.MapCounter {
			t.Errorf("kind %d", p.Kind)
		}
		if p.Refresh() == nil {
			t.Error("a page was refreshed that is nowhere")
		}
		page := pages(t, 4096)
		c.must("place it", p.Place(at(page)))
		if p.Place(at(page)) == nil {
			t.Error("it is at two places")
		}
		last := binary.BigEndian.Uint64(page)
		if last != d.Cycles() {
			t.Errorf("%#x, the counter is %#x", last, d.Cycles())
		}
		time.Sleep(time.Second)
		c.must("refresh", p.Refresh())
		if now := binary.BigEndian.Uint64(page); now-last != 1e9 {
			t.Errorf("%d ticks of a nanosecond in a second", now-last)
		}
		p.Withdraw()
		clear(page)
		if p.Refresh() == nil || binary.BigEndian.Uint64(page) != 0 {
			t.Error("a page was refreshed that was withdrawn")
		}
		clock, err := f.Map(7<<8<<12, 4096, false)
		c.must("map the clock", err)
		c.must("place it", clock.Place(at(page)))
		clock.Withdraw()
		clear(page)
		time.Sleep(time.Hour)
		d.Cycles() // work, which brings clocks up to date
		for _, b := range page {
			if b != 0 {
				t.Fatal("a clock page was written that was withdrawn")
			}
		}
		noViolations(t, m)
	})
}
