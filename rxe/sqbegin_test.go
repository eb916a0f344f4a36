package rxe

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// Begin and End write what Put does, byte for byte, over whatever was in the slot a lap before.
func TestBeginEnd(t *testing.T) {
	const slots, size = 4, 256
	for flags := range cq.Inline { // all without data
		for _, op := range []cq.Opcode{cq.OpSend, cq.OpWrite, cq.OpRead} {
			t.Run(fmt.Sprintf("%v/flags=%d", op, flags), func(t *testing.T) {
				r := cq.SendRequest{WRID: id, Op: op, Flags: flags, Length: sges[0].Length, SGEs: sges[:1]}
				if op != cq.OpSend {
					r.RemoteAddr, r.RKey = far, 0x2c3
				}
				var rings [2][]byte
				for i := range rings {
					mem := heapRing(slots, size, slots-1)
					for at := offSlots; at < len(mem); at++ {
						mem[at] = 0xa5 // of a lap before, and of the driver
					}
					q, err := NewSQ(mem, 1, 0)
					if err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						q.Put(&r)
					} else {
						q.End(q.Begin(r.WRID, r.Op, r.Flags), r.SGEs[0], r.RemoteAddr, r.RKey)
					}
					if q.staged != 1 {
						t.Errorf("%d requests are staged after one", q.staged)
					}
					q.Publish()
					rings[i] = mem
				}
				if !bytes.Equal(rings[0], rings[1]) {
					t.Errorf("Begin and End left\n%x, Put\n%x", rings[1], rings[0])
				}
			})
		}
	}
}
