package model_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// wrapped has the methods of the action in it, but is none.
type wrapped struct{ model.Drop }

// Pointers to actions have the methods of their values, and would do nothing.
func TestInjectPointers(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	for _, a := range []struct {
		at model.Point
		do model.Action
	}{
		{model.AtRequest, &model.Drop{}}, {model.AtRequest, (*model.Drop)(nil)}, {model.AtRequest, wrapped{}}, {model.AtRequest, &model.Delay{For: 1}},
		{model.AtRequest, &model.Behind{Requests: 1}}, {model.AtRequest, &model.NotReady{}}, {model.AtRequest, &model.Fail{Syndrome: 1}},
		{model.AtCompletion, &model.Hold{}}, {model.AtCompletion, &model.Overrun{}}, {model.AtEvent, &model.Duplicate{}}, {model.AtEvent, &model.Lose{}},
		{model.AtIoctl, &model.Slow{For: 1}}, {model.AtIoctl, &model.Refuse{Errno: 1}}, {model.AtTime, &model.Port{Number: 1}},
		{model.AtTime, &model.ChangeGID{Port: 1}}, {model.AtTime, &model.Fatal{}}, {model.AtTime, (*model.Fatal)(nil)},
	} {
		f := model.Fault{At: a.at, Do: a.do}
		if a.at == model.AtTime {
			f.Device = "sim0"
		}
		err := m.Inject(f)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T", a.do)) || !strings.Contains(err.Error(), "no pointer") {
			t.Errorf("%T: %v", a.do, err)
		}
	}
}

// Faults that could never happen, or that contradict themselves.
func TestInjectNever(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "ib0", Ports: []model.PortConfig{{InfiniBand: true}}})
	refuse := model.Refuse{Errno: request.ENOMEM}
	gid := func(device string, addr byte, typ model.GIDType) model.Fault {
		return model.Fault{At: model.AtTime, Device: device, Do: model.ChangeGID{Port: 1, Index: 1, GID: model.GID{Addr: [16]byte{addr, 15: 1}, Type: typ}}}
	}
	for _, c := range []struct {
		want string
		f    model.Fault
	}{
		{"did you mean UVERBS_METHOD_CQ_CREATE", model.Fault{At: model.AtIoctl, Method: "UVERBS_METHOD_CQ_CRAETE", Do: refuse}},
		{"IB_USER_VERBS_CMD_REG_MR", model.Fault{At: model.AtIoctl, Method: "reg_mr", Do: refuse}},
		{"see abi.Methods", model.Fault{At: model.AtIoctl, Method: "TYPOTYPOTYPOTYPO", Do: refuse}},
		{"see abi.Methods", model.Fault{At: model.AtIoctl, Method: strings.Repeat("x", 1<<20), Do: refuse}},
		{`"ioctl"`, model.Fault{At: model.AtIoctl, Number: 1, Do: refuse}},
		{"no event of type 13", model.Fault{At: model.AtAsync, Number: 14, Do: model.Lose{}}},
		{"10 PORT_ERR", model.Fault{At: model.AtAsync, Number: 1 << 20, Do: model.Lose{}}},
		{"24 bits", model.Fault{At: model.AtRequest, Number: 1 << 24, Do: model.Drop{}}},
		{"24 bits", model.Fault{At: model.AtCompletion, Number: 1 << 24, Do: model.Overrun{}}},
		{"24 bits", model.Fault{At: model.AtEvent, Number: 1 << 24, Do: model.Lose{}}},
		{"HasOpcode", model.Fault{Opcode: opSend, Do: model.Drop{}}},
		{"HasOpcode", model.Fault{At: model.AtEvent, HasOpcode: true, Do: model.Lose{}}},
		{"0x0a send", model.Fault{Opcode: 0x77, HasOpcode: true, Do: model.Drop{}}},
		{"After is 1s", model.Fault{After: time.Second, Do: model.Drop{}}},
		{"After is -1s", model.Fault{At: model.AtTime, Device: "sim0", After: -time.Second, Do: model.Fatal{}}},
		{"say to which", model.Fault{At: model.AtTime, Do: model.Fatal{}}},
		{"a time comes once", model.Fault{At: model.AtTime, Device: "sim0", Nth: 1, Do: model.Fatal{}}},
		{"a time comes once", model.Fault{At: model.AtTime, Device: "sim0", Times: 2, Do: model.Fatal{}}},
		{"a time comes once", model.Fault{At: model.AtTime, Device: "sim0", Times: model.Forever, Do: model.Fatal{}}},
		{`"time"`, model.Fault{At: model.AtTime, Device: "sim0", Number: 7, Do: model.Fatal{}}},
		{"errno 4096", model.Fault{At: model.AtIoctl, Do: model.Refuse{Errno: 4096}}},
		{"there are sim0, ib0", model.Fault{Device: "sim7", Do: model.Drop{}}},
		{`but at "request"`, model.Fault{At: model.AtCompletion, Do: model.Drop{}}},
		{"GID 2000::1 ib does not fit the link layer: on RoCE", gid("sim0", 0x20, model.GIDInfiniBand)},
		{"GID 2000::1 roce2 does not fit the link layer: on InfiniBand", gid("ib0", 0x20, model.GIDRoCE2)},
		{"device sim0 port 1: GID 2000::1 type 3", gid("sim0", 0x20, 3)},
		{"multicast", gid("sim0", 0xff, model.GIDRoCE2)},
		{"device sim0 has no port 2", model.Fault{At: model.AtTime, Device: "sim0", Do: model.ChangeGID{Port: 2}}},
	} {
		err := m.Inject(c.f)
		if err == nil || !strings.HasPrefix(err.Error(), "model: ") || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
			t.Errorf("%.200v: %v, want %q in it", c.f, err, c.want)
		}
	}
	// What is zero stands for all, or for the default.
	for _, f := range []model.Fault{
		{Do: model.Drop{}},
		{HasOpcode: true, Do: model.Drop{}},
		{Nth: math.MaxInt32, Times: math.MaxInt32, Do: model.Drop{}},
		{At: model.AtAsync, Number: 1, Do: model.Lose{}},
		{At: model.AtIoctl, Method: "UVERBS_METHOD_INVOKE_WRITE", Do: refuse},
		{At: model.AtIoctl, Method: "IB_USER_VERBS_EX_CMD_MODIFY_QP", Do: refuse},
		{At: model.AtTime, Device: "sim0", Times: 1, Do: model.Port{Number: 1, Up: true}},
		gid("sim0", 0x20, model.GIDRoCE1), gid("ib0", 0x20, model.GIDInfiniBand),
	} {
		if err := m.Inject(f); err != nil {
			t.Errorf("%v: %v", f, err)
		}
	}
}

// Faults that are refused print what they are, not what they are not.
func TestFaultStringOfNone(t *testing.T) {
	for want, f := range map[string]model.Fault{
		"request: *model.Drop":    {Do: &model.Drop{}},
		"request: <nil>":          {},
		"request op=0x77: drop":   {Opcode: 0x77, HasOpcode: true, Do: model.Drop{}},
		"time 0s: gid 1 0 ::2 ib": {At: model.AtTime, Do: model.ChangeGID{Port: 1, GID: model.GID{Addr: [16]byte{15: 2}}}},
	} {
		if got := f.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What a script says that could never happen is refused with its line, also where only the
// devices show it.
func TestScriptNever(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	for script, want := range map[string]string{
		"ioctl method=TYPO: refuse ENOMEM":                      `called "TYPO"`,
		"request device=: drop":                                 `"device=" has nothing behind it`,
		"ioctl method=: refuse ENOMEM":                          `"method=" has nothing behind it`,
		"async type=65536: lose":                                "no event of type 65536",
		"async type=6: lose":                                    "no event of type 6",
		"request 1 2: drop":                                     `"2" says again`,
		"time 1s 2s device=sim0: fatal":                         `"2s" says again`,
		"request device=sim0 device=sim0: drop":                 `"device=sim0" says again`,
		"request times=2 times=forever: drop":                   `"times=forever" says again`,
		"request op=send op=read: drop":                         `"op=read" says again`,
		"request times=0: drop":                                 "counted from 1",
		"request qp=0: drop":                                    "no number of a queue",
		"time 1s times=2 device=sim0: fatal":                    "a time comes once",
		"time 1s times=forever device=sim0: fatal":              "a time comes once",
		"time 1s: fatal":                                        "say to which",
		"request: delay 0s":                                     "more than 0",
		"request: fail":                                         "syndrome",
		"request: behind 0":                                     "from 1",
		"request: not-ready timer=1 timer=2":                    "too much",
		"time 1s device=sim0: port 2 up":                        "device sim0 has no port 2",
		"time 1s device=sim0: gid 1 1 ff02::1 roce2":            "GID ff02::1 roce2 is a multicast",
		"time 1s device=sim0: gid 1 1 224.0.0.1 roce2":          "multicast",
		"time 1s device=sim0: gid 1 1 fe80::1 ib":               "device sim0 port 1: GID fe80::1 ib does not fit the link layer",
		"request device=sim1: drop":                             `no device "sim1": there are sim0`,
		"request device=sim0: drop\nrequest device=sim1: drop ": "line 4",
	} {
		err := m.Script("request: drop\n\n" + script)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "model: line ") || strings.Count(err.Error(), "model:") != 1 {
			t.Errorf("%q: %v, want %q in it", script, err, want)
		}
	}
}

// What could not happen at its time is the test's mistake, not the program's.
func TestMissedFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "sim1"})
		if err := m.Script("time 1s device=sim0: gid 1 7 2001::5 roce2\ntime 2s device=sim1: gid 1 7 2001::5 roce2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got := m.MissedFaults(); len(got) != 0 {
			t.Errorf("missed %v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := m.MissedFaults()
		if len(got) != 1 || !strings.Contains(got[0].Error(), "GID 2001::5 roce2 belongs to device sim0 port 1") {
			t.Errorf("missed %v", got)
		}
		noViolations(t, m)
	})
}

// A fault that is used up leaves those that are not where they were: all that match count.
func TestFaultsAreUsedUp(t *testing.T) {
	fault(t, "request 2: delay 1ms\nrequest 2: delay 1s\nrequest 4 times=2: delay 3ms\nrequest 6: delay 5ms", func(t *testing.T, w *two) {
		var took []time.Duration
		for range 7 {
			start := time.Now()
			w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
			waitFor(w.qa.scq)
			took = append(took, time.Since(start))
		}
		const ms = time.Millisecond
		if want := []time.Duration{0, ms, 0, 3 * ms, 3 * ms, 5 * ms, 0}; !slices.Equal(took, want) {
			t.Errorf("requests took %v, want %v", took, want)
		}
	})
}

// Who waits for others does so when the fault is used up, or taken back.
func TestBehindUsedUp(t *testing.T) {
	fault(t, "request op=write: behind 1 at-most=1h", func(t *testing.T, w *two) {
		other := w.a.qp(rc, w.qa.scq, w.qa.rcq, qpOptions{})
		other.init(usual)
		other.join(other, usual)
		w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		w.m.ClearFaults()
		w.qa.scq.none()
		other.post(opNop, signaled, 0)
		if got := w.qa.scq.all(); len(got) != 2 || got[0].qpn != other.qpn || got[1].qpn != w.qa.qpn {
			t.Errorf("completions %+v", got)
		}
	})
}
