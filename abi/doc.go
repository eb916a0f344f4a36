// Package abi is the kernel's RDMA user ABI: the structs, enums and constants
// of its UAPI headers, and the schema of the uverbs ioctl methods.
//
//	var req abi.UverbsAllocPD
//	core := req.Bytes() // eight bytes for INVOKE_WRITE
//
//	var wc abi.UverbsWC
//	copy(wc.Bytes(), slot[:abi.SizeofUverbsWC])
//	if wc.Opcode == uint32(abi.IB_UVERBS_WC_RDMA_READ) {
//		fmt.Println(wc.WRID, wc.ByteLen, wc.Ex.ImmData().Uint32())
//	}
//
// Names. Constants keep the kernel's spelling, so that they can be found in its
// tree. A struct's Go name is the C name without ib_, in Go's capitals: struct
// ib_uverbs_create_cq is [UverbsCreateCQ], and its comment names the C struct and
// the header. Unions are structs with a method for each member. An array
// without a length is no field; a constant Off… says where it starts.
//
// Layout. Every struct has the kernel's size and offsets on every machine, also
// where Go aligns 64-bit fields to four bytes: padding is written out, and the
// file zasserts.go does not compile when an offset is wrong. Numbers are in the
// machine's byte order except [Be16], [Be32] and [Be64]. Handles, queue pair numbers, keys
// and packet sequence numbers are in the machine's order; immediate data, GUIDs
// and the addresses in address vectors are big-endian.
//
// The types are plain data and the tables are never written after start-up: any
// number of goroutines may read them. Nothing here returns an error. String
// methods know every value of the headers that the package was made from and
// print any other as a number, because newer kernels have more.
//
// The z files are generated from a text table in testdata/abi; its first lines name the
// package that the headers came from.
package abi

//go:generate go run ../tools/abigen gen
