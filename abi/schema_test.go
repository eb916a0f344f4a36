package abi_test

import (
	"testing"

	"github.com/goverbs/goverbs/abi"
)

func TestLookupMethod(t *testing.T) {
	const rxe, mlx5 = uint32(abi.RDMA_DRIVER_RXE), uint32(abi.RDMA_DRIVER_MLX5)
	for _, c := range []struct {
		driver         uint32
		object, method uint16
		name           string
	}{
		{rxe, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, "UVERBS_METHOD_CQ_CREATE"},
		{mlx5, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, "UVERBS_METHOD_CQ_CREATE"},
		{mlx5, abi.UVERBS_OBJECT_PD, abi.MLX5_IB_METHOD_PD_QUERY, "MLX5_IB_METHOD_PD_QUERY"},
		{rxe, abi.UVERBS_OBJECT_PD, abi.MLX5_IB_METHOD_PD_QUERY, ""},
		{rxe, abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, "UVERBS_METHOD_ASYNC_EVENT_ALLOC"},
		{rxe, 0xffff, 0xffff, ""},
		{^uint32(0), 0, 0, "UVERBS_METHOD_INVOKE_WRITE"},
	} {
		m, ok := abi.LookupMethod(c.driver, c.object, c.method)
		if ok != (c.name != "") || ok && m.Name != c.name {
			t.Errorf("driver %d, object %d, method %d: %+v, %v, want %q", c.driver, c.object, c.method, m, ok, c.name)
		}
	}
	uar := uint16(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX)
	if m, _ := abi.LookupMethod(mlx5, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE); m != nil {
		if _, ok := m.Attr(uar); !ok || !m.UHW {
			t.Error("mlx5's CQ_CREATE lacks what mlx5 adds, or what the core has")
		}
	}
	if m, _ := abi.LookupMethod(rxe, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE); m != nil {
		if _, ok := m.Attr(uar); ok {
			t.Error("soft-RoCE's CQ_CREATE has an attribute of mlx5")
		}
	}
}

// Every description must be one that the kernel's rules allow and that lookup finds again.
func TestSchemaIsSound(t *testing.T) {
	for _, driver := range []uint32{0, uint32(abi.RDMA_DRIVER_RXE), uint32(abi.RDMA_DRIVER_MLX5)} {
		n := 0
		for m := range abi.Methods(driver) {
			n++
			if got, ok := abi.LookupMethod(driver, m.Object, m.ID); !ok || got != m {
				t.Errorf("driver %d: lookup of %s does not find it", driver, m.Name)
			}
			if len(m.Attrs) == 0 || m.ObjectName != abi.ObjectName(driver, m.Object) {
				t.Errorf("%s: no attributes, or object is %s", m.Name, m.ObjectName)
			}
			for i := range m.Attrs {
				checkSoundAttr(t, m, i)
			}
		}
		if n < 33 {
			t.Errorf("driver %d has %d methods only", driver, n)
		}
	}
	for range abi.Methods(0) {
		break // an iterator must stop when it is told to
	}
}

func checkSoundAttr(t *testing.T, m *abi.Method, i int) {
	a := &m.Attrs[i]
	if i > 0 && m.Attrs[i-1].ID >= a.ID {
		t.Errorf("%s: %s is out of order", m.Name, a.Name)
	}
	if a.MinLen > a.MaxLen {
		t.Errorf("%s: %d to %d bytes", a.Name, a.MinLen, a.MaxLen)
	}
	object := false
	switch a.Kind {
	case abi.ConstIn:
		if a.MinLen != 8 || a.MaxLen != 8 {
			t.Errorf("%s: a number has eight bytes, not %d to %d", a.Name, a.MinLen, a.MaxLen)
		}
	case abi.FlagsIn:
		if a.MinLen != 4 || a.MaxLen != 8 {
			t.Errorf("%s: flags have four or eight bytes, not %d to %d", a.Name, a.MinLen, a.MaxLen)
		}
	case abi.Handle, abi.HandleNew, abi.HandleDestroy, abi.FD, abi.FDNew:
		object = true
		if a.MaxLen != 0 {
			t.Errorf("%s: an object has no length", a.Name)
		}
	case abi.Handles:
		object = true
	case abi.EnumIn:
		if len(a.Variants) == 0 {
			t.Errorf("%s has no variants", a.Name)
		}
	case abi.PtrIn, abi.PtrOut, abi.RawFD:
	default:
		t.Errorf("%s has kind %v", a.Name, a.Kind)
	}
	if !object && a.Object != 0 {
		t.Errorf("%s is no object and has type %d", a.Name, a.Object)
	}
}

func TestCommands(t *testing.T) {
	for number, want := range map[uint32]struct {
		name     string
		in, out  uint16
		response bool
	}{
		abi.IB_USER_VERBS_CMD_ALLOC_PD:                                              {"IB_USER_VERBS_CMD_ALLOC_PD", 8, 4, true},
		abi.IB_USER_VERBS_CMD_REG_MR:                                                {"IB_USER_VERBS_CMD_REG_MR", 40, 12, true},
		abi.IB_USER_VERBS_CMD_MODIFY_QP:                                             {"IB_USER_VERBS_CMD_MODIFY_QP", 112, 0, false},
		abi.IB_USER_VERBS_CMD_QUERY_QP:                                              {"IB_USER_VERBS_CMD_QUERY_QP", 16, 128, true},
		abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:                                         {"IB_USER_VERBS_CMD_REQ_NOTIFY_CQ", 8, 0, false},
		abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:                                   {"IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL", 8, 4, true},
		abi.IB_USER_VERBS_CMD_POST_SEND:                                             {"IB_USER_VERBS_CMD_POST_SEND", 24, 4, true},
		abi.IB_USER_VERBS_CMD_CREATE_AH:                                             {"IB_USER_VERBS_CMD_CREATE_AH", 56, 4, true},
		abi.IB_USER_VERBS_CMD_FLAG_EXTENDED | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE: {"IB_USER_VERBS_EX_CMD_QUERY_DEVICE", 8, 184, false},
		abi.IB_USER_VERBS_CMD_FLAG_EXTENDED | abi.IB_USER_VERBS_EX_CMD_MODIFY_QP:    {"IB_USER_VERBS_EX_CMD_MODIFY_QP", 112, 8, false},
	} {
		c, ok := abi.LookupCommand(number)
		if !ok || c.Name != want.name || c.In != want.in || c.Out != want.out || c.Response != want.response {
			t.Errorf("%#x: %+v, %v, want %+v", number, c, ok, want)
		}
	}
	if c, ok := abi.LookupCommand(0x3f); ok {
		t.Errorf("command 0x3f is %s", c.Name)
	}
}

func TestObjectName(t *testing.T) {
	for want, got := range map[string]string{
		"UVERBS_OBJECT_QP":   abi.ObjectName(0, abi.UVERBS_OBJECT_QP),
		"MLX5_IB_OBJECT_UAR": abi.ObjectName(uint32(abi.RDMA_DRIVER_MLX5), abi.MLX5_IB_OBJECT_UAR),
		"object(4104)":       abi.ObjectName(uint32(abi.RDMA_DRIVER_RXE), abi.MLX5_IB_OBJECT_UAR),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
