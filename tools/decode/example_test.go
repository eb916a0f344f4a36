package decode_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/goverbs/goverbs/tools/decode"
)

const pasted = `> [985074.602880] infiniband mlx5_0: dump_cqe:272:(pid 599): dump error cqe
> [985074.602921] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
> [985074.602946] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
> [985074.602970] 00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
> [985074.602994] 00000030: 00 00 00 00 00 00 88 13 08 00 01 46 f2 93 0b d3
`

func ExampleScan() {
	err := decode.Scan(strings.NewReader(pasted), func(f *decode.Finding) error {
		e := decode.Explain(f)
		fmt.Printf("%s: %s\n%s\n", e.Where, e.Title, e.Role)
		for _, x := range e.Facts[:4] {
			fmt.Printf("%s: %s\n", x.Name, x.Value)
		}
		return nil
	}, func(n decode.Note) {
		fmt.Printf("line %d: %s\n", n.Line, n.Text)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// lines 1-5: remote access error (status 10)
	// First error on QP 0x146 in this text.
	// side: requester: a request that this machine sent
	// status: 10, remote access error
	// syndrome: 0x13 (19), remote access error
	// vendor code: 0x88 (136), the peer answered: remote access error
}

func ExampleJSON() {
	line := "NET/IB : Got completion from peer 10.0.0.1<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv)"
	array := decode.NewJSON(os.Stdout)
	if err := decode.Scan(strings.NewReader(line), array.Finding, func(decode.Note) {}); err != nil {
		fmt.Println(err)
	}
	if err := array.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// [
	//  {"wc_status":12,"vendor_err_synd":129,"source_line":1}
	// ]
}

func ExampleText() {
	log := `UCX ERROR Local protection on mlx5_0:1/IB (synd 0x4 vend 0x52 hw_synd 0/147)
UCX ERROR RC QP 0x14819 wqe[0]: SEND s-- [inl len 18]
UCX ERROR WR flushed on mlx5_0:1/IB (synd 0x5 vend 0xf9 hw_synd 0/0)
UCX ERROR RC QP 0x14819 wqe[1]: SEND s-- [inl len 18]
`
	report := decode.NewText(os.Stdout, 76)
	if err := decode.Scan(strings.NewReader(log), report.Finding, report.Note); err != nil {
		fmt.Println(err)
	}
	if err := report.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// lines 1-2: local protection error (status 4)
	//   First error on QP 0x14819 in this text.
	//   What it usually means: A buffer of the request on this machine is not
	//     covered by its memory key: wrong lkey, wrong address or length, memory
	//     region already deregistered, or registered in another protection domain.
	//   Look at first:
	//     1. Check that the region is still registered: deregistering before the
	//        completion is the most common cause.
	//     2. Check address and length of each buffer against its region, and that
	//        region and QP are of the same protection domain.
	//     3. Receives and reads need local write permission on the region.
	//     4. GPU memory: check that peer memory (nvidia-peermem or dma-buf) works
	//        and that PCIe ACS and the IOMMU let the adapter reach the GPU.
	//   In detail:
	//     side         requester: a request that this machine sent
	//     status       4, local protection error
	//     syndrome     0x04 (4), local protection error
	//     vendor code  0x52 (82), memory translation, reading a buffer of the
	//                  request (gather), or a bind: the memory region belongs to
	//                  another protection domain
	//     hardware     syndrome 0x93 (147), type 0x00 (0); known to the vendor
	//                  only
	//     send opcode  0x0a, SEND
	//     QP           0x14819 (83993)
	//     WQE index    0 in its ring
	//   lines 3-4: flushed SEND of QP 0x14819, vendor code 0xf9, consequence of line 1 (same QP)
	//
	// 2 failed completions: 1 first, 0 further on a QP that had failed, 1 flush.
}
