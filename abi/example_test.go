package abi_test

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// A completion that the kernel wrote is decoded by copying its bytes into the struct.
func Example() {
	slot := make([]byte, 64) // an element of a soft-RoCE completion ring
	copy(slot[24:], []byte{0, 0, 0x12, 0x34})

	var wc abi.UverbsWC
	copy(wc.Bytes(), slot)
	fmt.Println(abi.UverbsWCOpcode(wc.Opcode), wc.Ex.ImmData().Uint32() == 0x1234)
	// Output: IB_UVERBS_WC_SEND true
}

// The schema says what a method wants.
func ExampleLookupMethod() {
	m, _ := abi.LookupMethod(uint32(abi.RDMA_DRIVER_RXE), abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY)
	for _, a := range m.Attrs {
		fmt.Println(a.Name, a.Kind, a.MinLen)
	}
	// Output:
	// UVERBS_ATTR_DESTROY_CQ_HANDLE handle-destroy 0
	// UVERBS_ATTR_DESTROY_CQ_RESP ptr-out 8
}
