//go:build linux

package trace

import (
	"github.com/cilium/ebpf/asm"

	"github.com/goverbs/goverbs/abi"
)

// The slots of the programs at calls.
const (
	callThread  = -8
	callValue   = -32  // an inflight
	callHeader  = -64  // of an ioctl, 24 bytes
	callAttrs   = -128 // the first attributes of an ioctl, 16 bytes each
	attrsShown  = 4
	headerBytes = 24
	attrBytes   = 16
)

// ioctlEnters is the program at the entry of ib_uverbs_ioctl(file, cmd, arg). A
// request is struct ib_uverbs_ioctl_hdr of rdma/rdma_user_ioctl_cmds.h.
func ioctlEnters(e *emitter) asm.Instructions {
	e.zero(callValue, callThread)
	e.arg(asm.R7, 2)
	e.readUser(callHeader, headerBytes, asm.R7, 0)
	e.add(asm.Mov.Imm32(asm.R8, -1))
	known, found, next := e.fresh(), e.fresh(), e.fresh()
	e.add(asm.JNE.Imm(asm.R0, 0, known))
	e.add(asm.LoadMem(asm.R1, asm.RFP, callHeader+16, asm.Word), asm.StoreMem(asm.RFP, callValue+at[inflight]("Driver"), asm.R1, asm.Word))
	// length, object, method and number of attributes, 16 bits each
	e.add(asm.LoadMem(asm.R9, asm.RFP, callHeader, asm.DWord), asm.Mov.Reg(asm.R1, asm.R9),
		asm.RSh.Imm(asm.R1, 16), asm.LSh.Imm(asm.R1, 32), asm.RSh.Imm(asm.R1, 32), asm.RSh.Imm(asm.R9, 48))
	e.add(asm.JEq.Imm(asm.R1, 0, next), asm.Mov.Reg(asm.R8, asm.R1), asm.Ja.Label(known))

	// Object 0, method 0 is UVERBS_METHOD_INVOKE_WRITE: the command stands in
	// an attribute, which everybody puts among the first.
	e.label(next)
	e.zero(callAttrs, callHeader)
	e.readUser(callAttrs, attrsShown*attrBytes, asm.R7, headerBytes)
	for i := range int16(attrsShown) {
		next := e.fresh()
		a := callAttrs + i*attrBytes
		e.add(asm.JLE.Imm(asm.R9, int32(i), found), asm.LoadMem(asm.R1, asm.RFP, a, asm.Half), asm.JNE.Imm(asm.R1, abi.UVERBS_ATTR_WRITE_CMD, next),
			asm.LoadMem(asm.R8, asm.RFP, a+8, asm.Word), asm.Ja.Label(found))
		e.label(next)
	}
	e.label(found)
	e.constant(callValue+at[inflight]("Via"), uint32(InvokeWrite))
	e.label(known)
	return e.enters()
}

// writeEnters is the program at the entry of ib_uverbs_write(file, buffer,
// count, position). A request begins with the command.
func writeEnters(e *emitter) asm.Instructions {
	e.zero(callValue, callThread)
	e.constant(callValue+at[inflight]("Via"), uint32(Write))
	e.arg(asm.R7, 1)
	e.zero(callHeader, callHeader+8)
	e.readUser(callHeader, 4, asm.R7, 0)
	e.add(asm.LoadMem(asm.R8, asm.RFP, callHeader, asm.Word))
	known := e.fresh()
	e.add(asm.JEq.Imm(asm.R0, 0, known), asm.Mov.Imm32(asm.R8, -1))
	e.label(known)
	return e.enters()
}

// enters remembers a call until it returns; r8 is its code.
func (e *emitter) enters() asm.Instructions {
	e.add(asm.StoreMem(asm.RFP, callValue+at[inflight]("Code"), asm.R8, asm.Word))
	e.thread(callThread)
	e.time(callValue + at[inflight]("Time"))
	e.store(running, callThread, callValue, anyway)
	return e.finish()
}

// callReturns is the program at the end of either, which has so many arguments.
func callReturns(e *emitter, args int) asm.Instructions {
	const key = -32
	field := func(name string) int16 { return key + at[callKey](name) }
	e.result(asm.R9, args)
	e.thread(callThread)
	e.add(asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.RFP, field("Process"), asm.R0, asm.Word))
	e.lookup(running, callThread)
	e.add(asm.JEq.Imm(asm.R0, 0, end), asm.LoadMem(asm.R7, asm.R0, at[inflight]("Time"), asm.DWord))
	for _, name := range []string{"Via", "Code", "Driver"} {
		e.add(asm.LoadMem(asm.R1, asm.R0, at[inflight](name), asm.Word), asm.StoreMem(asm.RFP, field(name), asm.R1, asm.Word))
	}
	e.since(asm.R7)
	e.remove(running, callThread)
	e.entry(calls, key, lostCalls)
	e.add(asm.Mov.Reg(asm.R8, asm.R0))
	e.increment(asm.R8, at[callCounts]("Count"))
	e.add(asm.AddAtomic.Mem(asm.R8, asm.R7, asm.DWord, at[callCounts]("Total")))
	e.maximum(asm.R8, at[callCounts]("Max"), asm.R7)
	fine, named := e.fresh(), e.fresh()
	e.add(asm.JSGE.Imm(asm.R9, 0, fine))
	e.increment(asm.R8, at[callCounts]("Failed"))
	e.label(fine)
	comm := at[callCounts]("Comm")
	e.add(asm.LoadMem(asm.R1, asm.R8, comm, asm.Byte), asm.JNE.Imm(asm.R1, 0, named),
		asm.Mov.Reg(asm.R1, asm.R8), asm.Add.Imm(asm.R1, int32(comm)), asm.Mov.Imm(asm.R2, 16), asm.FnGetCurrentComm.Call())
	e.label(named)
	return e.finish()
}
