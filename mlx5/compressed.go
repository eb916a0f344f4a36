package mlx5

import (
	"sync"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5/internal/mmio"
)

// CompressedCQ is the completion queue of a ConnectX that was told to compress: it
// writes completions that have most in common as a title, an ordinary CQE, and eight
// bytes for each. It is a [cq.CompletionRing].
//
// It cannot be resized, nor swept: a queue pair that uses it is closed, not reset.
//
// Nothing is asked to compress unless a program asks for it, and it takes longer to
// poll than a [CQ], whose decoder it shares from the point on where each completion
// stands alone. One goroutine at a time polls and arms; all other methods may be
// called from any.
type CompressedCQ struct {
	mu sync.Mutex // the place in a block is not to be had by one atomic load
	consumer
	decode   decoder
	arm      *arm
	enhanced bool

	// The block that is being read.
	title       cqe
	titled      bool // there was a title, in the enhanced layout
	minis       [64]byte
	count, done uint32 // completions
}

var _ cq.CompletionRing = (*CompressedCQ)(nil)

// NewCompressedCQ makes a completion queue of memory, which it fills: before the
// kernel is told of it, with cqe_comp_en set. Enhanced is the newer layout, which only
// a queue made by other means than verbs can have.
func NewCompressedCQ(c CQConfig, enhanced bool) (*CompressedCQ, error) {
	plain, err := NewCQ(c)
	if err != nil {
		return nil, err
	}
	q := plain.Compressed()
	if q.enhanced = enhanced; enhanced {
		for i := range q.ring.mask + 1 {
			q.ring.entry(i).signature = validityNever
		}
	}
	return q, nil
}

// Compressed makes the reader of what the device compresses out of a queue that was not
// polled yet, and takes its place: of q only what concerns events may be used further.
func (q *CQ) Compressed() *CompressedCQ {
	return &CompressedCQ{consumer: q.consumer, decode: q.decode, arm: q.arm}
}

// In the enhanced layout the signature is the count of the lap that the entry belongs
// to, modulo 256. A ring is filled with one that comes late.
const validityNever = 0xff

const (
	miniSize       = 8
	minisPerArray  = 8
	minisInOneSlot = 7 // of the enhanced layout, where the entry keeps its last 8 bytes
)

// Poll is as that of a CQ.
func (q *CompressedCQ) Poll(wcs []cq.WC) (n int, drained bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.next
	lap := next + q.Capacity()
	for n < len(wcs) && next != lap {
		there, whole := q.take(next)
		if !there {
			drained = true
			break
		}
		if whole && q.decode.endOwn(next, &wcs[n]) {
			n++
		}
		next++
	}
	if !drained {
		drained = !q.pending(next)
	}
	if next != q.next {
		q.give(next)
	}
	return n, drained
}

// pending says whether there is a completion at index i, where q stands.
func (q *CompressedCQ) pending(i uint32) bool { return q.done < q.count || q.ownedHere(i) }

// ownedHere says whether the entry at index i, which is not inside of a block, is
// software's.
func (q *CompressedCQ) ownedHere(i uint32) bool {
	if !q.enhanced {
		return q.owned(i)
	}
	v := q.ring.entry(i).last()
	return byte(v>>8) == byte(i>>q.ring.log) && (v&formatMask == formatCompressed || v&0xf0 != cqeInvalid<<4)
}

// take makes q.decode.own the completion of index i, which is the next one. there is
// false when there is none. Whole is false when what is there is none, and takes up
// the index for nothing.
func (q *CompressedCQ) take(i uint32) (there, whole bool) {
	if q.done == q.count {
		if !q.ownedHere(i) {
			return false, false
		}
		mmio.ReadBarrier()
		q.decode.read(&q.ring, i)
		own := &q.decode.own
		if own.opcodeAndMore&formatMask != formatCompressed {
			if q.enhanced && own.opcodeAndMore>>4 <= cqeSendInvalidate {
				q.title, q.titled = *own, true
			}
			return true, true
		}
		if !q.begin() {
			q.decode.drop(false)
			return true, false
		}
	}
	q.expand(i)
	return true, true
}

// begin begins the block whose first entry is in q.decode.own. It says whether that
// can be one.
func (q *CompressedCQ) begin() bool {
	own := &q.decode.own
	n := q.block(own)
	if n == 0 || q.enhanced && !q.titled {
		return false
	}
	if q.enhanced {
		q.minis = *own.bytes()
	} else {
		q.title = *own
	}
	q.count, q.done = n, 0
	return true
}

// block is how many completions the entry stands for, which says that it begins a
// block; 0 if it cannot.
func (q *CompressedCQ) block(e *cqe) uint32 {
	n, least, most := e.byteCount.Uint32(), uint32(2), q.Capacity()
	if q.enhanced {
		n, least, most = uint32(e.opcodeAndMore>>4)+1, 1, min(most, minisInOneSlot)
	} else if e.opcodeAndMore>>4 > cqeSendInvalidate {
		return 0
	}
	// The title of the older layout is the first completion itself: one alone
	// would have its array in an entry that is not its own.
	if n < least || n > most {
		return 0
	}
	return n
}

// expand makes q.decode.own the completion of index i, which is the next of the
// block, out of the title and eight bytes.
func (q *CompressedCQ) expand(i uint32) {
	if !q.enhanced {
		// Arrays of eight stand where the completions would that they stand for,
		// but for the first, which leaves room for the title.
		if q.done%minisPerArray == 0 {
			at := i
			if q.done == 0 {
				at++
			}
			q.minis = *q.ring.entry(at).bytes()
		}
		// What the array left in the entry's last byte could look like a
		// completion in the next lap.
		q.ring.clear(i)
	}
	mini := q.minis[q.done%minisPerArray*miniSize:][:miniSize]
	own := &q.decode.own
	*own = q.title
	own.opcodeAndMore &^= formatMask
	switch {
	case own.opcodeAndMore>>4 == cqeRequester:
		own.counter = [2]byte(mini)
	case q.enhanced:
		// The title was the one before.
		own.counter = abi.MakeBe16(own.counter.Uint16() + 1)
		q.title.counter = own.counter
	default:
		own.counter = abi.MakeBe16(own.counter.Uint16() + uint16(q.done))
	}
	own.byteCount = [4]byte(mini[4:])
	q.done++
}

// Consumed is as that of a CQ.
func (q *CompressedCQ) Consumed() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next
}

// Produced is as that of a CQ.
func (q *CompressedCQ) Produced() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	end := q.next + q.Capacity()
	i := q.next + q.count - q.done
	for int32(end-i) > 0 && q.ownedHere(i) {
		i += q.length(i)
	}
	if int32(end-i) < 0 {
		return end
	}
	return i
}

// length is how many completions the entry at index i stands for.
func (q *CompressedCQ) length(i uint32) uint32 {
	var e cqe
	*e.bytes() = *q.ring.entry(i).bytes()
	if e.opcodeAndMore&formatMask != formatCompressed {
		return 1
	}
	return max(q.block(&e), 1)
}

// Empty is as that of a CQ.
func (q *CompressedCQ) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next == q.loadGiven() && !q.pending(q.next)
}

// Holds is as that of a CQ, but looks at all that is there: an entry may stand for
// many completions.
func (q *CompressedCQ) Holds(n uint32) bool { return q.Produced()-q.loadGiven() >= n }

// ReturnShared is as that of a CQ.
func (q *CompressedCQ) ReturnShared() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for end := q.next + q.Capacity(); q.next != end; q.next++ {
		there, whole := q.take(q.next)
		if !there {
			return
		}
		if whole {
			q.decode.returnOwn(q.next)
		}
	}
}

// SetNumber is as that of a CQ.
func (q *CompressedCQ) SetNumber(cqn uint32) { q.arm.number = cqn & low24 }

// Arm is as that of a CQ.
func (q *CompressedCQ) Arm(solicitedOnly bool) {
	q.arm.ring(&q.consumer, q.pending(q.next), solicitedOnly)
}

// EventTaken is as that of a CQ.
func (q *CompressedCQ) EventTaken() { q.arm.events.Add(1) }

// Moderated is as that of a CQ.
func (q *CompressedCQ) Moderated() { q.arm.moderated.Store(true) }
