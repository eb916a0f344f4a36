package mlx5_test

import (
	"encoding/hex"
	"fmt"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// A completion queue over plain memory, and what the device writes to it when a send
// of 12 bytes with immediate data has filled a receive.
func ExampleCQ() {
	var eps cq.Endpoints
	var state cq.State
	page, record := make([]byte, 4096), make([]byte, 8)
	q, err := mlx5.NewCQ(mlx5.CQConfig{
		Buffer: page[:64*mlx5.CQEntries(7)], EntrySize: 64, Record: record,
		Endpoints: &eps, State: &state,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A receive of queue pair 0x4a5, which the device knows as user 1.
	index, _ := eps.Reserve()
	receives := cq.NewRequests(8, cq.RecvSide, 0x4a5, &state)
	eps.Set(index, &cq.Endpoint{QPN: 0x4a5, Recv: receives})
	seq, _ := receives.Stage(42, cq.OpRecv, 4096, false)
	receives.Place(seq, 0) // an RQ does that
	receives.Commit()

	entry, _ := hex.DecodeString("" +
		"00000000000000000000000000000000" + "00000000000000000000000000000000" +
		"00000001" + "cafef00d" + "00000000" + "0000000c" +
		"0000000000000000" + "000004a5" + "0000" + "00" + "30")
	copy(page, entry)

	var wcs [4]cq.WC
	n, drained := q.Poll(wcs[:])
	imm, _ := wcs[0].Imm()
	fmt.Println(n, drained, wcs[0].ID, wcs[0].Opcode, wcs[0].Bytes, fmt.Sprintf("%#x", imm))
	fmt.Printf("consumer index % x\n", record[:4])
	// Output:
	// 1 true 42 receive 12 0xcafef00d
	// consumer index 00 00 00 01
}
