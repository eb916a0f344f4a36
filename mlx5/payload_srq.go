package mlx5

import "github.com/goverbs/goverbs/abi"

// CreateSRQ is the driver's part of the making of a shared receive queue: struct
// mlx5_ib_create_srq of rdma/mlx5-abi.h. The request's own number of receives is
// one less than the elements of the size.
type CreateSRQ struct {
	// Buffer and Record are the addresses of its memory, at a page, and of its
	// doorbell record, at a multiple of 8.
	Buffer, Record uint64
}

// Encode returns the driver's part of the request.
func (r CreateSRQ) Encode() ([]byte, error) {
	if err := addresses("shared receive queue", r.Buffer, r.Record); err != nil {
		return nil, err
	}
	return (&abi.MLX5IBCreateSRQ{BufAddr: r.Buffer, DBAddr: r.Record}).Bytes(), nil
}

// ParseCreateSRQ reads the driver's part of the answer: the number of the queue.
func ParseCreateSRQ(b []byte) (srqn uint32, err error) {
	var r abi.MLX5IBCreateSRQResp
	if len(b) < 4 {
		return 0, short("shared receive queue", b, 4)
	}
	copy(r.Bytes(), b)
	return number("shared receive queue", r.SRQN)
}
