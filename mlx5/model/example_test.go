package model_test

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

// A request of the kernel is answered as the driver of a ConnectX does.
func Example() {
	m, err := model.New(model.DeviceConfig{Name: "sim0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := m.Device("sim0").Open(model.Local{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()

	// ASYNC_EVENT_ALLOC before GET_CONTEXT: a header of 24 bytes, one attribute of 16.
	req := make([]byte, abi.SizeofUverbsIoctlHdr+abi.SizeofUverbsAttr)
	ne := binary.NativeEndian
	ne.PutUint16(req[0:], uint16(len(req)))
	ne.PutUint16(req[2:], abi.UVERBS_OBJECT_ASYNC_EVENT)
	ne.PutUint16(req[4:], abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC)
	ne.PutUint16(req[6:], 1)
	ne.PutUint32(req[16:], uint32(abi.RDMA_DRIVER_MLX5))
	ne.PutUint16(req[24:], abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	fmt.Println(f.Ioctl(req))
	// Output: EINVAL
}

// Faults are typed, or lines of a script.
func ExampleModel_Script() {
	m, err := model.New(model.DeviceConfig{Name: "sim0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = m.Inject(model.Fault{At: model.AtRequest, Nth: 3, Do: model.Drop{}})
	fmt.Println(err)
	fmt.Println(m.Script("request 3: drop\ntime 1s device=sim0: port 1 down"))
	fmt.Println(m.Script("completion: drop"))
	// Output:
	// <nil>
	// <nil>
	// model: line 1 of the script: "drop" cannot happen at "completion"
}
