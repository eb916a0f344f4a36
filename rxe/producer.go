package rxe

// producer is the half of a send or receive queue that hands slots to the
// driver. Its index is private and free-running: it starts where the ring
// stands, and nothing that happens to the word in memory changes it.
type producer struct {
	ring   ring
	next   uint32 // the next slot to fill
	staged uint32 // how many before it are not published
}

func newProducer(r ring) producer { return producer{ring: r, next: r.loadProducer()} }

// advance counts the slot that was just filled.
func (p *producer) advance() {
	p.next++
	p.staged++
}

// publish lets the driver see all filled slots.
func (p *producer) publish() {
	p.ring.storeProducer(p.next)
	p.staged = 0
}

// rollback takes the last n slots back, published or not.
func (p *producer) rollback(n uint32) {
	p.next -= n
	if n > p.staged {
		p.publish()
		return
	}
	p.staged -= n
}

// capacity is one less than the number of slots: a full ring must differ from
// an empty one.
func (p *producer) capacity() int { return int(p.ring.mask) }

// space is how many slots can be filled now, by the driver's own consumer
// index: from 0 to the capacity, whatever stands there.
func (p *producer) space() int {
	return int(p.ring.mask - (p.next-p.ring.loadConsumer())&p.ring.mask)
}

// empty says whether the driver has taken all that was published. Any goroutine
// may ask.
func (p *producer) empty() bool { return p.ring.loadProducer() == p.ring.loadConsumer() }
