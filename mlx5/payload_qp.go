package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// NoUserIndex is the user index of queue pairs on contexts of CQE version 0,
// whose completions do not carry one. Others have lower ones.
const NoUserIndex = 0xffffff

// CreateQP is the driver's part of the making of a queue pair: struct
// mlx5_ib_create_qp of rdma/mlx5-abi.h.
type CreateQP struct {
	// Buffer and Record are the addresses of its memory, at a page, and of its
	// doorbell record, at a multiple of 8.
	Buffer, Record uint64
	// Size is what SizeSend and SizeRecv computed.
	Size QueuePairSize
	// UserIndex comes back in completions; NoUserIndex with CQE version 0.
	UserIndex uint32
	// UAR is the device's number of the UAR at which it rings: PageID, and
	// what Register adds. Contexts with dynamic UARs name one.
	UAR        uint32
	DynamicUAR bool
	// ScatterToCQE lets the device put small payloads of responders into CQEs,
	// and of requesters too with ScatterRequester. Without, no completion has
	// any.
	ScatterToCQE, ScatterRequester bool
	// ECE asks for enhanced connection establishment, as libmlx5 does where
	// the context has it.
	ECE bool
}

// eceVersion1 asks for enhanced connection establishment of version 1.
const eceVersion1 = 0x10000000

// Encode returns the driver's part of the request. cqeVersion is the context's.
func (r CreateQP) Encode(cqeVersion uint8) ([]byte, error) {
	if (cqeVersion == 0) != (r.UserIndex == NoUserIndex) || r.UserIndex > NoUserIndex {
		return nil, fmt.Errorf("mlx5: a queue pair with user index %#x and CQE version %d: version 0 has none, %#x; others are less", r.UserIndex, cqeVersion, NoUserIndex)
	}
	q := &abi.MLX5IBCreateQP{
		DBAddr:     r.Record,
		SQWQECount: r.Size.Send.Blocks,
		RQWQECount: r.Size.Recv.Requests,
		RQWQEShift: r.Size.Recv.Shift,
		Uidx:       r.UserIndex,
	}
	if r.Size.Bytes() != 0 {
		if err := addresses("queue pair", r.Buffer, r.Record); err != nil {
			return nil, err
		}
		q.BufAddr = r.Buffer
	}
	if r.DynamicUAR {
		q.Flags |= abi.MLX5_QP_FLAG_UAR_PAGE_INDEX
		q.BfregIndex = r.UAR
	}
	if r.ScatterToCQE || r.ScatterRequester {
		q.Flags |= abi.MLX5_QP_FLAG_SCATTER_CQE
	}
	if r.ScatterRequester {
		q.Flags |= abi.MLX5_QP_FLAG_ALLOW_SCATTER_CQE
	}
	if r.ECE {
		q.ECEOptions = eceVersion1
	}
	return q.Bytes(), nil
}

// QPResult is the driver's part of the answer: struct mlx5_ib_create_qp_resp.
type QPResult struct {
	// Register is the index of the doorbell register that the driver chose,
	// for [Context.StaticRegister], if HasRegister; contexts with dynamic UARs
	// have none.
	Register    uint32
	HasRegister bool
	// ECE are the options of enhanced connection establishment, 0 if none.
	ECE uint32
}

// noRegister marks a register index that is none: MLX5_IB_INVALID_BFREG.
const noRegister = 1 << 31

// ParseCreateQP reads the driver's part of the answer to a CreateQP. Older drivers
// say less, newer ones more.
func ParseCreateQP(b []byte) (QPResult, error) {
	var r abi.MLX5IBCreateQPResp
	if len(b) < 4 {
		return QPResult{}, short("queue pair", b, 4)
	}
	copy(r.Bytes(), b)
	if r.BfregIndex&noRegister != 0 {
		return QPResult{ECE: r.ECEOptions}, nil
	}
	return QPResult{Register: r.BfregIndex, HasRegister: true, ECE: r.ECEOptions}, nil
}
