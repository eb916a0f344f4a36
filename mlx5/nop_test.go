package mlx5

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// A request that does nothing is a control segment alone, signalled, which waits for
// a window before it as all others do; who has to be told of the doorbell is told.
func TestNop(t *testing.T) {
	var state cq.State
	requests := cq.NewRequests(4, cq.SendSide, 0x123456, &state)
	size, err := SizeSend(Limits{SendBytes: 1024, SendBlocks: 32768}, RC, 4, 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	register := guarded(t, 0x200, true)
	bell, err := BlueFlame(register)
	if err != nil {
		t.Fatal(err)
	}
	var told []uint64
	var where []int
	bell.Tell = func(off int, v uint64) { where, told = append(where, off), append(told, v) }
	ring, record := guarded(t, size.Bytes, true), guarded(t, 8, true)
	sq, err := NewSQ(SQConfig{Memory: ring, Record: record, Doorbell: bell, QPN: 0x123456, Size: size, Requests: requests})
	if err != nil {
		t.Fatal(err)
	}
	seq, _ := requests.Stage(1, cq.OpSend, 0, true)
	sq.Put(&cq.SendRequest{WRID: uint64(seq), Op: cq.OpSend, Flags: cq.Unsignaled})
	seq = requests.StageSilent()
	sq.PutNop(uint64(seq))
	requests.Commit()
	sq.Publish()
	want := []byte{0, 0, 1, 0x00, 0x12, 0x34, 0x56, 1, 0, 0, 0, 8, 0, 0, 0, 0}
	if got := ring[64:80]; !bytes.Equal(got, want) {
		t.Errorf("the request is % x, want % x", got, want)
	}
	if got := binary.BigEndian.Uint32(record[4:]); got != 2 {
		t.Errorf("the doorbell record says %d, want 2", got)
	}
	seq = requests.StageSilent()
	sq.PutNop(uint64(seq))
	requests.Commit()
	sq.Publish()
	if len(told) != 2 || where[0] != 0 || where[1] != 0x100 || told[0] != binary.BigEndian.Uint64(want) || told[1]>>32 != 0x200 {
		t.Errorf("told of %#x at %#x", told, where)
	}
	if found, ok := requests.Find(2); !ok || found != seq {
		t.Errorf("position 2 is request %d (%v), want %d", found, ok, seq)
	}
}
