package model

import (
	"encoding/binary"
	"time"
)

type armState uint8

const (
	armNone armState = iota
	armAny
	armSolicited
)

// Fields of the word that arms.
const (
	armSolicitedOnly = 1 << 24
	armSerialShift   = 28
	armReserved      = 0xce000000
)

// arm is a doorbell at the arm register: the word that stands in the record too,
// and the queue's number.
func (f *File) arm(u *uar, word, cqn uint32) {
	q := f.dev.cqTable[cqn]
	switch {
	case q == nil || q.f != f:
		f.m.violation("an arm doorbell for CQ %#x, which the context has not", cqn)
		return
	case q.uar != u:
		f.m.violation("CQ %#x is armed at UAR %#x, and was made with %#x: the device takes no notice", cqn, u.id, q.uar.id)
		return
	}
	if r, err := f.mem.Load32(q.db + recordArm); err == nil && r != word && !f.polled {
		f.m.violation("CQ %#x: its doorbell says %#x and its record %#x: the record is written first, with the same word", cqn, word, r)
	}
	q.arm(word)
}

// arm asks for an event. One with an old serial number is ignored: it is from before the
// last event.
func (q *cq) arm(word uint32) {
	q.seenArm = word
	if word&armReserved != 0 {
		q.d.m.violation("CQ %#x: the arm word %#x has reserved bits", q.cqn, word)
	}
	// A second store to the register hides a first one that was not seen yet: a device sees
	// both. The number after the one that is due says that there was a first, which the
	// program takes for answered, since a completion has come.
	if serial := word >> armSerialShift & 3; q.f.polled && serial == (q.serial+1)&3 && q.armed == armNone && int32(q.producer-q.notified) > 0 {
		q.fire()
	}
	if q.dead || word>>armSerialShift&3 != q.serial {
		return
	}
	state := armAny
	if word&armSolicitedOnly != 0 {
		state = armSolicited
	}
	// An arm for any completion is not weakened by one for solicited ones.
	if q.armed != armAny {
		q.armed = state
	}
	// What the program has neither polled nor been told of counts.
	ci := q.producer - (q.producer-word)&indexMask
	base := max(int32(ci-q.notified), 0) + int32(q.notified)
	switch fresh := int32(q.producer) - base; {
	case fresh <= 0:
	case q.armed == armAny:
		q.moderate(uint32(fresh))
	case q.everSolicited && int32(q.lastSolicited)-base > 0:
		q.fire()
	}
}

// produced is called after n completions, of which the last is solicited or failed
// or not.
func (q *cq) produced(n uint32, solicited bool) {
	if solicited {
		q.lastSolicited, q.everSolicited = q.producer, true
	}
	switch {
	case q.armed == armSolicited && solicited:
		q.fire()
	case q.armed == armAny:
		q.moderate(q.producer - q.notified)
	}
}

// moderate fires now, or when enough completions or enough time have come together.
func (q *cq) moderate(fresh uint32) {
	switch {
	case q.maxCount <= 1 || fresh >= uint32(q.maxCount):
		q.fire()
	case q.period > 0 && q.timer == nil:
		var t *time.Timer
		t = q.d.m.after(q.period, func() {
			if q.timer == t && q.armed != armNone {
				q.fire()
			}
		})
		q.timer = t
	}
}

// fire tells the program, and disarms.
func (q *cq) fire() {
	q.stopTimer()
	q.armed = armNone
	q.serial = (q.serial + 1) & 3
	q.notified = q.producer
	if q.channel == nil {
		return
	}
	r := record{size: 8, reported: &q.comp}
	binary.NativeEndian.PutUint64(r.bytes[:], q.userHandle)
	q.d.m.deliver(q.channel, r, AtEvent, q.cqn)
}
