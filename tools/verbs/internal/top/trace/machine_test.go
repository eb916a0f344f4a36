//go:build linux

package trace

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// A machine executes programs over memory that a test lays out, with the
// helpers that they call. It reports what the kernel's verifier would refuse:
// memory outside of stack and map values, uninitialised registers and stack,
// steps back.
type machine struct {
	t      *testing.T
	memory map[uint64][]byte // by address: kernel and user memory that can be read
	tables map[table]map[string][]byte
	thread uint64 // process in the upper half
	clock  uint64

	stack  [512]byte
	ready  [512]bool // stack bytes that were written
	regs   [11]uint64
	set    [11]bool
	values [][]byte // of maps, by address
	names  map[uint64]table
	ctx    []byte
}

const (
	stackTop  = 0x1000_0000
	ctxBase   = 0x2000_0000
	mapBase   = 0x3000_0000
	valueBase = 0x4000_0000 // values are valueSpan apart
	valueSpan = 0x1_0000
)

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, memory: map[uint64][]byte{}, tables: map[table]map[string][]byte{}, thread: 77<<32 | 78, clock: 1000}
	for _, name := range []table{state, zeros, snapshots, failures, events, stamps, readers, calls, running, posts} {
		m.tables[name] = map[string][]byte{}
	}
	for i := range uint32(states) {
		m.tables[state][string(binary.LittleEndian.AppendUint32(nil, i))] = make([]byte, 8)
	}
	m.tables[zeros][string(make([]byte, 4))] = make([]byte, zeros.spec().ValueSize)
	return m
}

// put lays out a number in readable memory.
func (m *machine) put(at uint64, bytes int, v uint64) {
	b := binary.LittleEndian.AppendUint64(nil, v)[:bytes]
	m.memory[at] = b
}

// at reads memory that was laid out; all of it must have been.
func (m *machine) at(addr uint64, n int) ([]byte, bool) {
	out := make([]byte, n)
	have := 0
	for base, b := range m.memory {
		for i := range b {
			if o := base + uint64(i) - addr; o < uint64(n) {
				out[o] = b[i]
				have++
			}
		}
	}
	return out, have == n
}

// call runs a function's probe: its arguments, and at its end its result.
func (m *machine) call(p probe, h hook, r registers, result uint64, args ...uint64) {
	m.t.Helper()
	m.ctx = make([]byte, 168)
	for i, a := range args {
		at := int16(8 * i)
		if h == kprobe {
			at = r.args[i]
			if p.atEnd {
				continue // registers hold anything by then
			}
		}
		binary.LittleEndian.PutUint64(m.ctx[at:], a)
	}
	if p.atEnd {
		at := int16(8 * len(args))
		if h == kprobe {
			at = r.result
		}
		binary.LittleEndian.PutUint64(m.ctx[at:], result)
	}
	if err := m.run(p.write(newEmitter(h, r))); err != nil {
		m.t.Fatalf("%s: %v", p.name, err)
	}
}

func (m *machine) run(ins asm.Instructions) error {
	labels := map[string]int{}
	for i, in := range ins {
		if s := in.Symbol(); s != "" {
			if _, twice := labels[s]; twice {
				return fmt.Errorf("label %s twice", s)
			}
			labels[s] = i
		}
	}
	m.set, m.ready = [11]bool{}, [512]bool{}
	m.setReg(asm.R1, ctxBase)
	m.setReg(asm.RFP, stackTop)
	m.names = map[uint64]table{}
	for pc := 0; pc < len(ins); {
		in := ins[pc]
		next, err := m.step(in, pc, labels)
		if err != nil {
			return fmt.Errorf("%d: %v: %w", pc, in, err)
		}
		if next < 0 {
			return nil
		}
		if next <= pc {
			return fmt.Errorf("%d: %v: steps back", pc, in)
		}
		pc = next
	}
	return fmt.Errorf("runs over its end")
}

func (m *machine) setReg(r asm.Register, v uint64) { m.regs[r], m.set[r] = v, true }

func (m *machine) get(r asm.Register) (uint64, error) {
	if !m.set[r] {
		return 0, fmt.Errorf("register %v holds nothing", r)
	}
	return m.regs[r], nil
}

// step executes one instruction and returns the next, -1 at the end.
func (m *machine) step(in asm.Instruction, pc int, labels map[string]int) (int, error) {
	op := in.OpCode
	switch class := op.Class(); {
	case in.IsLoadFromMap():
		a := uint64(mapBase + len(m.names))
		m.names[a] = table(in.Reference())
		m.setReg(in.Dst, a)
	case class == asm.ALU64Class || class == asm.ALUClass:
		return pc + 1, m.alu(in)
	case class.IsJump() && op.JumpOp() == asm.Exit:
		_, err := m.get(asm.R0)
		return -1, err
	case class.IsJump() && op.JumpOp() == asm.Call:
		return pc + 1, m.helper(asm.BuiltinFunc(in.Constant))
	case class.IsJump():
		to, ok := labels[in.Reference()]
		if !ok {
			return 0, fmt.Errorf("no label %q", in.Reference())
		}
		jump, err := m.jumps(in)
		if jump || err != nil {
			return to, err
		}
	case class == asm.LdXClass:
		base, err := m.get(in.Src)
		if err != nil {
			return 0, err
		}
		b, err := m.access(base+uint64(int64(in.Offset)), op.Size().Sizeof(), false)
		if err != nil {
			return 0, err
		}
		m.setReg(in.Dst, binary.LittleEndian.Uint64(append(append([]byte{}, b...), make([]byte, 8)...)))
	case class == asm.StXClass:
		base, err1 := m.get(in.Dst)
		v, err2 := m.get(in.Src)
		if err1 != nil || err2 != nil {
			return 0, fmt.Errorf("%v, %v", err1, err2)
		}
		b, err := m.access(base+uint64(int64(in.Offset)), op.Size().Sizeof(), true)
		if err != nil {
			return 0, err
		}
		if op.Mode() == asm.AtomicMode {
			v += binary.LittleEndian.Uint64(b)
		}
		copy(b, binary.LittleEndian.AppendUint64(nil, v))
	default:
		return 0, fmt.Errorf("not known here")
	}
	return pc + 1, nil
}

func (m *machine) alu(in asm.Instruction) error {
	v := uint64(in.Constant)
	if in.OpCode.Source() == asm.RegSource {
		var err error
		if v, err = m.get(in.Src); err != nil {
			return err
		}
	}
	op := in.OpCode.ALUOp()
	old := uint64(0)
	if op != asm.Mov {
		var err error
		if old, err = m.get(in.Dst); err != nil {
			return err
		}
	}
	switch op {
	case asm.Mov:
		old = v
	case asm.Add:
		old += v
	case asm.Sub:
		old -= v
	case asm.And:
		old &= v
	case asm.LSh:
		old <<= v
	case asm.RSh:
		old >>= v
	default:
		return fmt.Errorf("%v is not known here", op)
	}
	if in.OpCode.Class() == asm.ALUClass {
		old &= 0xffff_ffff
	}
	m.setReg(in.Dst, old)
	return nil
}

func (m *machine) jumps(in asm.Instruction) (bool, error) {
	op := in.OpCode.JumpOp()
	if op == asm.Ja {
		return true, nil
	}
	a, err := m.get(in.Dst)
	if err != nil {
		return false, err
	}
	b := uint64(in.Constant)
	if in.OpCode.Source() == asm.RegSource {
		if b, err = m.get(in.Src); err != nil {
			return false, err
		}
	}
	switch op {
	case asm.JEq:
		return a == b, nil
	case asm.JNE:
		return a != b, nil
	case asm.JLT:
		return a < b, nil
	case asm.JLE:
		return a <= b, nil
	case asm.JSLT:
		return int64(a) < int64(b), nil
	case asm.JSGE:
		return int64(a) >= int64(b), nil
	}
	return false, fmt.Errorf("%v is not known here", op)
}

// access is memory that a program may touch itself.
func (m *machine) access(addr uint64, n int, write bool) ([]byte, error) {
	if addr%uint64(n) != 0 {
		return nil, fmt.Errorf("%d bytes at %#x are not aligned", n, addr)
	}
	switch {
	case addr >= stackTop-512 && addr+uint64(n) <= stackTop:
		o := addr - (stackTop - 512)
		for i := range n {
			if !write && !m.ready[o+uint64(i)] {
				return nil, fmt.Errorf("reads the stack at %d, which holds nothing", int64(addr)-stackTop)
			}
			m.ready[o+uint64(i)] = m.ready[o+uint64(i)] || write
		}
		return m.stack[o : o+uint64(n)], nil
	case addr >= ctxBase && addr+uint64(n) <= ctxBase+uint64(len(m.ctx)) && !write:
		return m.ctx[addr-ctxBase:][:n], nil
	case addr >= valueBase:
		i, o := (addr-valueBase)/valueSpan, (addr-valueBase)%valueSpan
		if i < uint64(len(m.values)) && o+uint64(n) <= uint64(len(m.values[i])) {
			return m.values[i][o:][:n], nil
		}
	}
	return nil, fmt.Errorf("%d bytes at %#x are out of bounds", n, addr)
}

// region is an argument that points to bytes.
func (m *machine) region(r asm.Register, n int, write bool) ([]byte, error) {
	addr, err := m.get(r)
	if err != nil {
		return nil, err
	}
	if n <= 0 {
		return nil, fmt.Errorf("%d bytes", n)
	}
	for i := range n {
		if _, err := m.access(addr+uint64(i), 1, write); err != nil {
			return nil, err
		}
	}
	if addr >= valueBase {
		return m.values[(addr-valueBase)/valueSpan][(addr-valueBase)%valueSpan:][:n], nil
	}
	return m.stack[addr-(stackTop-512):][:n], nil
}

// helper calls a function of the kernel.
func (m *machine) helper(fn asm.BuiltinFunc) error {
	result, err := m.helped(fn)
	if err != nil {
		return fmt.Errorf("%v: %w", fn, err)
	}
	for r := asm.R1; r <= asm.R5; r++ {
		m.set[r] = false
	}
	m.setReg(asm.R0, result)
	return nil
}

const failed = ^uint64(0)

func (m *machine) helped(fn asm.BuiltinFunc) (uint64, error) {
	switch fn {
	case asm.FnGetCurrentPidTgid:
		return m.thread, nil
	case asm.FnKtimeGetNs:
		return m.clock, nil
	case asm.FnGetCurrentComm:
		n, err := m.get(asm.R2)
		if err != nil {
			return 0, err
		}
		b, err := m.region(asm.R1, int(n), true)
		if err == nil {
			copy(b, "a name\x00")
		}
		return 0, err
	case asm.FnProbeReadKernel, asm.FnProbeReadUser:
		n, err1 := m.get(asm.R2)
		from, err2 := m.get(asm.R3)
		if err1 != nil || err2 != nil {
			return 0, fmt.Errorf("%v, %v", err1, err2)
		}
		to, err := m.region(asm.R1, int(n), true)
		if err != nil {
			return 0, err
		}
		b, ok := m.at(from, int(n))
		if !ok {
			clear(to)
			return failed, nil
		}
		copy(to, b)
		return 0, nil
	}
	a, err := m.get(asm.R1)
	if err != nil {
		return 0, err
	}
	name, ok := m.names[a]
	if !ok {
		return 0, fmt.Errorf("%#x is no map", a)
	}
	spec, entries := name.spec(), m.tables[name]
	key, err := m.region(asm.R2, int(spec.KeySize), false)
	if err != nil {
		return 0, err
	}
	switch fn {
	case asm.FnMapLookupElem:
		v, ok := entries[string(key)]
		if !ok {
			return 0, nil
		}
		m.values = append(m.values, v)
		return valueBase + uint64(len(m.values)-1)*valueSpan, nil
	case asm.FnMapDeleteElem:
		delete(entries, string(key))
		return 0, nil
	case asm.FnMapUpdateElem:
		v, err := m.region(asm.R3, int(spec.ValueSize), false)
		if err != nil {
			return 0, err
		}
		flags, err := m.get(asm.R4)
		if err != nil {
			return 0, err
		}
		_, there := entries[string(key)]
		if there && flags == noExist || !there && len(entries) >= int(spec.MaxEntries) && spec.Type == ebpf.Hash {
			return failed, nil
		}
		entries[string(key)] = append([]byte{}, v...)
		return 0, nil
	}
	return 0, fmt.Errorf("not known here")
}
