package mlx5

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// The device's side of a completion queue, written from the layout facts and not
// from the package under test: offsets and codes are numbers here.

var big = binary.BigEndian

// completion is a CQE as the device means it.
type completion struct {
	opcode, format, sendOpcode       byte
	uidx, qpn                        uint32
	counter                          uint16
	bytes, imm, source               uint32 // source is flags_rqpn
	slid, vlan                       uint16
	headers                          byte
	stamp                            uint64
	syndrome, vendor                 byte
	data                             []byte // inline
	hwSyndrome, hwType, signature, x byte   // what no program sees
}

// encode writes all of c but the owner bit into an entry of 64 or 128 bytes.
func (c *completion) encode(to []byte) {
	for i := range to {
		to[i] = 0xa5 ^ c.x // reserved bytes may hold anything
	}
	b := to[len(to)-64:]
	big.PutUint16(b[22:], c.slid)
	big.PutUint32(b[24:], c.source)
	b[29] = c.headers
	big.PutUint16(b[30:], c.vlan)
	big.PutUint32(b[32:], c.uidx|uint32(c.x)<<24)
	big.PutUint32(b[36:], c.imm)
	b[40] = 0
	big.PutUint32(b[44:], c.bytes)
	big.PutUint64(b[48:], c.stamp)
	big.PutUint32(b[56:], c.qpn|uint32(c.sendOpcode)<<24)
	big.PutUint16(b[60:], c.counter)
	b[62] = c.signature
	b[63] = c.opcode<<4 | c.format<<2 | c.x&2
	if c.opcode == 13 || c.opcode == 14 {
		b[52], b[53], b[54], b[55] = c.hwSyndrome, c.hwType, c.vendor, c.syndrome
	}
	switch c.format {
	case 1:
		copy(b[:32], c.data)
	case 2:
		copy(to[:len(to)-64], c.data)
	}
}

// parseCompletion reads an entry.
func parseCompletion(b []byte) (c completion) {
	entry := b
	b = b[len(b)-64:]
	c.slid = big.Uint16(b[22:])
	c.source = big.Uint32(b[24:])
	c.headers = b[29]
	c.vlan = big.Uint16(b[30:])
	c.uidx = big.Uint32(b[32:]) & 0xffffff
	c.imm = big.Uint32(b[36:])
	c.bytes = big.Uint32(b[44:])
	c.stamp = big.Uint64(b[48:])
	c.qpn = big.Uint32(b[56:]) & 0xffffff
	c.sendOpcode = b[56]
	c.counter = big.Uint16(b[60:])
	c.opcode, c.format = b[63]>>4, b[63]>>2&3
	c.vendor, c.syndrome = b[54], b[55]
	switch {
	case c.format == 1:
		c.data = b[:32]
	case c.format == 2 && len(entry) == 128:
		c.data = entry[:64]
	}
	return c
}

// completer is the device's side of a ring.
type completer struct {
	mem, record []byte
	size, n     int
	producer    uint32 // free-running
}

// newCompleter takes over a ring that software made.
func newCompleter(mem, record []byte, size int) *completer {
	return &completer{mem: mem, record: record, size: size, n: len(mem) / size}
}

// entry is the memory of the entry with a free-running index.
func (d *completer) entry(i uint32) []byte {
	at := int(i) & (d.n - 1) * d.size
	return d.mem[at : at+d.size : at+d.size]
}

// owner is the owner bit of entry i: it turns over with every lap.
func (d *completer) owner(i uint32) byte { return byte(i / uint32(d.n) & 1) }

// add writes a completion: the owner bit comes last.
func (d *completer) add(c *completion) {
	var b [128]byte
	c.encode(b[:d.size])
	d.addRaw(b[:d.size])
}

func (d *completer) addRaw(b []byte) {
	to := d.entry(d.producer)
	copy(to[:d.size-4], b)
	last := b[d.size-4 : d.size : d.size]
	last[3] = last[3]&^1 | d.owner(d.producer)
	store32(to, d.size-4, binary.NativeEndian.Uint32(last))
	d.producer++
}

// consumed is the consumer index as the device sees it: 24 bits.
func (d *completer) consumed() uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], load32(d.record, 0))
	return big.Uint32(b[:])
}

// used is how many entries software has not given back.
func (d *completer) used() (uint32, error) {
	c := d.consumed()
	n := (d.producer - c) & 0xffffff
	if c > 0xffffff || n > uint32(d.n) {
		return 0, fmt.Errorf("consumer index %#x where the producer's is %#x in a ring of %d", c, d.producer, d.n)
	}
	return n, nil
}

// newTestCQ makes a queue and the device behind it, which both stand at index start.
func newTestCQ(mem, record []byte, size int, start uint32, more func(*CQConfig)) (*CQ, *completer, error) {
	c := CQConfig{Buffer: mem, Record: record, EntrySize: size}
	more(&c)
	q, err := NewCQ(c)
	if err != nil {
		return nil, nil, err
	}
	d := newCompleter(mem, record, size)
	q.startAt(start)
	d.producer = start
	return q, d, nil
}

// startAt moves a fresh queue on to an index, as if it had been used for long.
func (q *CQ) startAt(start uint32) {
	q.next, q.given = start, start
	q.record[0] = toBE32(start & 0xffffff)
}

// party is a queue pair on a completion queue.
type party struct {
	index      uint32
	ep         *cq.Endpoint
	send, recv *cq.Requests
	// Where the next request of each side goes in its work queue.
	sendPos, recvPos uint16
}

func newParty(eps *cq.Endpoints, state *cq.State, qpn, depth uint32) *party {
	i, ok := eps.Reserve()
	if !ok {
		panic("no user index left")
	}
	p := &party{
		index: i,
		send:  cq.NewRequests(depth, cq.SendSide, qpn, state),
		recv:  cq.NewRequests(depth, cq.RecvSide, qpn, state),
	}
	p.ep = &cq.Endpoint{QPN: qpn, Send: p.send, Recv: p.recv}
	eps.Set(i, p.ep)
	return p
}

// postSend posts a send-side request that takes so many blocks and returns where
// it stands.
func (p *party) postSend(id uint64, op cq.Opcode, bytes uint32, quiet bool, blocks uint16) (pos uint16, signal bool) {
	seq, signal := p.send.Stage(id, op, bytes, quiet)
	pos = p.sendPos
	p.send.Place(seq, pos)
	p.sendPos += blocks
	p.send.Commit()
	return pos, signal
}

func (p *party) postRecv(id uint64, bytes uint32) (pos uint16) {
	seq, _ := p.recv.Stage(id, cq.OpRecv, bytes, false)
	pos = p.recvPos
	p.recv.Place(seq, pos)
	p.recvPos++
	p.recv.Commit()
	return pos
}
