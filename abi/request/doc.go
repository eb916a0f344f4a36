// Package request reads uverbs ioctl requests the way the kernel does: it
// checks the bytes against package abi's schema, hands out what they carry and
// writes the reply back. It also prints requests and replies for people.
//
// It is the other side of the builder in package uverbs and shares no code
// with it, so that a wrong builder meets a reader that does not repeat its
// mistake. The fake kernel, the device model and the debug output stand on it.
//
//	r, err := request.Read(mem, addr, &request.Config{Driver: uint32(abi.RDMA_DRIVER_RXE)})
//	if err != nil {
//		return request.ErrnoOf(err) // what ioctl would return
//	}
//	switch {
//	case r.Is(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE):
//		cqe, _ := r.Uint32(abi.UVERBS_ATTR_CREATE_CQ_CQE)
//		handle, realCQE := makeCQ(cqe)
//		r.SetHandle(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, handle)
//		r.SetUint32(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, realCQE)
//	}
//
// Numbers in a request are in the byte order of the machine, as in the ABI.
//
// A Request belongs to one goroutine at a time. Read copies everything that
// flows into the kernel, once; later changes of the caller's memory are not
// seen. Read and the dump functions take any bytes at all without panicking.
//
// Errors are of type *[Error]: the errno that the kernel would return and a
// sentence that says which attribute and rule it was. Whether a handle or file
// descriptor exists is for the caller to check, because this package has no objects;
// the kernel checks that while it walks the attributes.
package request
