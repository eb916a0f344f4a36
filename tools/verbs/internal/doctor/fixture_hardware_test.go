package doctor

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// owned are the objects of a device that a test makes up: how many of each kind the threads
// have.
type owned map[uint32]int

func (f fakeNetlink) PDs(index uint32) (all []nldev.PD, err error) {
	for tid, n := range f.m.owned {
		for range n {
			all = append(all, nldev.PD{Owner: nldev.Owner{TID: tid}})
		}
	}
	return all, nil
}

func (f fakeNetlink) CQs(index uint32) ([]nldev.CQ, error)   { return nil, nil }
func (f fakeNetlink) QPs(index uint32) ([]nldev.QP, error)   { return nil, nil }
func (f fakeNetlink) MRs(index uint32) ([]nldev.MR, error)   { return nil, nil }
func (f fakeNetlink) SRQs(index uint32) ([]nldev.SRQ, error) { return nil, nil }

// processors puts what every machine has of processors and memory: 0 to 15, two nodes.
func (m *machine) processors() {
	m.put("sys/devices/system/cpu/online", "0-15\n")
	status := string(m.files["proc/self/status"].Data)
	m.put("proc/self/status", status+"Mems_allowed_list:\t0-1\n")
}

// describes makes the kernel describe its types: those that are given, as if they were not in
// a module.
func (m *machine) describes(types ...btf.Type) {
	m.t.Helper()
	m.put(typesDir+"/vmlinux", string(described(m.t, types...)), typesDir+"/ib_uverbs", string(described(m.t)))
}

// described is the description of types, as the kernel has it.
func described(t testing.TB, types ...btf.Type) []byte {
	t.Helper()
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(raw)
}
