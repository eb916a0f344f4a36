package rxe_test

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/rxe"
)

// ring is what the driver maps: a header, and after it slots of so many bytes.
func ring(slots, log2 int) []byte {
	h := abi.RxeQueueBuf{Log2ElemSize: uint32(log2), IndexMask: uint32(slots - 1)}
	return append(h.Bytes(), make([]byte, slots<<log2)...)
}

// A receive is posted, a message comes, and Poll has its completion. The driver
// is played by hand here.
func Example() {
	var endpoints cq.Endpoints
	var state cq.State
	rqMemory, cqMemory := ring(8, 6), ring(8, 7)
	rq, err := rxe.NewRQ(rqMemory, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	q, err := rxe.NewCQ(cqMemory, &endpoints, &state)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The QP that package uverbs keeps: its number and what is posted to it.
	index, _ := endpoints.Reserve()
	receives := cq.NewRequests(4, cq.RecvSide, 17, &state)
	endpoints.Set(index, &cq.Endpoint{QPN: 17, Recv: receives})

	seq, _ := receives.Stage(42, cq.OpRecv, 4096, false)
	wrid := cq.MakeWRID(index, cq.RecvSide, seq)
	rq.Put(wrid, []cq.SGE{{Addr: 0x1000, Length: 4096, LKey: 7}})
	receives.Commit()
	rq.Publish()

	wc := abi.UverbsWC{WRID: wrid, Opcode: 128, ByteLen: 5, QPNum: 17}
	copy(cqMemory[abi.OffRxeQueueBufData:], wc.Bytes())
	binary.NativeEndian.PutUint32(cqMemory[128:], 1) // the producer index

	var wcs [4]cq.WC
	n, drained := q.Poll(wcs[:])
	for _, w := range wcs[:n] {
		fmt.Println(w.Opcode, w.ID, "of", w.Bytes, "bytes on QP", w.QPN)
	}
	fmt.Println("drained:", drained)
	// Output:
	// receive 42 of 5 bytes on QP 17
	// drained: true
}

func ExampleNewCQ_badRing() {
	memory := ring(8, 7)
	_, err := rxe.NewCQ(memory[:1024], &cq.Endpoints{}, &cq.State{})
	fmt.Println(err)
	// Output:
	// rxe: the driver's completion ring has 8 elements of 128 bytes, but 640 bytes of memory after the header
}
