//go:build linux

package trace

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// cqOffsets are where the programs find what they show of each CQ. None is
// known when this is compiled: ib_device.index and file.private_data move from
// one kernel to the next.
type cqOffsets struct {
	restrack, id      int32 // ib_cq.res, and rdma_restrack_entry.id in it
	device, index     int32 // ib_cq.device, ib_device.index
	driver            int32 // ib_device.ops.driver_id
	entries, vector   int32 // ib_cq.cqe, ib_cq.comp_vector
	uobject           int32 // ib_cq.uobject, an ib_ucq_object
	handle            int32 // of that: user_handle
	eventsRead        int32 // comp_events_reported
	errorsRead        int32 // events_reported
	pending           int32 // comp_list, the list of events that wait to be read
	errorOf           int32 // ib_event.element, the CQ of a CQ error
	fileData, evQueue int32 // file.private_data, ib_uverbs_completion_event_file.ev_queue
}

// ringOffsets are where the programs find a soft-RoCE ring.
type ringOffsets struct {
	ibcq, queue, notify int32 // in rxe_cq
	buffer, mask        int32 // in rxe_queue: buf, index_mask
	producer            int32 // in rxe_queue: index, the driver's own; -1 where there is none
	guessed             bool
}

// The shared part of a soft-RoCE ring, struct rxe_queue_buf, is a contract with
// programs: see rxe/ring.go.
const (
	bufLog2     = 0
	bufMask     = 4
	bufProducer = 128
	bufConsumer = 256
)

// An offsetQuery asks for one offset.
type offsetQuery struct {
	into  *int32
	path  string
	bytes int
}

// resolve answers queries until one fails.
func (r *resolver) resolve(module string, all []offsetQuery) error {
	for _, q := range all {
		o, err := r.offset(module, q.path, q.bytes)
		if err != nil {
			return err
		}
		*q.into = o
	}
	return nil
}

const pointer = 8 // bytes; the programs are for 64-bit kernels

// cq finds the offsets for CQs of any driver.
func (r *resolver) cq() (cqOffsets, error) {
	var o cqOffsets
	return o, r.resolve("ib_uverbs", []offsetQuery{
		{&o.restrack, "ib_cq.res", 0},
		{&o.id, "rdma_restrack_entry.id", 4},
		{&o.device, "ib_cq.device", pointer},
		{&o.index, "ib_device.index", 4},
		{&o.driver, "ib_device.ops.driver_id", 4},
		{&o.entries, "ib_cq.cqe", 4},
		{&o.vector, "ib_cq.comp_vector", 4},
		{&o.uobject, "ib_cq.uobject", pointer},
		{&o.handle, "ib_ucq_object.uevent.uobject.user_handle", 8},
		{&o.eventsRead, "ib_ucq_object.comp_events_reported", 4},
		{&o.errorsRead, "ib_ucq_object.uevent.events_reported", 4},
		{&o.pending, "ib_ucq_object.comp_list", 2 * pointer},
		{&o.errorOf, "ib_event.element", 0},
		{&o.fileData, "file.private_data", pointer},
		{&o.evQueue, "ib_uverbs_completion_event_file.ev_queue", 0},
	})
}

// poolElement is the size of struct rxe_pool_elem, which lies between the two
// halves of an rxe_cq in 6.1 and 6.12.
const poolElement = 80

// ring finds the offsets for soft-RoCE. A module that was built without type
// information is read by a table, and each ring must then look like one.
func (r *resolver) ring() (ringOffsets, error) {
	var o ringOffsets
	err := r.resolve("rdma_rxe", []offsetQuery{
		{&o.ibcq, "rxe_cq.ibcq", 0},
		{&o.queue, "rxe_cq.queue", pointer},
		{&o.notify, "rxe_cq.notify", 1},
		{&o.buffer, "rxe_queue.buf", pointer},
		{&o.mask, "rxe_queue.index_mask", 4},
	})
	switch {
	case errors.Is(err, btf.ErrNotFound):
		size, err := r.size("rdma_rxe", "ib_cq")
		if err != nil {
			return o, err
		}
		queue := int32(size) + poolElement
		return ringOffsets{queue: queue, notify: queue + 12, buffer: 8, mask: 44, producer: -1, guessed: true}, nil
	case err != nil:
		return o, err
	}
	if o.ibcq != 0 {
		return o, fmt.Errorf("rxe_cq.ibcq is at %d in this kernel, not at its start", o.ibcq)
	}
	// Before 5.14 the driver worked with the index that it shares.
	if o.producer, err = r.offset("rdma_rxe", "rxe_queue.index", 4); err != nil {
		o.producer = -1
	}
	return o, nil
}
