package mlx5

import (
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// armedDevice is the side of the device: it takes an arm with the number of its answers so
// far, no other, and answers once.
type armedDevice struct {
	s       *scene
	armed   bool
	answers uint32
	told    uint32 // completions that an answer told of
	rings   int
}

func (d *armedDevice) tell(off int, value uint64) {
	d.rings++
	word := uint32(value >> 32)
	if off != uarArm || word>>28&3 != d.answers&3 {
		return
	}
	d.armed = true
	// What came after the consumer index, and was not told of, counts.
	fresh := int32(d.s.device.producer<<8-word<<8) >> 8
	if fresh > 0 && d.s.device.producer != d.told {
		d.answer()
	}
}

func (d *armedDevice) answer() {
	d.armed, d.told = false, d.s.device.producer
	d.answers++
}

// complete writes a completion and says whether there is an event of it.
func (d *armedDevice) complete() bool {
	d.s.device.add(&completion{opcode: 13, uidx: qpFree})
	if !d.armed {
		return false
	}
	d.answer()
	return true
}

// newArmed makes a queue and its device.
func newArmed(t *testing.T, start uint32) (*scene, *armedDevice) {
	t.Helper()
	s := plainScene(t, 64, start)
	d := &armedDevice{s: s, told: start}
	a, err := newArm(aligned(4096), d.tell)
	if err != nil {
		t.Fatal(err)
	}
	s.q.arm = a
	return s, d
}

// As long as every event comes once, an arm is one doorbell, and has the number of events.
func TestArmIsOneDoorbell(t *testing.T) {
	s, d := newArmed(t, 1<<24-5)
	for i := range 20 {
		s.q.Arm(false)
		if !d.armed || d.rings != i+1 {
			t.Fatalf("after %d arms: armed %v by %d doorbells", i+1, d.armed, d.rings)
		}
		if !d.complete() {
			t.Fatal("no event")
		}
		s.q.EventTaken()
		s.q.Poll(make([]cq.WC, 4))
	}
}

// Whatever becomes of events, after an arm the device is armed, or has answered it. Who
// arms an empty queue needs no more than one doorbell for that.
func TestArmWithoutTrustInEvents(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		empties := seed%2 == 0 // the queue before it arms
		s, d := newArmed(t, rng.Uint32())
		late := 0
		took := func() {
			answers := d.answers
			for d.answers == answers && rng.IntN(4) > 0 {
				d.complete()
			}
			if d.answers == answers {
				return
			}
			switch what := rng.IntN(5); {
			case what == 0: // lost
			case what == 1 && empties: // twice
				s.q.EventTaken()
				s.q.EventTaken()
			case what == 2:
				late++
			default:
				s.q.EventTaken()
			}
		}
		for range 100 {
			took()
			if empties {
				s.q.Poll(make([]cq.WC, 64))
			} else if rng.IntN(2) == 0 {
				s.q.Poll(make([]cq.WC, 1+rng.IntN(4)))
			}
			for late > 0 && rng.IntN(3) == 0 {
				s.q.EventTaken()
				late--
			}
			answers, rings := d.answers, d.rings
			s.q.Arm(false)
			if !d.armed && d.answers == answers {
				t.Fatalf("seed %d: the device has answered %d arms and is not armed; the queue thinks that it was %d to %d", seed, d.answers, s.q.arm.least, s.q.arm.most)
			}
			if n := d.rings - rings; n > armSpread || empties && n > 1 {
				t.Fatalf("seed %d: %d doorbells for an arm", seed, n)
			}
			s.q.Poll(make([]cq.WC, 64))
		}
	}
}

// A device may see the last of the stores alone: the others are gone from the record when it
// reads there, and stores to one register can be joined. Where every event comes once, the
// last is the right one, also after arms that were not answered.
func TestArmLastStoreIsRight(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := plainScene(t, 64, rng.Uint32())
		var last uint64
		a, err := newArm(aligned(4096), func(_ int, value uint64) { last = value })
		if err != nil {
			t.Fatal(err)
		}
		s.q.arm = a
		answers := uint32(0)
		for i := range 100 {
			solicited := rng.IntN(3) > 0
			s.q.Arm(solicited)
			word := uint32(last >> 32)
			if n := word >> armSequenceShift; n != answers&(armSpread-1) {
				t.Fatalf("seed %d: the last store of arm %d has number %d, after %d answers", seed, i, n, answers)
			}
			if record := toBE32(s.q.record[1]); record != word {
				t.Fatalf("seed %d: arm %d: record %#x, register %#x", seed, i, record, word)
			}
			for range rng.IntN(3) { // none of them solicited
				s.device.add(&completion{opcode: 13, uidx: qpFree})
				if word&armSolicitedOnly == 0 {
					word |= armSolicitedOnly // it answers once
					answers++
					s.q.EventTaken()
				}
			}
			s.q.Poll(make([]cq.WC, 64))
		}
	}
}
