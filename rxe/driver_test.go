package rxe

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/cq"
)

// The driver's side of a ring, written from the layout facts and not from the
// package under test: offsets are numbers here.

const (
	offLog2     = 0
	offMask     = 4
	offProducer = 128
	offConsumer = 256
	offSlots    = 384
)

var native = binary.NativeEndian

// ringBytes is how much memory a ring takes.
func ringBytes(slots, element int) int { return offSlots + slots*element }

// format writes the header of a fresh ring; start is where both indices stand.
func format(mem []byte, slots, element int, start uint32) []byte {
	clear(mem)
	native.PutUint32(mem[offLog2:], uint32(bits.TrailingZeros(uint(element))))
	native.PutUint32(mem[offMask:], uint32(slots-1))
	store32(mem, offProducer, start)
	store32(mem, offConsumer, start)
	return mem[:ringBytes(slots, element)]
}

// heapRing is a fresh ring on the Go heap.
func heapRing(slots, element int, start uint32) []byte {
	return format(make([]byte, ringBytes(slots, element)), slots, element, start)
}

// cqe is a completion as the driver writes it.
type cqe struct {
	wrid                       uint64
	status, opcode, vendor     uint32
	bytes                      uint32
	ex                         [4]byte
	qpn, srcQPN, flags         uint32
	pkey, slid                 uint16
	sl, pathBits, port, unused uint8
}

func (c *cqe) encode(to []byte) {
	native.PutUint64(to[0:], c.wrid)
	native.PutUint32(to[8:], c.status)
	native.PutUint32(to[12:], c.opcode)
	native.PutUint32(to[16:], c.vendor)
	native.PutUint32(to[20:], c.bytes)
	copy(to[24:28], c.ex[:])
	native.PutUint32(to[28:], c.qpn)
	native.PutUint32(to[32:], c.srcQPN)
	native.PutUint32(to[36:], c.flags)
	native.PutUint16(to[40:], c.pkey)
	native.PutUint16(to[42:], c.slid)
	to[44], to[45], to[46], to[47] = c.sl, c.pathBits, c.port, c.unused
}

func decodeCQE(b []byte) (c cqe) {
	c.wrid = native.Uint64(b[0:])
	c.status = native.Uint32(b[8:])
	c.opcode = native.Uint32(b[12:])
	c.vendor = native.Uint32(b[16:])
	c.bytes = native.Uint32(b[20:])
	copy(c.ex[:], b[24:28])
	c.qpn = native.Uint32(b[28:])
	c.srcQPN = native.Uint32(b[32:])
	c.flags = native.Uint32(b[36:])
	c.pkey = native.Uint16(b[40:])
	c.slid = native.Uint16(b[42:])
	c.sl, c.pathBits, c.port, c.unused = b[44], b[45], b[46], b[47]
	return c
}

// completer is the driver's side of a completion ring.
type completer struct {
	mem      []byte
	element  int
	mask     uint32
	producer uint32 // masked
}

func newCompleter(mem []byte) *completer {
	return &completer{
		mem:      mem,
		element:  1 << native.Uint32(mem[offLog2:]),
		mask:     native.Uint32(mem[offMask:]),
		producer: load32(mem, offProducer),
	}
}

// used is how many completions the poller has not given back.
func (d *completer) used() (uint32, error) {
	c := load32(d.mem, offConsumer)
	if c > d.mask {
		return 0, fmt.Errorf("consumer index %d is not masked by %#x", c, d.mask)
	}
	return (d.producer - c) & d.mask, nil
}

// post writes a completion where the producer index stands, without publishing
// it.
func (d *completer) post(c *cqe) {
	at := offSlots + int(d.producer)*d.element
	slot := d.mem[at : at+d.element]
	c.encode(slot)
	for i := 48; i < len(slot); i++ {
		slot[i] = 0xa5 // the rest is the kernel's own and may be anything
	}
	d.producer = (d.producer + 1) & d.mask
}

func (d *completer) publish() { store32(d.mem, offProducer, d.producer) }

// party is a queue pair on a completion queue, for tests.
type party struct {
	index      uint32
	ep         *cq.Endpoint
	send, recv *cq.Requests
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

// postSend stages and commits one send-side request and returns its WRID.
func (p *party) postSend(id uint64, op cq.Opcode, bytes uint32, quiet bool) (wrid uint64, signal bool) {
	seq, signal := p.send.Stage(id, op, bytes, quiet)
	p.send.Commit()
	return cq.MakeWRID(p.index, cq.SendSide, seq), signal
}

// postRecv stages and commits one receive and returns its WRID.
func (p *party) postRecv(id uint64, bytes uint32) uint64 {
	seq, _ := p.recv.Stage(id, cq.OpRecv, bytes, false)
	p.recv.Commit()
	return cq.MakeWRID(p.index, cq.RecvSide, seq)
}
