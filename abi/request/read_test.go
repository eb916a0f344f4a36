package request_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

var rxe = &request.Config{Driver: uint32(abi.RDMA_DRIVER_RXE)}

func hdr(object, method uint16) abi.UverbsIoctlHdr {
	return abi.UverbsIoctlHdr{DriverID: rxe.Driver, ObjectID: object, MethodID: method}
}

func mandatory(id, length uint16, data uint64) abi.UverbsAttr {
	return abi.UverbsAttr{AttrID: id, Len: length, Flags: abi.UVERBS_ATTR_F_MANDATORY, Data: data}
}

// inline puts a 32-bit value where memcpy would put it on this machine.
func inline32(id uint16, v uint32) abi.UverbsAttr {
	a := mandatory(id, 4, 0)
	raw := a.Bytes()
	ref := abi.UverbsSGE{Length: v}
	copy(raw[8:], ref.Bytes()[8:12])
	return a
}

// createCQ is a correct CQ_CREATE whose parts the cases below break one by one.
func createCQ(m *memory) (abi.UverbsIoctlHdr, []abi.UverbsAttr) {
	out := m.alloc(make([]byte, 8))
	return hdr(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE), []abi.UverbsAttr{
		mandatory(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0),
		inline32(abi.UVERBS_ATTR_CREATE_CQ_CQE, 16),
		mandatory(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 77),
		inline32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0),
		mandatory(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, out),
	}
}

func TestReadRefuses(t *testing.T) {
	const unknown = 0x0fff
	type edit func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr
	for _, c := range []struct {
		name  string
		errno request.Errno
		edit  edit
	}{
		{"correct", 0, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { return a }},
		{"length too small", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { h.Length = 24; return a }},
		{"length beyond a page", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, make([]abi.UverbsAttr, 255-len(a))...)
		}},
		{"reserved1", request.EPROTONOSUPPORT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { h.Reserved1 = 1; return a }},
		{"reserved2", request.EPROTONOSUPPORT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { h.Reserved2 = 1; return a }},
		{"wrong driver", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { h.DriverID = 1; return a }},
		{"unknown object", request.EPROTONOSUPPORT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { h.ObjectID = 99; return a }},
		{"unknown method", request.EPROTONOSUPPORT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { h.MethodID = 99; return a }},
		{"driver method of another driver", request.EPROTONOSUPPORT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			h.ObjectID, h.MethodID = abi.MLX5_IB_OBJECT_VAR, abi.MLX5_IB_METHOD_VAR_OBJ_ALLOC
			return a
		}},
		{"unknown mandatory attribute", request.EPROTONOSUPPORT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, mandatory(unknown, 8, 1))
		}},
		{"unknown optional attribute", 0, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, abi.UverbsAttr{AttrID: unknown}, abi.UverbsAttr{AttrID: unknown})
		}},
		{"mlx5's attribute on another driver", request.EPROTONOSUPPORT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, mandatory(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, 4, 1))
		}},
		{"duplicate", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { return append(a, a[1]) }},
		{"missing", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { return a[1:] }},
		{"object with a length", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { a[0].Len = 4; return a }},
		{"short input", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { a[1].Len = 2; return a }},
		{"long input", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { a[1].Len = 8; return a }},
		{"short output", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr { a[4].Len = 3; return a }},
		{"elem_id set", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			a[1].AttrData.EnumData().ElemID = 1
			return a
		}},
		{"flags of 2 bytes", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, mandatory(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, 2, 0))
		}},
		{"flags of 4 bytes", 0, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, mandatory(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, 4, 0))
		}},
		{"descriptor beyond an int", request.EINVAL, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, mandatory(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, 1<<40))
		}},
		{"driver input that is not mapped", request.EFAULT, func(h *abi.UverbsIoctlHdr, a []abi.UverbsAttr) []abi.UverbsAttr {
			return append(a, mandatory(abi.UVERBS_ATTR_UHW_IN, 9, 8))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory()
			h, attrs := createCQ(m)
			attrs = c.edit(&h, attrs)
			_, err := request.Read(m, m.call(h, attrs...), rxe)
			if got := request.ErrnoOf(err); got != c.errno {
				t.Errorf("got %v (%v), want %v", got, err, c.errno)
			}
		})
	}
}

func TestReadZeroTail(t *testing.T) {
	qp := func(tail byte, short bool) error {
		m := newMemory()
		capability := make([]byte, 24)
		capability[23] = tail
		n := uint16(24)
		if short {
			n = 16
		}
		out := m.alloc(make([]byte, 32))
		_, err := request.Read(m, m.call(hdr(abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE),
			mandatory(abi.UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0),
			mandatory(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8, 0),
			mandatory(abi.UVERBS_ATTR_CREATE_QP_CAP, n, m.alloc(capability)),
			mandatory(abi.UVERBS_ATTR_CREATE_QP_TYPE, 8, uint64(abi.IB_UVERBS_QPT_RC)),
			mandatory(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, 32, out), // longer than known: allowed
			mandatory(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, out),
		), rxe)
		return err
	}
	if err := qp(0, false); err != nil {
		t.Errorf("a longer struct with a zero tail: %v", err)
	}
	if err := qp(1, false); !errors.Is(err, request.EOPNOTSUPP) {
		t.Errorf("a tail that is not zero: %v, want EOPNOTSUPP", err)
	}
	if err := qp(0, true); !errors.Is(err, request.EINVAL) {
		t.Errorf("a shorter struct: %v, want EINVAL", err)
	}
}

// The kernel wants numbers of kind ConstIn in eight bytes, whatever their C type is.
func TestReadConstLength(t *testing.T) {
	for length, want := range map[uint16]request.Errno{1: request.EINVAL, 4: request.EINVAL, 8: 0, 16: request.EINVAL} {
		m := newMemory()
		out := m.alloc(make([]byte, abi.SizeofUverbsQueryPortRespEx))
		_, err := request.Read(m, m.call(hdr(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT),
			mandatory(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, length, 1),
			mandatory(abi.UVERBS_ATTR_QUERY_PORT_RESP, abi.SizeofUverbsQueryPortRespEx, out)), rxe)
		if got := request.ErrnoOf(err); got != want {
			t.Errorf("length %d: %v, want %v", length, err, want)
		}
	}
}

func TestRequestCarries(t *testing.T) {
	m := newMemory()
	h, attrs := createCQ(m)
	attrs = append(attrs, mandatory(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, 5), mandatory(abi.UVERBS_ATTR_UHW_OUT, 16, m.alloc(make([]byte, 16))))
	addr := m.call(h, attrs...)
	r, err := request.Read(m, addr, rxe)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := r.Uint32(abi.UVERBS_ATTR_CREATE_CQ_CQE); v != 16 || !ok {
		t.Errorf("cqe %d, %v", v, ok)
	}
	if v, ok := r.Uint64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE); v != 77 || !ok {
		t.Errorf("user handle %d, %v", v, ok)
	}
	if fd, ok := r.FD(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL); fd != 5 || !ok {
		t.Errorf("channel %d, %v", fd, ok)
	}
	if r.Has(abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD) || r.UHWOutLen() != 16 || len(r.UHWIn()) != 0 {
		t.Error("wrong idea of what is there")
	}
	for _, err := range []error{
		r.SetHandle(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, 3), r.SetUint32(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, 31),
		r.SetUHWOut([]byte{1, 2, 3}), r.Finish(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if s := request.Title(m, addr); s != "CQ.CQ_CREATE" {
		t.Errorf("title %q", s)
	}
	if s := request.Title(m, 0); s != "request at 0x0 that cannot be read" {
		t.Errorf("title of nothing: %q", s)
	}
	var got strings.Builder
	if err := request.DumpReply(&got, m, addr, 0); err != nil {
		t.Fatal(err)
	}
	if s := got.String(); !strings.Contains(s, "CQ.CQ_CREATE -> ok\n  CREATE_CQ_HANDLE 3\n") || !strings.Contains(s, "UHW_OUT 16: 01020300") {
		t.Errorf("reply:\n%s", s)
	}
}

func TestCommand(t *testing.T) {
	cmd := func(number uint64, in []byte, out int) error {
		m := newMemory()
		attrs := []abi.UverbsAttr{mandatory(abi.UVERBS_ATTR_WRITE_CMD, 8, number)}
		if in != nil {
			a := mandatory(abi.UVERBS_ATTR_CORE_IN, uint16(len(in)), m.alloc(in))
			if len(in) <= 8 {
				copy(a.Bytes()[8:], in)
			}
			attrs = append(attrs, a)
		}
		if out > 0 {
			attrs = append(attrs, mandatory(abi.UVERBS_ATTR_CORE_OUT, uint16(out), m.alloc(make([]byte, out))))
		}
		r, err := request.Read(m, m.call(hdr(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE), attrs...), rxe)
		if err != nil {
			t.Fatal(err)
		}
		c, core, err := r.Command(nil)
		if err != nil {
			return err
		}
		var s abi.UverbsAllocPD
		return request.Fill(c, s.Bytes(), core)
	}
	for _, c := range []struct {
		name   string
		number uint64
		in     []byte
		out    int
		want   request.Errno
	}{
		{"the probe of libibverbs", abi.IB_USER_VERBS_CMD_QUERY_DEVICE, nil, 0, request.ENOSPC},
		{"ALLOC_PD", abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 8), 4, 0},
		{"short request", abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 4), 4, request.ENOSPC},
		{"extended, cut off", abi.IB_USER_VERBS_CMD_FLAG_EXTENDED | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE, nil, 100, 0},
		{"extended with a tail, cut off", abi.IB_USER_VERBS_CMD_FLAG_EXTENDED | abi.IB_USER_VERBS_EX_CMD_CREATE_FLOW, make([]byte, 8), 8, request.ENOSPC},
		{"no room", abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 8), 3, request.ENOSPC},
		{"zero tail", abi.IB_USER_VERBS_CMD_ALLOC_PD, make([]byte, 16), 4, 0},
		{"tail", abi.IB_USER_VERBS_CMD_ALLOC_PD, append(make([]byte, 15), 1), 4, request.EOPNOTSUPP},
		{"unknown number", 0x3f, make([]byte, 8), 4, request.EOPNOTSUPP},
		{"unknown bit", 0x1000, make([]byte, 8), 4, request.EINVAL},
		{"beyond 32 bits", 1 << 40, make([]byte, 8), 4, request.EINVAL},
	} {
		if got := request.ErrnoOf(cmd(c.number, c.in, c.out)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
