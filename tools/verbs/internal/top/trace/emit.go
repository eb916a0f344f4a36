//go:build linux

package trace

import (
	"fmt"
	"runtime"

	"github.com/cilium/ebpf/asm"
)

// A hook is how a program comes to run, which decides where it finds the
// arguments of the function that it is attached to.
type hook uint8

const (
	kprobe hook = iota // the saved registers, struct pt_regs
	fentry             // the arguments themselves, as 64-bit words
)

func (h hook) String() string {
	if h == fentry {
		return "fentry"
	}
	return "kprobe"
}

// registers says where struct pt_regs keeps a function's arguments and result.
type registers struct {
	args   []int16
	result int16
}

// registersOf are the architectures that kprobes are known for. On both, a
// pointer has 64 bits, which the offsets of the programs rely on.
var registersOf = map[string]registers{
	// di, si, dx, cx, r8, r9; ax.
	"amd64": {args: []int16{112, 104, 96, 88, 72, 64}, result: 80},
	// x0 to x7; x0.
	"arm64": {args: []int16{0, 8, 16, 24, 32, 40, 48, 56}, result: 0},
}

// checkArch refuses architectures for which the programs are not made.
func checkArch() error {
	if _, ok := registersOf[runtime.GOARCH]; !ok {
		return fmt.Errorf("probes are made for amd64 and arm64 kernels, not for %s", runtime.GOARCH)
	}
	return nil
}

// An emitter writes one program. Registers 6 to 9 survive calls; 6 holds the
// program's context throughout. Slots are negative offsets from the end of the
// stack.
type emitter struct {
	hook hook
	regs registers
	ins  asm.Instructions
	name string // a label for the next instruction
	n    int    // labels made
}

// end is the label of every program's end.
const end = "end"

func newEmitter(h hook, r registers) *emitter {
	e := &emitter{hook: h, regs: r}
	e.add(asm.Mov.Reg(asm.R6, asm.R1))
	return e
}

func (e *emitter) add(ins ...asm.Instruction) {
	for _, i := range ins {
		if e.name != "" {
			i, e.name = i.WithSymbol(e.name), ""
		}
		e.ins = append(e.ins, i)
	}
}

// label names the next instruction.
func (e *emitter) label(name string) {
	if e.name != "" { // An instruction has one name, so this one gets an instruction of its own.
		e.add(asm.Mov.Reg(asm.R6, asm.R6))
	}
	e.name = name
}

// fresh makes up the name of a label.
func (e *emitter) fresh() string {
	e.n++
	return fmt.Sprintf("l%d", e.n)
}

// finish ends the program.
func (e *emitter) finish() asm.Instructions {
	if e.name != "" {
		e.add(asm.Mov.Imm(asm.R0, 0))
	}
	e.label(end)
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return e.ins
}

// arg loads an argument of the function.
func (e *emitter) arg(dst asm.Register, i int) {
	at := int16(8 * i)
	if e.hook == kprobe {
		at = e.regs.args[i]
	}
	e.add(asm.LoadMem(dst, asm.R6, at, asm.DWord))
}

// result loads what a function of so many arguments returns, in a program that
// runs at its end.
func (e *emitter) result(dst asm.Register, args int) {
	at := int16(8 * args)
	if e.hook == kprobe {
		at = e.regs.result
	}
	e.add(asm.LoadMem(dst, asm.R6, at, asm.DWord))
}

// slot loads a slot's address.
func (e *emitter) slot(dst asm.Register, at int16) {
	e.add(asm.Mov.Reg(dst, asm.RFP), asm.Add.Imm(dst, int32(at)))
}

// zero clears the slots from one up to another.
func (e *emitter) zero(from, to int16) {
	// There is no store of an immediate double word in the assembler.
	e.add(asm.Mov.Imm(asm.R0, 0))
	for at := from; at < to; at += 8 {
		e.add(asm.StoreMem(asm.RFP, at, asm.R0, asm.DWord))
	}
}

// read copies kernel memory into a slot. Where nothing can be read, the slot
// holds zeros and r0 is not 0.
func (e *emitter) read(slot int16, bytes int32, base asm.Register, offset int32) {
	e.slot(asm.R1, slot)
	e.add(asm.Mov.Imm(asm.R2, bytes), asm.Mov.Reg(asm.R3, base))
	if offset != 0 {
		e.add(asm.Add.Imm(asm.R3, offset))
	}
	e.add(asm.FnProbeReadKernel.Call())
}

// readUser does the same with memory of the running process.
func (e *emitter) readUser(slot int16, bytes int32, base asm.Register, offset int32) {
	e.slot(asm.R1, slot)
	e.add(asm.Mov.Imm(asm.R2, bytes), asm.Mov.Reg(asm.R3, base))
	if offset != 0 {
		e.add(asm.Add.Imm(asm.R3, offset))
	}
	e.add(asm.FnProbeReadUser.Call())
}

// follow reads a pointer in kernel memory and leaves it in a register.
func (e *emitter) follow(dst, base asm.Register, offset int32, slot int16) {
	e.read(slot, 8, base, offset)
	e.add(asm.LoadMem(dst, asm.RFP, slot, asm.DWord))
}

// lookup leaves in r0 the address of the value for the key in a slot, or 0.
func (e *emitter) lookup(m table, key int16) {
	e.add(m.load(asm.R1))
	e.slot(asm.R2, key)
	e.add(asm.FnMapLookupElem.Call())
}

// remove removes the key in a slot.
func (e *emitter) remove(m table, key int16) {
	e.add(m.load(asm.R1))
	e.slot(asm.R2, key)
	e.add(asm.FnMapDeleteElem.Call())
}

// Flags of bpf_map_update_elem, linux/bpf.h.
const (
	anyway  = 0 // BPF_ANY
	noExist = 1 // BPF_NOEXIST
)

// store puts the value in a slot under the key in another.
func (e *emitter) store(m table, key, value int16, flags int32) {
	e.add(m.load(asm.R1))
	e.slot(asm.R2, key)
	e.slot(asm.R3, value)
	e.add(asm.Mov.Imm(asm.R4, flags), asm.FnMapUpdateElem.Call())
}

// entry leaves in r0 the address of the value for the key in a slot, which it
// makes, all zeros, if there is none. Without room it counts a loss and ends.
func (e *emitter) entry(m table, key int16, loss uint32) {
	have := e.fresh()
	e.lookup(m, key)
	e.add(asm.JNE.Imm(asm.R0, 0, have))
	// The stack is too small for a value of zeros, so there is a map with one.
	e.constant(key-8, 0)
	e.lookup(zeros, key-8)
	e.add(asm.JEq.Imm(asm.R0, 0, end), asm.Mov.Reg(asm.R3, asm.R0), m.load(asm.R1))
	e.slot(asm.R2, key)
	e.add(asm.Mov.Imm(asm.R4, noExist), asm.FnMapUpdateElem.Call())
	e.lookup(m, key)
	e.add(asm.JNE.Imm(asm.R0, 0, have))
	e.count(key-8, loss)
	e.add(asm.Ja.Label(end))
	e.label(have)
}

// constant stores a 32-bit number in a slot.
func (e *emitter) constant(slot int16, v uint32) {
	e.add(asm.Mov.Imm32(asm.R0, int32(v)), asm.StoreMem(asm.RFP, slot, asm.R0, asm.Word))
}

// count adds one to a counter of the tool's own; the slot is for its number.
func (e *emitter) count(slot int16, counter uint32) {
	none := e.fresh()
	e.constant(slot, counter)
	e.lookup(state, slot)
	e.add(asm.JEq.Imm(asm.R0, 0, none))
	e.increment(asm.R0, 0)
	e.label(none)
}

// increment adds one, atomically, at an offset from an address in a map.
func (e *emitter) increment(at asm.Register, offset int16) {
	e.add(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(at, asm.R1, asm.DWord, offset))
}

// time stores the time in nanoseconds of CLOCK_MONOTONIC in a slot.
func (e *emitter) time(slot int16) {
	e.add(asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.RFP, slot, asm.R0, asm.DWord))
}

// thread stores the number of the running thread and its process in a slot.
func (e *emitter) thread(slot int16) {
	e.add(asm.FnGetCurrentPidTgid.Call(), asm.StoreMem(asm.RFP, slot, asm.R0, asm.DWord))
}
