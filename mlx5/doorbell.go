package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5/internal/mmio"
)

// A doorbell record is 8 bytes of ordinary memory in which the device reads how
// far a queue has got: two big-endian words of which a queue pair uses the first
// for its receives and the second for its sends, and a shared receive queue the
// first alone. They count on past the size of the queue, modulo 2^16.
const (
	recordBytes = 8
	recordRecv  = 0
	recordSend  = 1
)

// doorbellMode is how a register is mapped and what it takes.
type doorbellMode uint8

const (
	doorbellNone doorbellMode = iota
	doorbellUncached
	doorbellCombining
	doorbellBlueFlame
)

// Doorbell is a register of a UAR page at which send queues tell the device that
// they have new requests. Make it with [UncachedDoorbell], [CombiningDoorbell] or
// [BlueFlame], of the memory that [UAR.Register] says.
type Doorbell struct {
	// Tell, if not nil, is told what was stored, and how many bytes past the
	// beginning of the register: the first 8 bytes, as a big-endian number. It
	// is for a device in software, which does not see the store by itself.
	Tell func(off int, value uint64)

	mem  []byte
	reg  *uint64 // the first 8 bytes
	mode doorbellMode
}

// UncachedDoorbell is a register, of 8 bytes at least, in a page that is mapped
// uncached (MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC). Any number of send queues may share
// it: a doorbell is one store. It works on every host.
func UncachedDoorbell(register []byte) (*Doorbell, error) {
	return newDoorbell(register, recordBytes, doorbellUncached)
}

// CombiningDoorbell is a register, of 8 bytes at least, in a page that is mapped
// write-combining, of which send queues are to use no more than 8 bytes, so that
// any number of them may share it: register 0 of a context without dynamic UARs
// is one, and all others that it gives to several queue pairs.
func CombiningDoorbell(register []byte) (*Doorbell, error) {
	return newDoorbell(register, recordBytes, doorbellCombining)
}

// BlueFlame is a whole register, of the size that the context says
// ([Context.BlueFlameBytes]), in a page that is mapped write-combining
// (MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF). A lone small request goes to the device with
// its doorbell, which saves it the reading of the request. It belongs to one send
// queue.
func BlueFlame(register []byte) (*Doorbell, error) {
	n := len(register)
	if n < 2*blockBytes || n > adapterPage || n&(n-1) != 0 {
		return nil, fmt.Errorf("mlx5: a BlueFlame register of %d bytes: it is a power of two from %d to %d, two halves of whole blocks: "+
			"pass as many bytes as the context says", n, 2*blockBytes, adapterPage)
	}
	return newDoorbell(register, blockBytes, doorbellBlueFlame)
}

func newDoorbell(register []byte, align int, mode doorbellMode) (*Doorbell, error) {
	if len(register) < recordBytes {
		return nil, fmt.Errorf("mlx5: a doorbell register of %d bytes: it has %d at least", len(register), recordBytes)
	}
	reg, off := wordAt(register, align)
	if off != 0 {
		return nil, fmt.Errorf("mlx5: a doorbell register %d bytes past a multiple of %d: map the UAR at a page and take the register's offset from the context",
			off, align)
	}
	return &Doorbell{mem: register, reg: reg, mode: mode}, nil
}

// bell is a send queue's use of its register.
type bell struct {
	tell func(off int, value uint64)
	reg  *uint64
	mode doorbellMode
	// BlueFlame: the two halves take turns, so that the one that is on its way
	// is not touched.
	mem  []byte
	half uint32
	at   uint32
}

func (d *Doorbell) bell() bell {
	b := bell{tell: d.Tell, reg: d.reg, mode: d.mode}
	if d.mode == doorbellBlueFlame {
		b.mem, b.half = d.mem, uint32(len(d.mem)/2)
	}
	return b
}

// ring tells the device of the requests up to the one whose WQE begins at pos and
// has so many blocks. alone says that it is the only new one.
func (b *bell) ring(w *wqes, pos, blocks uint32, alone bool) {
	control := w.segment(pos)
	if b.mode == doorbellUncached {
		mmio.RecordBarrier()
		mmio.StoreDoorbell64(b.reg, control.first())
		return
	}
	switch {
	case b.mode == doorbellCombining:
		mmio.StoreWC(b.reg, control.first())
	case alone && control.segments() > 1 && blocks<<blockShift <= b.half:
		w.copyWC((*[blockBytes]byte)(b.mem[b.at:]), pos, blocks)
		b.at ^= b.half
	default:
		mmio.StoreWC(b.word(), control.first())
		b.at ^= b.half
	}
}

// told tells a device in software what ring has stored, and how far in the register.
//
//go:noinline
func (b *bell) told(at uint32, first uint64) { b.tell(int(at), toBE64(first)) }

// word is the first 8 bytes of the half whose turn it is.
func (b *bell) word() *uint64 {
	w, _ := wordAt(b.mem[b.at:], blockBytes)
	return w
}

// recordWord finds a word of the doorbell record in mem and sets it to 0.
func recordWord(mem []byte, word int) (*uint32, error) {
	if len(mem) != recordBytes {
		return nil, fmt.Errorf("mlx5: a doorbell record of %d bytes: it has %d", len(mem), recordBytes)
	}
	r, off := recordAt(mem)
	if off != 0 {
		return nil, fmt.Errorf("mlx5: a doorbell record %d bytes past a multiple of %d: take it from Records", off, recordBytes)
	}
	cq.StoreRelease32(&r[word], 0)
	return &r[word], nil
}

// storeRecord writes a count to a word of a doorbell record, after all requests
// that it covers.
func storeRecord(word *uint32, count uint32) {
	mmio.RequestBarrier()
	cq.StoreRelease32(word, toBE32(count&0xffff))
}
