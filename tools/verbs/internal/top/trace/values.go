//go:build linux

package trace

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/goverbs/goverbs/abi"
)

// What the maps hold. The programs write these by the offsets of their fields,
// so none may have padding.

// snapshot is what a dump showed of one CQ; keys are CQIDs.
type snapshot struct {
	Round      uint64 // of the dump, see Tracer.Snapshot
	Uobject    uint64 // address, 0 for the kernel's own CQs
	Handle     uint64
	Pending    uint64 // address of the first event that waits, or of the list itself
	Entries    uint32
	Vector     uint32
	Driver     uint32
	EventsRead uint32
	ErrorsRead uint32
	Ring       uint32 // 1: the rest was read
	Mask       uint32 // as the driver has it
	BufMask    uint32 // as the shared memory has it
	BufLog2    uint32 // of an element's size
	Producer   uint32
	Consumer   uint32
	Notify     uint32
}

// eventCounts is what a CQ's completion events came to.
type eventCounts struct {
	Count, N, Total, Max uint64
	Log2                 [32]uint64
}

// postCounts is what a soft-RoCE CQ's completions came to.
type postCounts struct {
	CQEs, Dropped, HighWater uint64
	ByStatus                 [statuses]uint64
}

// A stampKey finds a completion event between its making and its reading; a
// stamp says when it was made, for which CQ.
type stampKey struct{ Queue, Handle uint64 }

type stamp struct {
	Time uint64
	CQ   CQID
}

// A reader is a thread inside the read of a completion event, by its number.
type reader struct{ File, Buffer uint64 }

// A callKey says who made which call; an inflight is a call that has not
// returned, by its thread.
type callKey struct{ Process, Via, Code, Driver uint32 }

type inflight struct {
	Time              uint64
	Via, Code, Driver uint32
	_                 uint32
}

type callCounts struct {
	Count, Failed, Total, Max uint64
	Comm                      [16]byte
}

// unreadable is the code of a call whose request could not be read.
const unreadable = math.MaxUint32

// The tool's own numbers, elements of one array.
const (
	stateRound   uint32 = iota // of the dump that runs
	statePulls                 // CQs that dumps of this process came to
	lostPulls                  // of these, without room
	lostCounters               // CQs without room for their counters
	lostCalls                  // processes and methods without room
	states
)

// at is where a field of a map's value is.
func at[T any](name string) int16 {
	t := reflect.TypeFor[T]()
	f, ok := t.FieldByName(name)
	if !ok {
		panic(fmt.Sprintf("trace: %v has no field %s", t, name)) // a mistake in this package, found by any test
	}
	return int16(f.Offset)
}

// sizeOf is the size of a map's key or value.
func sizeOf[T any]() uint32 { return uint32(reflect.TypeFor[T]().Size()) }

// driverRXE is soft-RoCE's number.
const driverRXE = uint32(abi.RDMA_DRIVER_RXE)

// cq says what a snapshot means. Everything in it may be garbage: kernel memory
// that changed while it was read, or read at an offset that is wrong.
func (s *snapshot) cq(pending int32) CQ {
	q := CQ{Entries: s.Entries, Vector: s.Vector, Driver: s.Driver, Ring: s.ring()}
	if s.Uobject != 0 {
		q.User = &UserCQ{
			Handle:     s.Handle,
			EventsRead: s.EventsRead,
			ErrorsRead: s.ErrorsRead,
			Pending:    s.Pending != 0 && s.Pending != s.Uobject+uint64(pending),
		}
	}
	return q
}

// Bounds of what soft-RoCE makes of an element: a completion, rounded up to the
// cache's lines.
const (
	leastLog2 = 6
	mostLog2  = 8
)

// ring says what a snapshot knows about the ring; nil if the memory there does
// not look like one. The mask stands in two places: in the driver's own struct
// and in the shared memory that it points to.
func (s *snapshot) ring() *Ring {
	switch {
	case s.Ring != 1, s.Driver != driverRXE:
		return nil
	case s.Mask == 0, s.Mask&(s.Mask+1) != 0, s.Mask != s.BufMask, s.Producer > s.Mask:
		return nil
	case s.BufLog2 < leastLog2, s.BufLog2 > mostLog2, s.Entries > s.Mask:
		return nil
	}
	r := &Ring{Occupied: (s.Producer - s.Consumer) & s.Mask, Usable: s.Mask, Produced: s.Producer}
	// enum ib_cq_notify_flags: 1 and 2. Others are for the programs' own use.
	switch s.Notify & 3 {
	case 1:
		r.Armed = ArmedSolicited
	case 2, 3:
		r.Armed = ArmedNext
	}
	return r
}

// nanoseconds makes a duration of what a program summed up.
func nanoseconds(n uint64) time.Duration { return time.Duration(min(n, math.MaxInt64)) }

func (c *eventCounts) events() *Events {
	return &Events{Count: c.Count, Wake: Latency{N: c.N, Total: nanoseconds(c.Total), Max: nanoseconds(c.Max), Log2: c.Log2}}
}

func (c *postCounts) posts() *Posts {
	return &Posts{CQEs: c.CQEs, Dropped: c.Dropped, HighWater: uint32(min(c.HighWater, math.MaxUint32)), ByStatus: c.ByStatus}
}

// syscall says what a process's calls of one method came to.
func (k callKey) syscall(c *callCounts) Syscall {
	comm, _, _ := bytes.Cut(c.Comm[:], []byte{0})
	s := Syscall{
		PID: k.Process, Comm: string(bytes.ToValidUTF8(comm, []byte("?"))), Via: Via(min(k.Via, 0xff)), Name: "unreadable",
		Count: c.Count, Failed: c.Failed, Total: nanoseconds(c.Total), Max: nanoseconds(c.Max),
	}
	switch {
	case k.Code == unreadable:
	case s.Via == Ioctl:
		s.Object, s.Method = uint16(k.Code), uint16(k.Code>>16)
		s.Name = fmt.Sprintf("object %#x method %#x", s.Object, s.Method)
		if m, ok := abi.LookupMethod(k.Driver, s.Object, s.Method); ok {
			s.Name = m.Name
		}
	default:
		s.Command = k.Code
		s.Name = fmt.Sprintf("command %#x", s.Command)
		if c, ok := abi.LookupCommand(k.Code); ok {
			s.Name = c.Name
		}
	}
	return s
}
