package mlx5_test

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// A send queue over plain memory: what the device would read, and the register at
// which it would hear of it.
func ExampleSQ() {
	limits := mlx5.Limits{SendBytes: 1024, RecvBytes: 512, SendBlocks: 32768, RecvRequests: 32768, SharedRequests: 32767}
	size, err := mlx5.SizeSend(limits, mlx5.RC, 16, 1, 12, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	ring, uar := make([]byte, size.Bytes), make([]byte, 4096)
	records, err := mlx5.NewRecords(make([]byte, 4096), 64)
	if err != nil {
		fmt.Println(err)
		return
	}
	record, _, _ := records.Take()
	bell, err := mlx5.UncachedDoorbell(uar[0x800:])
	if err != nil {
		fmt.Println(err)
		return
	}
	requests := cq.NewRequests(16, cq.SendSide, 0x4a5, new(cq.State))
	q, err := mlx5.NewSQ(mlx5.SQConfig{Memory: ring, Record: record, Doorbell: bell, QPN: 0x4a5, Size: size, Requests: requests})
	if err != nil {
		fmt.Println(err)
		return
	}

	data := []byte("hello, world")
	seq, _ := requests.Stage(1, cq.OpSend, uint32(len(data)), false)
	q.Put(&cq.SendRequest{WRID: cq.MakeWRID(7, cq.SendSide, seq), Op: cq.OpSend, Flags: cq.Inline, Length: uint32(len(data)), Data: data})
	requests.Commit()
	q.Publish()

	fmt.Printf("request  % x\n         % x\n", ring[:16], ring[16:32])
	fmt.Printf("record   % x\n", record)
	fmt.Printf("doorbell % x\n", uar[0x800:0x808])
	// Output:
	// request  00 00 00 0a 00 04 a5 02 00 00 00 08 00 00 00 00
	//          80 00 00 0c 68 65 6c 6c 6f 2c 20 77 6f 72 6c 64
	// record   00 00 00 00 00 00 00 01
	// doorbell 00 00 00 0a 00 04 a5 02
}
