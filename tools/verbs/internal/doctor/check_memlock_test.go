package doctor

import (
	"slices"
	"strings"
	"testing"
)

// limits gives the process a limit of locked memory, and pinned memory.
func (m *machine) memlock(soft, hard, pinned string) {
	m.put("proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 524288               files     \nMax locked memory         "+soft+"              "+hard+"              bytes     \n")
	status := string(m.files["proc/self/status"].Data)
	m.put("proc/self/status", strings.Replace(status, "VmPin:\t       0 kB", "VmPin:\t"+pinned+" kB", 1))
}

func TestMemlockFindings(t *testing.T) {
	wants := func(bytes uint64) func(*Node) { return func(n *Node) { n.Memlock = bytes } }
	finding := func(s Severity, what, seen, mend string) []Finding {
		return []Finding{{Check: "memlock", Severity: s, What: what, Seen: seen, Mend: mend}}
	}
	const lacks = ", and CapEff lacks CAP_IPC_LOCK"
	const eight = "/proc/self/limits: Max locked memory is 8 MiB, at most 8 MiB; /proc/self/status: VmPin is 0 bytes" + lacks
	const forGood = "echo '* - memlock 1048576' >> /etc/security/limits.d/rdma.conf # and log in again\nsystemctl edit UNIT # for a service: [Service] LimitMEMLOCK=infinity\nsetcap cap_ipc_lock=ep PROGRAM # for one program"
	const failsWithENOMEM = "this process may register 8 MiB more, and 1 GiB are wanted: registration will fail with ENOMEM"
	findAll(t, []findingCase{
		{"8 MiB", healthyRoCE, func(m *machine) { m.memlock("8388608", "8388608", "0") }, nil,
			finding(Note, "this process may register no more than 8 MiB; verbs doctor -memlock SIZE says whether that is enough", eight, strings.Replace(forGood, "1048576", "unlimited", 1))},
		{"64 KiB", healthyRoCE, func(m *machine) { m.memlock("65536", "unlimited", "0") }, nil,
			finding(Warning, "this process may register no more than 64 KiB, which hardly any program can do with",
				"/proc/self/limits: Max locked memory is 64 KiB, at most unlimited; /proc/self/status: VmPin is 0 bytes"+lacks, "ulimit -l unlimited")},
		{"64 KiB, and nobody to use it", bareMachine, func(m *machine) { m.memlock("65536", "65536", "0") }, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny, Mend: "modprobe rdma_rxe\nrdma link add rxe0 type rxe netdev eth7"}}},
		{"enough for what is wanted", healthyRoCE, func(m *machine) { m.memlock("8388608", "8388608", "4096") }, wants(4 << 20), nil},
		{"enough without what is registered", healthyRoCE, func(m *machine) { m.memlock("8388608", "16777216", "4096") }, wants(4<<20 + 1),
			finding(Fault, "this process may register 4 MiB more, and 4.0 MiB are wanted: registration will fail with ENOMEM",
				"/proc/self/limits: Max locked memory is 8 MiB, at most 16 MiB; /proc/self/status: VmPin is 4 MiB"+lacks, "ulimit -l 8193")},
		{"too much wanted", healthyRoCE, func(m *machine) { m.memlock("8388608", "8388608", "0") }, wants(1 << 30), finding(Fault, failsWithENOMEM, eight, forGood)},
		{"too much wanted in docker", healthyRoCE, func(m *machine) { m.memlock("8388608", "8388608", "0"); m.put(".dockerenv", "") }, wants(1 << 30),
			finding(Fault, failsWithENOMEM, eight, "docker run --ulimit memlock=-1:-1 ...")},
		{"too much wanted in kubernetes", healthyRoCE, func(m *machine) {
			m.memlock("8388608", "8388608", "0")
			m.put("var/run/secrets/kubernetes.io/serviceaccount/token", "")
		}, wants(1 << 30), finding(Fault, failsWithENOMEM, eight, `add to the container: securityContext: {capabilities: {add: ["IPC_LOCK"]}}`)},
		{"with CAP_IPC_LOCK", healthyRoCE, func(m *machine) {
			m.memlock("8388608", "8388608", "0")
			m.put("proc/self/status", strings.Replace(string(m.files["proc/self/status"].Data), "CapEff:\t0000000000000000", "CapEff:\t0000000000004000", 1))
		}, wants(1 << 30), nil},
		{"with CAP_IPC_LOCK that does not count", healthyRoCE, func(m *machine) {
			m.memlock("8388608", "8388608", "0")
			m.put("proc/self/status", strings.Replace(string(m.files["proc/self/status"].Data), "CapEff:\t0000000000000000", "CapEff:\t0000000000004000", 1),
				"proc/self/uid_map", "         0       1000          1\n")
		}, wants(1 << 30), finding(Fault, failsWithENOMEM,
			"/proc/self/limits: Max locked memory is 8 MiB, at most 8 MiB; /proc/self/status: VmPin is 0 bytes; CAP_IPC_LOCK does not count in a user namespace, as /proc/self/uid_map shows one", forGood)},
		{"nearly all registered, in another process", healthyRoCE, func(m *machine) {
			m.memlock("8388608", "8388608", "8000")
			status := string(m.files["proc/self/status"].Data)
			m.process("1000", "0")
			m.put("proc/17/status", status)
		}, func(n *Node) { n.PID = 17 }, finding(Warning, "process 17 has registered 7.8 MiB of the 8 MiB that it may",
			"/proc/17/limits: Max locked memory is 8 MiB, at most 8 MiB; /proc/17/status: VmPin is 7.8 MiB"+lacks, "prlimit --pid 17 --memlock=unlimited:unlimited")},
		{"more than the machine has", healthyRoCE, func(m *machine) {
			m.put("proc/meminfo", "MemTotal:       1048576 kB\nMemFree:          1000 kB\nMemAvailable:     524288 kB\n")
		}, wants(2 << 30), finding(Fault, "2 GiB are wanted to be registered, and the machine has 1 GiB: registered memory is never swapped out",
			"/proc/meminfo: MemTotal is 1 GiB, MemAvailable 512 MiB", "register less, or add memory")},
		{"more than is free", healthyRoCE, func(m *machine) {
			m.put("proc/meminfo", "MemTotal:       1048576 kB\nMemFree:          1000 kB\nMemAvailable:     524288 kB\n")
		}, wants(600 << 20), finding(Warning, "600 MiB are wanted to be registered, and 512 MiB are free: registered memory is never swapped out",
			"/proc/meminfo: MemTotal is 1 GiB, MemAvailable 512 MiB", "ps -eo pid,rss,comm --sort=-rss | head # and end what is not needed")},
		{"more than the control group may have", healthyRoCE, func(m *machine) {
			m.put("sys/fs/cgroup/user.slice/memory.max", "536870912\n", "sys/fs/cgroup/user.slice/session-2.scope/memory.max", "max\n")
		}, wants(1 << 30), finding(Fault, "1 GiB are wanted to be registered, and the control group may have 512 MiB: the kernel will end the process",
			"/sys/fs/cgroup/user.slice/memory.max is 536870912", "echo 1342177280 > /sys/fs/cgroup/user.slice/memory.max")},
		{"more than a container may have", healthyRoCE, func(m *machine) {
			m.put("sys/fs/cgroup/user.slice/memory.max", "536870912\n", "run/.containerenv", "")
		}, wants(1 << 30), finding(Fault, "1 GiB are wanted to be registered, and the control group may have 512 MiB: the kernel will end the process",
			"/sys/fs/cgroup/user.slice/memory.max is 536870912", "podman run --memory 1342177280 ...")},
	})
}

// What is not there, or makes no sense, is not looked at, and said.
func TestMemlockNotLooked(t *testing.T) {
	for _, test := range []struct{ file, content, why string }{
		{"proc/self/limits", "Max locked memory         lots              more              bytes\n", `/proc/self/limits: Max locked memory is " lots more bytes\n"`},
		{"proc/meminfo", "", "/proc/meminfo: there is no MemTotal in it"},
	} {
		m := healthyRoCE(t)
		m.put(test.file, test.content)
		n := m.node()
		n.Memlock = 4096
		r := examined(t, n)
		if !slices.Contains(r.NotLooked, NotLooked{Check: "memlock", Why: test.why}) || len(r.Findings) > 0 {
			t.Errorf("%s: not looked at: %+v; found %+v", test.file, r.NotLooked, r.Findings)
		}
	}
}
