// In race builds the record is stored inside of the race detector, where a fault is
// the end of the process.
//
//go:build !race

package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// When Arm stores to the register, the record has the same word already: the device
// reads it there. TestArmOrder has another goroutine look, which may come too late;
// here the register's page is read-only, so that the store to it ends Arm.
func TestArmRecordFirst(t *testing.T) {
	var state cq.State
	var eps cq.Endpoints
	register, record := newWatched(t, "register", 4096), newWatched(t, "record", 8)
	q, d, err := newTestCQ(aligned(4*64), record.mem[:8], 64, 0, func(c *CQConfig) {
		c.State, c.Endpoints, c.UAR = &state, &eps, register.mem
	})
	if err != nil {
		t.Fatal(err)
	}
	q.SetNumber(0xabc)
	d.add(&completion{})
	q.Poll(make([]cq.WC, 1))
	if !register.caught(t, func() { q.Arm(true) }) {
		t.Fatal("Arm does not store to the register")
	}
	index, arm, word := armed(record.mem[:8], register.mem)
	if index != 1 || arm != 1<<24|1 || word != 0 {
		t.Errorf("when Arm stores to the register, the record has index %d and arm %#x, the register %#x; want 1, 0x1000001 and nothing", index, arm, word)
	}
}
