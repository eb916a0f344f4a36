package request_test

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// A request is read from the memory of the program that makes it, answered,
// and printed by the names of the schema.
func Example() {
	m := newMemory()
	out := m.alloc(make([]byte, 4))
	addr := m.call(abi.UverbsIoctlHdr{
		ObjectID: abi.UVERBS_OBJECT_DEVICE,
		MethodID: abi.UVERBS_METHOD_INVOKE_WRITE,
		DriverID: uint32(abi.RDMA_DRIVER_RXE),
	},
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_CORE_IN, Len: abi.SizeofUverbsAllocPD, Flags: abi.UVERBS_ATTR_F_MANDATORY},
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_CORE_OUT, Len: 4, Flags: abi.UVERBS_ATTR_F_MANDATORY, Data: out},
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_WRITE_CMD, Len: 8, Flags: abi.UVERBS_ATTR_F_MANDATORY, Data: abi.IB_USER_VERBS_CMD_ALLOC_PD},
	)
	request.Dump(os.Stdout, m, addr)

	r, err := request.Read(m, addr, &request.Config{Driver: uint32(abi.RDMA_DRIVER_RXE)})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, core, err := r.Command(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Name, len(core))
	resp := abi.UverbsAllocPDResp{PDHandle: 0}
	r.SetCoreOut(resp.Bytes())
	request.DumpReply(os.Stdout, m, addr, 0)
	// Output:
	// DEVICE.INVOKE_WRITE ALLOC_PD driver=RDMA_DRIVER_RXE attrs=3
	//   CORE_IN ptr-in 8: 0000000000000000
	//   CORE_OUT ptr-out 4 bytes at 0x10000
	//   WRITE_CMD const-in ALLOC_PD
	// IB_USER_VERBS_CMD_ALLOC_PD 8
	// DEVICE.INVOKE_WRITE ALLOC_PD -> ok
	//   CORE_OUT 4: 00000000
}
