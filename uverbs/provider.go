package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// provider is what of a device depends on its driver: what the driver wants to be
// told beside what the kernel's core does, and where the queues are. Each object
// that differs has a half of its own, which lives as long as the object.
type provider interface {
	// context adds the driver's part to the request that makes the context.
	context(r *request) error
	// begin reads the answer and makes what all queues need. The attributes of
	// the device are known.
	begin() error
	// end gives that back, before the device's file is closed.
	end() error

	// operations are those that queue pairs of the type can post.
	operations(t QPType) opSet
	// receivesNameQP says that completions of an SRQ's receives name the queue
	// pair and not the SRQ.
	receivesNameQP() bool

	// newPD adds the driver's part to the making of a protection domain.
	newPD(r *request)
	newCQ(q *CQ) cqHalf
	newQP(qp *QP) qpHalf
	newSRQ(s *SRQ) srqHalf
	newAH(ah *AH) ahHalf
}

// cqHalf is the driver's half of a CQ.
type cqHalf interface {
	// create adds the driver's part, and the number of entries for a depth, to
	// the request that makes the queue. What follows are options that few devices
	// have, as their values and not as CQOptions, whose type would be part of every
	// program then: cqFlags, CQOptions.EntrySize, and CQOptions.Node's next.
	create(r *request, depth int, flags uint32, entry, node int) error
	// made makes the ring, once the kernel has made the queue.
	made(op string) (cq.CompletionRing, error)
	// arm is CQ.Arm, and eventTaken says that an event of the queue was taken
	// from its channel.
	arm(solicitedOnly bool) error
	eventTaken()
	// moderated says that the device is about to be told that events may wait.
	moderated()
	// resize exchanges the ring, or returns the one that there is if it is of
	// the right size; room is how many completions the kernel says
	// that the new one holds. With an error the old ring is what it was, or,
	// if it is lost, none is.
	resize(op string, depth int) (ring cq.CompletionRing, room int, lost bool, err error)
	// memory is what the ring is in, or nil where it is the kernel's.
	memory() *kernel.Mapping
	// detach lets go of the memory. destroyed says that the kernel has.
	detach(destroyed bool) error
	// keep lets go of what is the device's of the memory, and keeps what is to be
	// read in it: the device is gone, and the kernel has let go.
	keep()
}

// qpHalf is the driver's half of a queue pair.
type qpHalf interface {
	// create adds the driver's part to the request that makes it.
	create(r *request) error
	// made makes the rings, once the kernel has made the queue pair and said
	// what it grants; its limits are settled then. The tables are of what is
	// posted to them. receives is nil with an SRQ.
	made(op string, granted *abi.UverbsQPCap, sends, receives *cq.Requests) (cq.SendRing, cq.RecvRing, error)
	// wasReset is told when the device has forgotten what was posted. No Flush
	// is under way.
	wasReset()
	// detach and keep are as of cqHalf.
	detach(destroyed bool)
	keep()
}

// srqHalf is the driver's half of an SRQ.
type srqHalf interface {
	// create adds the driver's part, and the number of receives, to the request
	// that makes it. table is of what is posted to it.
	create(r *request, o *SRQOptions, table *cq.SharedRequests) error
	// made makes the ring, once the kernel has made the queue, and settles how
	// many spans a receive has: sge is what the kernel says.
	made(op string, depth int, sge uint32) (cq.RecvRing, error)
	// limit adds the driver's part to a change of the limit.
	limit(r *request)
	// resize exchanges the ring, or says why it cannot.
	resizable() error
	resize(op string, depth int) error
	// detach and keep are as of cqHalf.
	detach(destroyed bool) error
	keep()
}

// ahHalf is the driver's half of an address handle.
type ahHalf interface {
	// create adds the driver's part to the request that makes it.
	create(r *request)
	// made returns the number by which requests name it.
	made(op string, attr *abi.UverbsAHAttr) (uint32, error)
	// detach is told that it is gone.
	detach()
}

// findProvider finds the provider of the device's driver, or nil.
func (d *Device) findProvider() provider {
	switch abi.RdmaDriverID(d.driver) {
	case abi.RDMA_DRIVER_RXE:
		return &rxeProvider{dev: d}
	case abi.RDMA_DRIVER_MLX5:
		return &mlx5Provider{dev: d}
	}
	return nil
}

// provides says whether this library has a data path for the device's driver.
func (d *Device) provides() bool { return d.provider != nil }

// noProvider says which driver it is that has no data path.
func (d *Device) noProvider(op string) error {
	return fmt.Errorf("goverbs: %s: %s: %w: no provider for driver %v (number %d); this version has some for soft-RoCE (rxe) and ConnectX (mlx5)",
		d.info.Name, op, ErrNotSupported, Driver(d.driver), d.driver)
}
