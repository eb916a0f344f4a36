package uverbs

import (
	"math/bits"

	"github.com/goverbs/goverbs/cq"
)

// pollTally is what Poll itself writes of a queue that counts: so little, and so plainly,
// that a poll which takes one completion hardly feels it. All else is the meter's, which
// Poll calls when there is something out of the ordinary. The poller alone writes to it.
type pollTally struct {
	good    cq.Counter                   // completions that succeeded
	batches [emptyBatches + 1]cq.Counter // by the bits of their size less 1
	low     uint32                       // a poll that finds less than this,
	span    uint32                       // or as much as this above it, is to be looked at
	blind   int32                        // completions that may be taken before the next look at what is left
	stride  int32                        // what blind begins with
}

// emptyBatches is where polls are counted that found nothing.
const emptyBatches = 32

// count counts a poll that took n completions from the ring, none of which failed, and
// left none, if drained. It says whether the poller is to look how full the ring was.
// How many are left costs a look at the ring's memory, so where polls take few of many,
// not each of them looks.
func (t *pollTally) count(n int, drained bool) bool {
	t.batches[bits.Len32(uint32(n-1))].Add(1)
	t.good.Add(uint64(n))
	if drained {
		return uint32(n)-t.low >= t.span
	}
	t.blind -= int32(n)
	return t.blind < 0
}
