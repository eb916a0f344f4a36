package mlx5

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// A queue that was closed while it was polled gives nothing back: by then its record
// may be another queue's.
func TestClosedGivesNothing(t *testing.T) {
	s := plainScene(t, 8, 0)
	for range 3 {
		s.device.add(&completion{opcode: 13, uidx: qpFree})
	}
	var wcs [2]cq.WC
	record := func() []byte { return bytes.Clone(s.device.record) }
	none := record()
	s.state.Set(cq.Closed)
	s.q.Poll(wcs[:])
	if got := record(); !bytes.Equal(got, none) {
		t.Errorf("a Poll of a closed queue makes its record % x of % x", got, none)
	}
	if n := s.q.loadGiven(); n != 0 {
		t.Errorf("%d entries of a closed queue were given back", n)
	}
	s.state.Clear(cq.Closed)
	s.device.add(&completion{opcode: 13, uidx: qpFree})
	s.q.Poll(wcs[:])
	if got := record(); bytes.Equal(got, none) {
		t.Error("a Poll of an open queue gives nothing back")
	}
}
