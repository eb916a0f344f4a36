package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// CreateCQ is the driver's part of the making of a completion queue: struct
// mlx5_ib_create_cq of rdma/mlx5-abi.h.
type CreateCQ struct {
	// Buffer and Record are the addresses of its memory, at a page, and of its
	// doorbell record, at a multiple of 8.
	Buffer, Record uint64
	// EntryBytes is 64 or 128.
	EntryBytes int
	// UAR is the PageID of the uncached UAR at which it is armed; contexts
	// with dynamic UARs name one.
	UAR        uint32
	DynamicUAR bool
	// RealTime asks for time stamps that are the time of day. Every queue pair
	// of the queue must want the same.
	RealTime bool
	// Compress asks for compressed completions with that kind of minis, one that
	// the device has. 0: none are compressed.
	Compress MiniFormat
}

// MiniFormat is a kind of minis, the short forms of completions in a compressed
// block: enum mlx5_ib_cqe_res_format. They differ in the first four bytes, which mean
// something for raw packets only. A number may have the bits of several kinds where it
// says which there are.
type MiniFormat uint32

// The kinds that [CompressedCQ] reads. Where minis have a stride index, it counts what
// the queues of verbs do not have.
const (
	MiniHash     = MiniFormat(abi.MLX5_IB_CQE_RES_FORMAT_HASH)
	MiniChecksum = MiniFormat(abi.MLX5_IB_CQE_RES_FORMAT_CSUM)
)

// Encode returns the driver's part of the request. inAttribute says that the UAR
// is not in it: its number is so large that the kernel takes it as attribute
// MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, 32 bits, from Linux 6.12 on.
func (r CreateCQ) Encode() (b []byte, inAttribute bool, err error) {
	if r.EntryBytes != 64 && r.EntryBytes != 128 {
		return nil, false, fmt.Errorf("mlx5: CQEs of %d bytes: they have 64 or 128", r.EntryBytes)
	}
	if err := addresses("completion queue", r.Buffer, r.Record); err != nil {
		return nil, false, err
	}
	q := &abi.MLX5IBCreateCQ{BufAddr: r.Buffer, DBAddr: r.Record, CQESize: uint32(r.EntryBytes)}
	if r.DynamicUAR {
		if inAttribute = r.UAR > 0xffff; !inAttribute {
			q.Flags |= uint16(abi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX)
			q.UARPageIndex = uint16(r.UAR)
		}
	}
	if r.RealTime {
		q.Flags |= uint16(abi.MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS)
	}
	if r.Compress != 0 {
		q.CQECompEn, q.CQECompResFormat = 1, uint8(r.Compress)
	}
	return q.Bytes(), inAttribute, nil
}

// addresses checks those that a request names: the kernel takes 0 for none, and
// the device wants the memory of queues at a page and records whole.
func addresses(what string, buffer, record uint64) error {
	if buffer == 0 || buffer%adapterPage != 0 {
		return fmt.Errorf("mlx5: a %s in memory at %#x: it begins at a page", what, buffer)
	}
	if record == 0 || record%recordBytes != 0 {
		return fmt.Errorf("mlx5: a %s with its doorbell record at %#x: it is at a multiple of %d", what, record, recordBytes)
	}
	return nil
}

// ParseCreateCQ reads the driver's part of the answer: the number of the queue.
func ParseCreateCQ(b []byte) (cqn uint32, err error) {
	var r abi.MLX5IBCreateCQResp
	if len(b) < 4 {
		return 0, short("completion queue", b, 4)
	}
	copy(r.Bytes(), b)
	return number("completion queue", r.CQN)
}

// ResizeCQ is the driver's part of the resize of a completion queue: struct
// mlx5_ib_resize_cq.
type ResizeCQ struct {
	Buffer     uint64 // address of the new memory, at a page
	EntryBytes int    // 64 or 128
}

// Encode returns the driver's part of the request.
func (r ResizeCQ) Encode() ([]byte, error) {
	if r.EntryBytes != 64 && r.EntryBytes != 128 {
		return nil, fmt.Errorf("mlx5: CQEs of %d bytes: they have 64 or 128", r.EntryBytes)
	}
	if err := addresses("completion queue", r.Buffer, recordBytes); err != nil {
		return nil, err
	}
	return (&abi.MLX5IBResizeCQ{BufAddr: r.Buffer, CQESize: uint16(r.EntryBytes)}).Bytes(), nil
}
