package doctor

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// wanted is a finding by its sort and by words of its text.
type wanted struct {
	check    string
	severity Severity
	object   string
	what     string
	seen     string
	mend     string
}

// findsOnly makes all checks and wants these findings and no others.
func findsOnly(t *testing.T, n *Node, want ...wanted) {
	t.Helper()
	r := examined(t, n)
	for i, w := range want {
		if i >= len(r.Findings) {
			t.Errorf("not found: %+v", w)
			continue
		}
		f := r.Findings[i]
		if f.Check != w.check || f.Severity != w.severity || f.Object != w.object || !strings.Contains(f.What, w.what) ||
			!strings.Contains(f.Seen, w.seen) || !strings.Contains(f.Mend, w.mend) || f.Seen == "" || f.Mend == "" {
			t.Errorf("finding %d is %+v\nwant %+v", i, f, w)
		}
	}
	for _, f := range r.Findings[min(len(want), len(r.Findings)):] {
		t.Errorf("found besides: %+v", f)
	}
	if len(r.NotLooked) > 0 {
		t.Errorf("not looked at: %+v", r.NotLooked)
	}
}

// onNode puts mlx5_0 on node 1 with processors 8 to 15.
func (m *machine) onNode() {
	dir := classDevices + "/mlx5_0/device/"
	m.put(dir+"numa_node", "1\n", dir+"local_cpulist", "8-15\n")
}

// mayUse says which processors and memory the process may use.
func (m *machine) mayUse(cpus, mems string) {
	s := string(m.files["proc/self/status"].Data)
	s = strings.Replace(s, "Cpus_allowed_list:\t0-15\n", "Cpus_allowed_list:\t"+cpus+"\n", 1)
	m.put("proc/self/status", strings.Replace(s, "Mems_allowed_list:\t0-1\n", "Mems_allowed_list:\t"+mems+"\n", 1))
}

// vectors are those of a device on node 1, each with the processor that it interrupts.
func vectors(device string, cpus ...int) func(string) (*poll.Vectors, error) {
	v := &poll.Vectors{Device: device, Node: 1, Near: []int{8, 9, 10, 11, 12, 13, 14, 15}}
	for i, cpu := range cpus {
		v.Vectors = append(v.Vectors, poll.Vector{Index: i, Interrupt: poll.Interrupt{IRQ: 100 + i, Effective: []int{cpu}}})
	}
	return func(string) (*poll.Vectors, error) { return v, nil }
}

func TestPlacement(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(m *machine, n *Node)
		want  []wanted
	}{
		{"no node", func(m *machine, n *Node) { m.put(classDevices+"/mlx5_0/device/numa_node", "-1\n"); m.mayUse("3", "0") }, nil},
		{"on the node", func(m *machine, n *Node) { m.onNode() }, nil},
		{"part of the node", func(m *machine, n *Node) { m.onNode(); m.mayUse("0,15", "1"); n.Pollers = 1 }, nil},
		{"far from the node", func(m *machine, n *Node) { m.onNode(); m.mayUse("0-7", "0-1") },
			[]wanted{{"numa", Warning, "mlx5_0", "no processor of the device's NUMA node", "numa_node is 1, whose processors are 8-15; Cpus_allowed_list of /proc/self/status is 0-7", "taskset -c 8-15 "}}},
		{"memory far from the node", func(m *machine, n *Node) { m.onNode(); m.mayUse("8-15", "0") },
			[]wanted{{"numa", Warning, "mlx5_0", "no memory on the device's NUMA node", "numa_node is 1; Mems_allowed_list of /proc/self/status is 0", "numactl --membind=1"}}},
		{"more pollers than near", func(m *machine, n *Node) { m.onNode(); m.mayUse("0-8", "0-1"); n.Pollers = 4 },
			[]wanted{{"numa", Note, "mlx5_0", "only 1 of 4 pollers", "", "taskset"}}},
		{"a node that is none", func(m *machine, n *Node) { m.put(classDevices+"/mlx5_0/device/numa_node", "0-7\n") }, nil},

		{"vectors each on its own", func(m *machine, n *Node) { n.Vectors = vectors("mlx5_0", 8, 9, 10, 11) }, nil},
		{"vectors two on each", func(m *machine, n *Node) {
			n.Vectors = vectors("mlx5_0", 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)
		}, nil},
		{"all vectors on one", func(m *machine, n *Node) { n.Vectors = vectors("mlx5_0", 9, 9, 9, 9, 9, 9) },
			[]wanted{{"vectors", Warning, "mlx5_0", "6 of 6 completion vectors interrupt processor 9", "interrupts 100 101 102 103 104 105 is 9", "echo 8 > /proc/irq/100/smp_affinity_list\necho 9 > /proc/irq/101/smp_affinity_list\necho 10 > /proc/irq/102/smp_affinity_list\necho 11 > /proc/irq/103/smp_affinity_list\n# and so on, for interrupts 104 105\n"}}},
		{"three vectors on one", func(m *machine, n *Node) { n.Vectors = vectors("mlx5_0", 8, 9, 10, 11, 12, 8, 8) },
			[]wanted{{"vectors", Note, "mlx5_0", "3 of 7 completion vectors interrupt processor 8", "", ""}}},
		{"vectors on the other node", func(m *machine, n *Node) { n.Vectors = vectors("mlx5_0", 8, 9, 0, 1) },
			[]wanted{{"vectors", Warning, "mlx5_0", "2 of 4 completion vectors interrupt processors of another NUMA node", "interrupt 102 is 0", "echo 8 > /proc/irq/102/smp_affinity_list"}}},
		{"vectors that are not known", func(m *machine, n *Node) {
			n.Vectors = func(string) (*poll.Vectors, error) { return &poll.Vectors{Unknown: poll.ErrVectors}, nil }
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := healthyRoCE(t)
			n := m.node()
			c.spoil(m, n)
			findsOnly(t, n, c.want...)
		})
	}
}

// On machines with one processor, or one vector, there is nothing to spread.
func TestVectorsOfSmallMachines(t *testing.T) {
	m := healthyRoCE(t)
	m.put("sys/devices/system/cpu/online", "0\n")
	n := m.node()
	v, _ := vectors("mlx5_0", 0, 0)("")
	v.Near = nil
	n.Vectors = func(string) (*poll.Vectors, error) { return v, nil }
	findsOnly(t, n)
}

func TestModeration(t *testing.T) {
	for _, c := range []struct {
		name string
		is   Coalescing
		err  error
		want []wanted
	}{
		{"none", Coalescing{}, syscall.EOPNOTSUPP, nil},
		{"little", Coalescing{Period: 8 * time.Microsecond, Frames: 64}, nil, nil},
		{"adaptive", Coalescing{Period: time.Millisecond, Adaptive: true}, nil, nil},
		{"much", Coalescing{Period: time.Millisecond, Frames: 64}, nil,
			[]wanted{{"moderation", Note, "rxe0/1", "wait up to 1ms", "rx-usecs of dummy0 is 1000", "ethtool -C dummy0"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := healthySoft(t).node()
			n.Coalescing = func(string) (Coalescing, error) { return c.is, c.err }
			findsOnly(t, n, c.want...)
		})
	}
	t.Run("cannot be asked", func(t *testing.T) {
		n := healthySoft(t).node()
		n.Coalescing = func(string) (Coalescing, error) { return Coalescing{}, errors.New("ethtool: it is broken") }
		r := examined(t, n)
		if len(r.Findings) != 0 || len(r.NotLooked) != 1 || r.NotLooked[0].Check != "moderation" {
			t.Errorf("%+v", r)
		}
	})
}

func TestCounters(t *testing.T) {
	const dir = classDevices + "/mlx5_0/ports/1/"
	for _, c := range []struct {
		name  string
		files []string
		want  []wanted
	}{
		{"quiet", []string{dir + "counters/port_xmit_packets", "1000000\n", dir + "hw_counters/packet_seq_err", "12\n", dir + "counters/link_downed", "3\n"}, nil},
		{"lost packets", []string{dir + "counters/port_xmit_packets", "1000000\n", dir + "hw_counters/packet_seq_err", "1000\n"},
			[]wanted{{"counters", Warning, "mlx5_0/1", "packets that were sent did not arrive, and were sent again; 1000 so far", "/" + dir + "hw_counters/packet_seq_err is 1000, port_xmit_packets 1000000", "PFC"}}},
		{"requests given up", []string{dir + "hw_counters/req_transport_retries_exceeded", "1\n"},
			[]wanted{{"counters", Note, "mlx5_0/1", "requests were given up", "req_transport_retries_exceeded is 1", "verbs pingpong"}}},
		{"a bad cable", []string{dir + "counters/symbol_error", "111\n"}, []wanted{{"counters", Note, "mlx5_0/1", "; 111 so far", "", "mlxlink"}}},
		{"no numbers", []string{dir + "counters/symbol_error", "many\n"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := healthyRoCE(t)
			m.put(c.files...)
			findsOnly(t, m.node(), c.want...)
		})
	}
}

func TestABI(t *testing.T) {
	u32 := &btf.Int{Name: "u32", Size: 4}
	resp := func(field string) *btf.Struct {
		return &btf.Struct{Name: "ib_uverbs_alloc_pd_resp", Size: 4, Members: []btf.Member{{Name: field, Type: u32}}}
	}
	t.Run("the same", func(t *testing.T) {
		m := healthyRoCE(t)
		m.describes(u32, resp("pd_handle"))
		findsOnly(t, m.node())
	})
	t.Run("another field", func(t *testing.T) {
		m := healthyRoCE(t)
		m.describes(u32, resp("something"))
		findsOnly(t, m.node(), wanted{"abi", Fault, "", "is not the one that this program was built for", "ib_uverbs_alloc_pd_resp", "vendor"})
	})
	t.Run("hidden", func(t *testing.T) {
		m := healthyRoCE(t)
		m.remove(typesDir)
		findsOnly(t, m.node(), wanted{"abi", Note, "", "does not describe the types of its modules", "/sys/kernel/btf/ib_uverbs", "5.11"})
	})
	t.Run("garbage", func(t *testing.T) {
		m := healthyRoCE(t)
		m.put(typesDir+"/ib_uverbs", "garbage")
		r := examined(t, m.node())
		if len(r.Findings) != 0 || len(r.NotLooked) != 1 || r.NotLooked[0].Check != "abi" {
			t.Errorf("%+v", r)
		}
	})
}

func TestLimits(t *testing.T) {
	m := healthySoft(t)
	m.put("proc/77/status", "Name:\tworker\nTgid:\t70\n", "proc/78/status", "Name:\tother\nTgid:\t70\n", "proc/90/status", "Name:\tsmall\nTgid:\t90\n", "proc/70/comm", "hoarder\n")
	m.owned = owned{77: 30, 78: 20, 90: 40, 0: 100}
	set := func(used uint64) {
		m.counts[0] = nldev.ResourceCounts{"pd": used, "qp": 5, "ctx": 9}
		m.answers["rxe0"].Attr.MaxPD = 100
	}
	set(1)
	if r := examined(t, m.node()); !slices.ContainsFunc(r.Checks, func(c Made) bool { return slices.Contains(c.Saw, "rxe0: 1 protection domain of 100") }) {
		t.Errorf("%+v", r.Checks)
	}
	set(79)
	findsOnly(t, m.node())
	set(80)
	findsOnly(t, m.node(), wanted{"limits", Warning, "rxe0", "80 of at most 100 protection domains are in use: soon", "process 70 (hoarder) has 50 of them", "rdma resource show pd dev rxe0"})
	set(100)
	findsOnly(t, m.node(), wanted{"limits", Fault, "rxe0", "no program can make another", "netlink counts 100 pd, and max_pd of the device is 100", ""})
	m.owned = owned{0: 100}
	findsOnly(t, m.node(), wanted{"limits", Fault, "rxe0", "", "cannot be seen from this PID namespace", ""})
	// What the device does not say is no limit.
	m.answers["rxe0"].Attr.MaxPD = 0
	findsOnly(t, m.node())
}
