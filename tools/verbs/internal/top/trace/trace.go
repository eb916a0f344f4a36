package trace

import (
	"slices"
	"time"
)

// Options says which probes to attach besides those that cost the programs on
// the machine nothing.
type Options struct {
	// Events counts completion events and measures how long after one the
	// reader's read returns. It costs two probes for each completion event.
	Events bool

	// Syscalls counts uverbs ioctls and writes by process and method. It costs
	// two probes for each call. Programs on soft-RoCE ring the doorbell of
	// their sends that way.
	Syscalls bool

	// EveryCQE counts each completion that soft-RoCE writes, which gives exact
	// rates, the failed ones by status, and the ring's high-water mark. It
	// costs one probe for each completion.
	EveryCQE bool
}

// The names of levels.
const (
	LevelPull     = "pull"      // what a dump shows of each CQ
	LevelRing     = "ring"      // occupancy and arming of soft-RoCE's rings, part of the pull
	LevelErrors   = "errors"    // CQ errors
	LevelEvents   = "events"    // completion events and wake-up latency
	LevelSyscalls = "syscalls"  // uverbs ioctls and writes
	LevelEveryCQE = "every-cqe" // each completion of soft-RoCE
)

var levelNames = [...]string{LevelPull, LevelRing, LevelErrors, LevelEvents, LevelSyscalls, LevelEveryCQE}

// LevelNames are the names of all levels, in the order in which they are told.
func LevelNames() []string { return slices.Clone(levelNames[:]) }

// A Level is one group of probes.
type Level struct {
	Name string
	Live bool
	// Why says how a live level works, such as "kprobe", and of any other why
	// it does not: a sentence without its full stop.
	Why string
}

// A CQID names a CQ as RDMA netlink does, until long after its end: the kernel
// hands out both numbers in a circle.
type CQID struct {
	DeviceIndex uint32 // RDMA_NLDEV_ATTR_DEV_INDEX
	ResID       uint32 // RDMA_NLDEV_ATTR_RES_CQN
}

// A CQ is what was seen of one completion queue. What is nil is not known.
type CQ struct {
	Entries uint32 // how many completions its owner may have in it
	Vector  uint32 // completion vector
	Driver  uint32 // enum rdma_driver_id of rdma/ib_user_ioctl_verbs.h; 14 is soft-RoCE

	User *UserCQ // nil: the kernel's own CQ
	Ring *Ring   // nil: not soft-RoCE, or the memory there does not look like a ring

	Errors *uint64 // CQ errors reported since Open, such as one for each completion that found the ring full
	Events *Events // nil: the level is not live
	Posts  *Posts  // nil: the level is not live, or not soft-RoCE
}

// A UserCQ is what uverbs keeps about a CQ for the process that owns it.
type UserCQ struct {
	// Handle is the number that the process gave, and gets back with events.
	Handle uint64
	// EventsRead and ErrorsRead count the completion and asynchronous events
	// that the process has read since it made the CQ, modulo 1<<32.
	EventsRead, ErrorsRead uint32
	// Pending says that a completion event waits to be read.
	Pending bool
}

// Arming says what a CQ waits for before it makes an event.
type Arming uint8

const (
	NotArmed       Arming = iota // the event was made, or never asked for
	ArmedSolicited               // for a completion with the solicited bit
	ArmedNext                    // for any completion
)

func (a Arming) String() string {
	switch a {
	case NotArmed:
		return "no"
	case ArmedSolicited:
		return "solicited"
	case ArmedNext:
		return "next"
	}
	return "unknown"
}

// A Ring is the state of a soft-RoCE ring at the time of the dump. The consumer
// index is memory of the process and as true as the process is honest.
type Ring struct {
	Occupied uint32 // completions that nobody has polled, from 0 to Usable
	Usable   uint32 // how many fit
	Produced uint32 // the producer index; counts modulo Usable+1
	Armed    Arming
}

// Events is what the probes on completion events counted since Open.
type Events struct {
	Count uint64 // events made
	Wake  Latency
}

// A Latency is a distribution of times.
type Latency struct {
	N          uint64
	Total, Max time.Duration
	// Log2 counts times by the magnitude of their nanoseconds: element i those
	// from 1<<i up to, and not including, 1<<(i+1), the last also all longer ones.
	Log2 [32]uint64
}

// statuses is how many completion statuses are told apart: the known ones are 0 to 22
// (enum ib_wc_status).
const statuses = 32

// Posts is what the probe on each completion counted since Open.
type Posts struct {
	CQEs      uint64           // completions written, and those that found no room
	Dropped   uint64           // of these, the ones that found no room
	HighWater uint32           // the most that the ring held, including the one written
	ByStatus  [statuses]uint64 // CQEs by status; the last element also has all others
}

// A Via is the way a call came into the kernel.
type Via uint8

const (
	Ioctl       Via = iota // an object's method
	InvokeWrite            // the ioctl that carries a command of the older interface
	Write                  // the older interface itself
)

func (v Via) String() string {
	switch v {
	case Ioctl:
		return "ioctl"
	case InvokeWrite:
		return "invoke-write"
	case Write:
		return "write"
	}
	return "unknown"
}

// A Syscall counts the calls of one process to one method since Open.
type Syscall struct {
	// PID is the process in the kernel's first pid namespace. Seen from within
	// another one it is not the number that /proc has there.
	PID  uint32
	Comm string // the name of the thread that called first

	Via            Via
	Object, Method uint16 // of an ioctl, rdma/ib_user_ioctl_cmds.h
	Command        uint32 // else: enum ib_uverbs_write_cmds of rdma/ib_user_verbs.h
	Name           string // of method or command; numbers where it has none

	Count, Failed uint64
	Total, Max    time.Duration
}
