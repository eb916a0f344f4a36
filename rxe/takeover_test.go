package rxe

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// A receive queue whose ring is replaced keeps what was staged, after what the
// driver has moved, however both rings stand; and publishes none of it by itself.
func TestTakeOver(t *testing.T) {
	const element, sges = 128, 3
	list := func(id uint64) []cq.SGE {
		l := make([]cq.SGE, id%(sges+1))
		for i := range l {
			l[i] = cq.SGE{Addr: id<<8 | uint64(i), Length: uint32(id), LKey: uint32(i)}
		}
		return l
	}
	for start := range uint32(8) {
		for staged := range uint64(5) {
			oldMem, newMem := heapRing(8, element, start), heapRing(16, element, 13)
			old, err := NewRQ(oldMem, sges)
			if err != nil {
				t.Fatal(err)
			}
			old.Put(90, list(90))
			old.Put(91, list(91))
			old.Publish()
			for id := range staged {
				old.Put(id, list(id))
			}
			// The driver moves what was published.
			for i := range uint32(2) {
				copy(newMem[offSlots+int((13+i)&15)*element:][:element], oldMem[offSlots+int((start+i)&7)*element:])
			}
			store32(newMem, offProducer, 15)
			q, err := NewRQ(newMem, sges)
			if err != nil {
				t.Fatal(err)
			}
			q.TakeOver(old)
			if p := load32(newMem, offProducer); p != 15 {
				t.Errorf("producer index %d before it is published, want 15", p)
			}
			q.Put(7, list(7))
			q.Rollback(1)
			q.Publish()
			if p := load32(newMem, offProducer); p != uint32(15+staged)&15 {
				t.Errorf("producer index %d after %d from 15", p, staged)
			}
			for id := range staged {
				was, is := oldMem[offSlots+int((start+2+uint32(id))&7)*element:][:element], newMem[offSlots+int((15+uint32(id))&15)*element:][:element]
				if n := 40 + 16*len(list(id)); !bytes.Equal(was[:n], is[:n]) || native.Uint64(is) != id {
					t.Errorf("start %d: receive %d is\n%x, want\n%x", start, id, is[:n], was[:n])
				}
			}
		}
	}
}
