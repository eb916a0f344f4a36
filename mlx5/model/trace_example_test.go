package model_test

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

// A trace is a line for each thing that happens.
func ExampleModel_Trace() {
	m, err := model.New(model.DeviceConfig{Name: "sim0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Trace(func(e model.Event) {
		o := e.From()
		fmt.Printf("%s on %s: %v\n", o.Program, o.Device, e)
	})
	f, err := m.Device("sim0").Open(model.Local{}, &model.OpenOptions{Program: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()

	// QUERY_CONTEXT before GET_CONTEXT: a header alone.
	req := make([]byte, abi.SizeofUverbsIoctlHdr)
	ne := binary.NativeEndian
	ne.PutUint16(req[0:], uint16(len(req)))
	ne.PutUint16(req[2:], abi.UVERBS_OBJECT_DEVICE)
	ne.PutUint16(req[4:], abi.UVERBS_METHOD_QUERY_CONTEXT)
	ne.PutUint32(req[16:], uint32(abi.RDMA_DRIVER_MLX5))
	_ = f.Ioctl(req) // the trace says what came of it
	// Output: example on sim0: ioctl DEVICE.QUERY_CONTEXT: EINVAL: UVERBS_METHOD_QUERY_CONTEXT lacks MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX
}
