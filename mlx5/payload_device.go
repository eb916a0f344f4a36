package mlx5

import "github.com/goverbs/goverbs/abi"

// Compression is what a device can compress.
type Compression struct {
	// Formats are the kinds of minis that it writes, 0 if it compresses nothing.
	Formats MiniFormat
	// Completions is how many a block stands for at most.
	Completions int
}

// ParseCompression reads it from the driver's part of the answer to the extended
// query of the device, struct mlx5_ib_query_device_resp of rdma/mlx5-abi.h. Drivers
// older than compression say less.
func ParseCompression(b []byte) Compression {
	const end = 40 // of cqe_comp_caps
	var r abi.MLX5IBQueryDeviceResp
	if copy(r.Bytes(), b) < end || r.ResponseLength < end {
		return Compression{}
	}
	return Compression{Formats: MiniFormat(r.CQECompCaps.SupportedFormat), Completions: int(r.CQECompCaps.MaxNum)}
}
