//go:build linux

package trace

import "github.com/cilium/ebpf/asm"

// cqid stores the CQID of an ib_cq in a slot, with the one below for itself,
// and leaves the device in r8. A CQ whose numbers cannot be read ends the
// program.
func (e *emitter) cqid(key int16, cq asm.Register, o *cqOffsets) {
	e.read(key+at[CQID]("ResID"), 4, cq, o.restrack+o.id)
	e.add(asm.JNE.Imm(asm.R0, 0, end))
	e.follow(asm.R8, cq, o.device, key-8)
	e.read(key+at[CQID]("DeviceIndex"), 4, asm.R8, o.index)
	e.add(asm.JNE.Imm(asm.R0, 0, end))
}

// pull is the program at fill_res_cq_entry(msg, has_cap_net_admin, res, port).
// It heeds the dumps of one process and stores what it sees of each CQ. Without
// offsets for rings there is nothing about them.
func pull(e *emitter, process uint32, o *cqOffsets, ring *ringOffsets) asm.Instructions {
	const key = -8 // and -16 is for cqid
	size := int16(sizeOf[snapshot]())
	value := -16 - size
	field := func(name string) int16 { return value + at[snapshot](name) }

	e.add(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32), asm.JNE.Imm(asm.R0, int32(process), end))
	e.count(key-8, statePulls)
	e.zero(value, value+size)
	e.constant(key-8, stateRound)
	e.lookup(state, key-8)
	e.add(asm.JEq.Imm(asm.R0, 0, end), asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord), asm.StoreMem(asm.RFP, field("Round"), asm.R0, asm.DWord))

	e.arg(asm.R7, 2)
	e.add(asm.Add.Imm(asm.R7, -o.restrack))
	e.cqid(key, asm.R7, o)
	e.read(field("Driver"), 4, asm.R8, o.driver)
	e.read(field("Entries"), 4, asm.R7, o.entries)
	e.read(field("Vector"), 4, asm.R7, o.vector)
	e.follow(asm.R8, asm.R7, o.uobject, field("Uobject"))
	kernels := e.fresh()
	e.add(asm.JEq.Imm(asm.R8, 0, kernels))
	e.read(field("Handle"), 8, asm.R8, o.handle)
	e.read(field("EventsRead"), 4, asm.R8, o.eventsRead)
	e.read(field("ErrorsRead"), 4, asm.R8, o.errorsRead)
	e.read(field("Pending"), 8, asm.R8, o.pending)
	e.label(kernels)

	put := e.fresh()
	if ring != nil {
		e.add(asm.LoadMem(asm.R1, asm.RFP, field("Driver"), asm.Word), asm.JNE.Imm(asm.R1, int32(driverRXE), put))
		read := func(name string, bytes int32, base asm.Register, offset int32) {
			e.read(field(name), bytes, base, offset)
			e.add(asm.JNE.Imm(asm.R0, 0, put))
		}
		read("Notify", 1, asm.R7, ring.notify)
		e.follow(asm.R8, asm.R7, ring.queue, key-8)
		read("Mask", 4, asm.R8, ring.mask)
		if ring.producer >= 0 {
			read("Producer", 4, asm.R8, ring.producer)
		}
		e.follow(asm.R8, asm.R8, ring.buffer, key-8)
		if ring.producer < 0 {
			read("Producer", 4, asm.R8, bufProducer)
		}
		read("Consumer", 4, asm.R8, bufConsumer)
		read("BufMask", 4, asm.R8, bufMask)
		read("BufLog2", 4, asm.R8, bufLog2)
		e.constant(field("Ring"), 1)
	}
	e.label(put)
	e.store(snapshots, key, value, anyway)
	e.add(asm.JEq.Imm(asm.R0, 0, end))
	e.count(key-8, lostPulls)
	return e.finish()
}

// cqError is the program at ib_uverbs_cq_event_handler(event, context).
func cqError(e *emitter, o *cqOffsets) asm.Instructions {
	const key = -8
	e.arg(asm.R7, 0)
	e.follow(asm.R7, asm.R7, o.errorOf, key-8)
	e.cqid(key, asm.R7, o)
	e.entry(failures, key, lostCounters)
	e.increment(asm.R0, 0)
	return e.finish()
}

// The slots of an event on its way to a reader: its key and stamp.
const (
	eventKey   = -48
	eventStamp = -32
)

// eventMade is the program at ib_uverbs_comp_handler(cq, queue). What reads the
// event knows the queue and the user handle, so they are the key of the stamp.
func eventMade(e *emitter, o *cqOffsets) asm.Instructions {
	const key = -8
	e.arg(asm.R7, 0)
	e.arg(asm.R9, 1)
	e.add(asm.JEq.Imm(asm.R9, 0, end)) // a CQ without a channel makes no events
	e.cqid(key, asm.R7, o)
	e.entry(events, key, lostCounters)
	e.increment(asm.R0, at[eventCounts]("Count"))

	e.add(asm.StoreMem(asm.RFP, eventKey+at[stampKey]("Queue"), asm.R9, asm.DWord))
	e.follow(asm.R8, asm.R7, o.uobject, key-8)
	e.read(eventKey+at[stampKey]("Handle"), 8, asm.R8, o.handle)
	e.add(asm.JNE.Imm(asm.R0, 0, end))
	e.add(asm.LoadMem(asm.R1, asm.RFP, key, asm.DWord), asm.StoreMem(asm.RFP, eventStamp+at[stamp]("CQ"), asm.R1, asm.DWord))
	e.time(eventStamp + at[stamp]("Time"))
	// A second event of the same CQ takes the place of the first: the reader
	// that comes next reads one and wakes for both.
	e.store(stamps, eventKey, eventStamp, anyway)
	return e.finish()
}

// readEnters is the program at the entry of ib_uverbs_comp_event_read(file,
// buffer, count, position), where its end does not know the arguments.
func readEnters(e *emitter) asm.Instructions {
	const key, value = -8, -24
	e.arg(asm.R7, 0)
	e.arg(asm.R8, 1)
	e.add(asm.StoreMem(asm.RFP, value+at[reader]("File"), asm.R7, asm.DWord), asm.StoreMem(asm.RFP, value+at[reader]("Buffer"), asm.R8, asm.DWord))
	e.thread(key)
	e.store(readers, key, value, anyway)
	return e.finish()
}

// readReturns is the program at its end.
func readReturns(e *emitter, o *cqOffsets) asm.Instructions {
	const key = -8
	e.result(asm.R9, 4)
	if e.hook == fentry {
		e.arg(asm.R7, 0)
		e.arg(asm.R8, 1)
	} else {
		e.thread(key)
		e.lookup(readers, key)
		e.add(asm.JEq.Imm(asm.R0, 0, end),
			asm.LoadMem(asm.R7, asm.R0, at[reader]("File"), asm.DWord), asm.LoadMem(asm.R8, asm.R0, at[reader]("Buffer"), asm.DWord))
		e.remove(readers, key)
	}
	e.add(asm.JSLT.Imm(asm.R9, 8, end)) // an error, or less than the handle
	e.follow(asm.R7, asm.R7, o.fileData, key-8)
	e.add(asm.Add.Imm(asm.R7, o.evQueue), asm.StoreMem(asm.RFP, eventKey+at[stampKey]("Queue"), asm.R7, asm.DWord))
	e.readUser(eventKey+at[stampKey]("Handle"), 8, asm.R8, 0)
	e.add(asm.JNE.Imm(asm.R0, 0, end))
	e.lookup(stamps, eventKey)
	e.add(asm.JEq.Imm(asm.R0, 0, end),
		asm.LoadMem(asm.R7, asm.R0, at[stamp]("Time"), asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, at[stamp]("CQ"), asm.DWord), asm.StoreMem(asm.RFP, key, asm.R1, asm.DWord))
	e.since(asm.R7)
	e.remove(stamps, eventKey)
	e.lookup(events, key)
	e.add(asm.JEq.Imm(asm.R0, 0, end), asm.Mov.Reg(asm.R8, asm.R0))
	e.increment(asm.R8, at[eventCounts]("N"))
	e.add(asm.AddAtomic.Mem(asm.R8, asm.R7, asm.DWord, at[eventCounts]("Total")))
	e.maximum(asm.R8, at[eventCounts]("Max"), asm.R7)
	e.magnitude(asm.R2, asm.R7)
	e.add(asm.LSh.Imm(asm.R2, 3), asm.Add.Reg(asm.R8, asm.R2))
	e.increment(asm.R8, at[eventCounts]("Log2"))
	return e.finish()
}

// since turns a time in a register into how long ago it was.
func (e *emitter) since(r asm.Register) {
	e.add(asm.FnKtimeGetNs.Call(), asm.Sub.Reg(asm.R0, r), asm.Mov.Reg(r, asm.R0))
}

// maximum raises a number in a map to that of a register. Two at once may lose
// the greater one, which the next makes good.
func (e *emitter) maximum(base asm.Register, offset int16, v asm.Register) {
	done := e.fresh()
	e.add(asm.LoadMem(asm.R1, base, offset, asm.DWord), asm.JLE.Reg(v, asm.R1, done), asm.StoreMem(base, offset, v, asm.DWord))
	e.label(done)
}

// magnitude leaves in dst the number of v's highest bit, from 0 to 31, where 31
// stands for all above too. It destroys v and r1.
func (e *emitter) magnitude(dst, v asm.Register) {
	small := e.fresh()
	e.add(asm.Mov.Reg(asm.R1, v), asm.RSh.Imm(asm.R1, 32), asm.JEq.Imm(asm.R1, 0, small), asm.Mov.Imm32(v, -1))
	e.label(small)
	e.add(asm.Mov.Imm(dst, 0))
	for _, bits := range []int32{16, 8, 4, 2, 1} {
		next := e.fresh()
		e.add(asm.Mov.Reg(asm.R1, v), asm.RSh.Imm(asm.R1, bits), asm.JEq.Imm(asm.R1, 0, next), asm.Add.Imm(dst, bits), asm.Mov.Reg(v, asm.R1))
		e.label(next)
	}
	e.add(asm.And.Imm(dst, 31)) // for the verifier, which does not add up the branches
}

// rxePost is the program at rxe_cq_post(cq, cqe, solicited). It runs before the
// ring's lock is taken, so beside another completion of the same CQ the
// high-water mark may be one too low.
func rxePost(e *emitter, o *cqOffsets, ring *ringOffsets) asm.Instructions {
	const key, status, mask, producer, consumer, bufferMask = -8, -24, -32, -40, -48, -56
	e.arg(asm.R7, 0)
	e.arg(asm.R9, 1)
	e.cqid(key, asm.R7, o)
	e.entry(posts, key, lostCounters)
	e.add(asm.Mov.Reg(asm.R8, asm.R0))
	e.increment(asm.R8, at[postCounts]("CQEs"))

	// In both forms of a completion, ib_wc and ib_uverbs_wc, the status comes
	// after the 64-bit wr_id.
	e.read(status, 4, asm.R9, 8)
	known, other := e.fresh(), e.fresh()
	e.add(asm.LoadMem(asm.R2, asm.RFP, status, asm.Word), asm.JNE.Imm(asm.R0, 0, other), asm.JLT.Imm(asm.R2, statuses, known))
	e.label(other)
	e.add(asm.Mov.Imm(asm.R2, statuses-1))
	e.label(known)
	e.add(asm.LSh.Imm(asm.R2, 3), asm.Add.Reg(asm.R2, asm.R8))
	e.increment(asm.R2, at[postCounts]("ByStatus"))

	read := func(slot int16, base asm.Register, offset int32) {
		e.read(slot, 4, base, offset)
		e.add(asm.JNE.Imm(asm.R0, 0, end))
	}
	e.follow(asm.R9, asm.R7, ring.queue, key-8)
	read(mask, asm.R9, ring.mask)
	e.follow(asm.R7, asm.R9, ring.buffer, key-8)
	if ring.guessed {
		read(bufferMask, asm.R7, bufMask)
		e.add(asm.LoadMem(asm.R1, asm.RFP, bufferMask, asm.Word), asm.LoadMem(asm.R2, asm.RFP, mask, asm.Word), asm.JNE.Reg(asm.R1, asm.R2, end))
	}
	if ring.producer >= 0 {
		read(producer, asm.R9, ring.producer)
	} else {
		read(producer, asm.R7, bufProducer)
	}
	read(consumer, asm.R7, bufConsumer)
	fits, mark := e.fresh(), e.fresh()
	e.add(asm.LoadMem(asm.R7, asm.RFP, producer, asm.Word), asm.LoadMem(asm.R1, asm.RFP, consumer, asm.Word), asm.LoadMem(asm.R2, asm.RFP, mask, asm.Word),
		asm.Sub.Reg(asm.R7, asm.R1), asm.And.Reg(asm.R7, asm.R2), asm.JNE.Reg(asm.R7, asm.R2, fits))
	e.increment(asm.R8, at[postCounts]("Dropped"))
	e.add(asm.Ja.Label(mark))
	e.label(fits)
	e.add(asm.Add.Imm(asm.R7, 1))
	e.label(mark)
	e.maximum(asm.R8, at[postCounts]("HighWater"), asm.R7)
	return e.finish()
}
