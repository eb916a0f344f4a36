//go:build linux

package trace

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/abi"
)

// What programs write by offset has no gaps, or the kernel would copy out what
// they left there.
func TestValuesHaveNoPadding(t *testing.T) {
	for _, v := range []any{snapshot{}, eventCounts{}, postCounts{}, stampKey{}, stamp{}, reader{}, callKey{}, inflight{}, callCounts{}, CQID{}} {
		typ := reflect.TypeOf(v)
		if n := binary.Size(v); n != int(typ.Size()) {
			t.Errorf("%v: %d bytes of fields in %d", typ, n, typ.Size())
		}
	}
	if n := sizeOf[snapshot]() % 8; n != 0 {
		t.Errorf("a snapshot is %d bytes longer than words", n)
	}
}

// Garbage in a snapshot is unknown, or in bounds.
func FuzzSnapshot(f *testing.F) {
	good := snapshot{Round: 1, Uobject: 1 << 40, Entries: 100, Driver: driverRXE, Ring: 1, Mask: 127, BufMask: 127, BufLog2: 6, Producer: 3, Consumer: 120, Notify: 2}
	for _, change := range []func(*snapshot){
		func(*snapshot) {},
		func(s *snapshot) { s.Consumer = math.MaxUint32 },
		func(s *snapshot) { s.Producer = 128 },
		func(s *snapshot) { s.Mask, s.BufMask = 126, 126 },
		func(s *snapshot) { s.Mask, s.BufMask = 0, 0 },
		func(s *snapshot) { s.Mask, s.BufMask = math.MaxUint32, math.MaxUint32 },
		func(s *snapshot) { s.Pending, s.Uobject = math.MaxUint64, math.MaxUint64 },
		func(s *snapshot) { s.Notify = math.MaxUint32 },
	} {
		s := good
		change(&s)
		b, err := binary.Append(nil, binary.LittleEndian, s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s snapshot
		if binary.Read(bytes.NewReader(b), binary.LittleEndian, &s) != nil {
			return
		}
		q := s.cq(128)
		if (q.User == nil) != (s.Uobject == 0) {
			t.Errorf("%+v: %+v", s, q)
		}
		if r := q.Ring; r != nil {
			size := uint64(r.Usable) + 1
			if r.Occupied > r.Usable || r.Produced > r.Usable || size&(size-1) != 0 || q.Entries > r.Usable || q.Driver != driverRXE || r.Armed.String() == "unknown" {
				t.Errorf("%+v: %+v", s, r)
			}
			if (uint64(s.Consumer)+uint64(r.Occupied))%size != uint64(r.Produced) {
				t.Errorf("%+v: %+v", s, r)
			}
		}
	})
}

// Memory that does not look like a ring shows no occupancy.
func TestNotARing(t *testing.T) {
	good := snapshot{Entries: 100, Driver: driverRXE, Ring: 1, Mask: 127, BufMask: 127, BufLog2: 7, Producer: 3, Consumer: 120}
	if r := good.ring(); r == nil || r.Occupied != 11 || r.Usable != 127 {
		t.Fatalf("%+v", r)
	}
	for name, change := range map[string]func(*snapshot){
		"not read":             func(s *snapshot) { s.Ring = 0 },
		"another driver":       func(s *snapshot) { s.Driver = uint32(abi.RDMA_DRIVER_MLX5) },
		"masks differ":         func(s *snapshot) { s.BufMask = 63 },
		"mask of no power":     func(s *snapshot) { s.Mask, s.BufMask = 100, 100 },
		"no mask":              func(s *snapshot) { s.Mask, s.BufMask, s.Entries, s.Producer = 0, 0, 0, 0 },
		"producer outside":     func(s *snapshot) { s.Producer = 128 },
		"elements too small":   func(s *snapshot) { s.BufLog2 = 3 },
		"elements too large":   func(s *snapshot) { s.BufLog2 = 12 },
		"more entries than it": func(s *snapshot) { s.Entries = 200 },
	} {
		s := good
		change(&s)
		if r := s.ring(); r != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Counters that a hostile program drove to the end stay durations.
func TestCountersInBounds(t *testing.T) {
	e := (&eventCounts{Total: math.MaxUint64, Max: math.MaxUint64}).events()
	if e.Wake.Total < 0 || e.Wake.Max < 0 {
		t.Errorf("%+v", e)
	}
	if p := (&postCounts{HighWater: math.MaxUint64}).posts(); p.HighWater != math.MaxUint32 {
		t.Errorf("%+v", p)
	}
	s := callKey{Via: math.MaxUint32, Code: 3}.syscall(&callCounts{Max: math.MaxUint64, Comm: [16]byte{0xff, 0xfe, 'a'}})
	if s.Max < 0 || s.Via.String() != "unknown" || s.Comm != "?a" {
		t.Errorf("%+v", s)
	}
}

// Calls bear the kernel's names, and numbers where there is none.
func TestNamesOfCalls(t *testing.T) {
	rxe, mlx5 := uint32(abi.RDMA_DRIVER_RXE), uint32(abi.RDMA_DRIVER_MLX5)
	for want, k := range map[string]callKey{
		"UVERBS_METHOD_CQ_CREATE":         {Code: abi.UVERBS_OBJECT_CQ | abi.UVERBS_METHOD_CQ_CREATE<<16, Driver: rxe},
		"MLX5_IB_METHOD_VAR_OBJ_ALLOC":    {Code: abi.MLX5_IB_OBJECT_VAR | abi.MLX5_IB_METHOD_VAR_OBJ_ALLOC<<16, Driver: mlx5},
		"object 0x1234 method 0x4321":     {Code: 0x4321_1234, Driver: rxe},
		"unreadable":                      {Code: unreadable},
		"IB_USER_VERBS_CMD_REQ_NOTIFY_CQ": {Via: uint32(InvokeWrite), Code: abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ},
		"IB_USER_VERBS_CMD_POST_SEND":     {Via: uint32(Write), Code: abi.IB_USER_VERBS_CMD_POST_SEND},
		"command 0xfe":                    {Via: uint32(Write), Code: 0xfe},
		"IB_USER_VERBS_EX_CMD_MODIFY_QP":  {Via: uint32(Write), Code: abi.IB_USER_VERBS_CMD_FLAG_EXTENDED | abi.IB_USER_VERBS_EX_CMD_MODIFY_QP},
	} {
		if s := k.syscall(&callCounts{Comm: [16]byte{'x'}}); s.Name != want || s.Comm != "x" || s.Via != Via(k.Via) {
			t.Errorf("%+v, want %s", s, want)
		}
	}
}

// Events that programs read again and again while no probe fires are no
// accident.
func TestSilence(t *testing.T) {
	at := func(read uint32, made uint64) map[CQID]CQ {
		return map[CQID]CQ{{1, 2}: {User: &UserCQ{EventsRead: read}, Events: &Events{Count: made}}, {1, 1}: {}}
	}
	var s silence
	s.add(nil, at(5, 0))
	for i := range uint32(3) {
		if s.sure() {
			t.Errorf("sure after %d", i)
		}
		s.add(at(5+i, 0), at(6+i, 0))
	}
	if !s.sure() {
		t.Error("never sure")
	}
	s.add(at(8, 0), at(9, 1))
	if s.sure() {
		t.Error("sure although a probe fired")
	}
}

func TestStrings(t *testing.T) {
	for want, got := range map[string]string{
		"no": NotArmed.String(), "solicited": ArmedSolicited.String(), "next": ArmedNext.String(), "unknown": Arming(9).String() + Via(9).String()[7:],
		"ioctl": Ioctl.String(), "invoke-write": InvokeWrite.String(), "write": Write.String(), "kprobe": kprobe.String(), "fentry": fentry.String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if !strings.Contains(inertBecause(func(string) ([]byte, error) { return []byte("1\n"), nil }), "look at") {
		t.Error("a switch that is on is named as the reason")
	}
	if got := inertBecause(func(string) ([]byte, error) { return []byte("0\n"), nil }); !strings.Contains(got, "echo 1 > /sys/kernel/debug/kprobes/enabled") {
		t.Error(got)
	}
}
