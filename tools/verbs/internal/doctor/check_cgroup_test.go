package doctor

import (
	"slices"
	"strings"
	"testing"
)

const session = "sys/fs/cgroup/user.slice/session-2.scope"

func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		name    string
		pollers int
		spoil   func(m *machine)
		want    []wanted
	}{
		{"no limit", 15, func(m *machine) {}, nil},
		{"max", 1, func(m *machine) { m.put(session+"/cpu.max", "max 100000\n") }, nil},
		{"as many pollers as processors", 16, func(m *machine) {},
			[]wanted{{"cpu", Fault, "", "16 processors for 16 goroutines that poll busily", "Cpus_allowed_list of /proc/self/status is 0-15", "17 processors"}}},
		{"one processor", 2, func(m *machine) { m.mayUse("5", "0-1") },
			[]wanted{{"cpu", Fault, "", "1 processor for 2 goroutines", "Cpus_allowed_list of /proc/self/status is 5", "3 processors"}}},
		{"half a processor", 1, func(m *machine) {
			m.put(session+"/cpu.max", "50000 100000\n", session+"/cpu.stat", "usage_usec 1\nnr_throttled 12\n")
		}, []wanted{{"cpu", Warning, "", "0.5 processors may be used, by 1 goroutine that polls busily", "/" + session + "/cpu.max is \"50000 100000\"; nr_throttled in cpu.stat there is 12", "echo '200000 100000' > /" + session + "/cpu.max"}}},
		{"half a processor and nothing wanted", 0, func(m *machine) { m.put(session+"/cpu.max", "50000 100000\n") },
			[]wanted{{"cpu", Warning, "", "the time of 0.5 processors", "", "echo '100000 100000'"}}},
		{"two processors and nothing wanted", 0, func(m *machine) { m.put(session+"/cpu.max", "200000 100000\n") }, nil},
		{"above", 3, func(m *machine) {
			m.put(session+"/cpu.max", "max 100000\n", "sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n")
		}, nil},
		{"above, too little", 4, func(m *machine) {
			m.put(session+"/cpu.max", "max 100000\n", "sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n")
		}, []wanted{{"cpu", Fault, "", "4 processors for 4 goroutines", "/sys/fs/cgroup/user.slice/cpu.max is", "echo '500000 100000' > /sys/fs/cgroup/user.slice/cpu.max"}}},
		{"the first version of control groups", 1, func(m *machine) {
			m.put("proc/self/cgroup", "5:cpu,cpuacct:/docker/7f\n1:name=systemd:/docker/7f\n0::/\n",
				"proc/self/mountinfo", "40 30 0:30 /docker/7f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n41 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "25000\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n")
		}, []wanted{{"cpu", Warning, "", "0.5 processors", "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us is 25000, and cpu.cfs_period_us beside it 50000", "echo 200000 > /sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"}}},
		{"the first version without a limit", 1, func(m *machine) {
			m.put("proc/self/cgroup", "5:cpu,cpuacct:/\n", "proc/self/mountinfo", "40 30 0:30 / /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
		}, nil},
		{"a container that shares the groups of its host", 1, func(m *machine) {
			m.put("proc/self/cgroup", "0::/../../kubepods/pod1\n", "sys/fs/cgroup/cpu.max", "10000 100000\n")
		}, []wanted{{"cpu", Warning, "", "0.1 processors", "/sys/fs/cgroup/cpu.max", ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := healthyRoCE(t)
			c.spoil(m)
			n := m.node()
			n.Pollers = c.pollers
			findsOnly(t, n, c.want...)
		})
	}
}

func TestProcessorsNotSeen(t *testing.T) {
	for _, spoil := range []func(m *machine){
		func(m *machine) { m.put(session+"/cpu.max", "half\n") },
		func(m *machine) { m.put(session+"/cpu.max", "50000 0\n") },
		func(m *machine) { m.mayUse("0-99999", "0") },
		func(m *machine) { m.mayUse("", "0") },
	} {
		m := healthyRoCE(t)
		spoil(m)
		r := examined(t, m.node())
		if len(r.Findings) != 0 || !slices.ContainsFunc(r.NotLooked, func(l NotLooked) bool { return l.Check == "cpu" }) {
			t.Errorf("%+v", r)
		}
	}
}

func TestRDMACgroup(t *testing.T) {
	m := healthySoft(t)
	m.put(session+"/rdma.max", "rxe0 hca_handle=2 hca_object=max\nmlx5_9 hca_handle=0 hca_object=0\n", session+"/rdma.current", "rxe0 hca_handle=1 hca_object=9\n")
	findsOnly(t, m.node())
	m.put(session+"/rdma.current", "rxe0 hca_handle=2 hca_object=9\n")
	findsOnly(t, m.node(), wanted{"rdmacgroup", Fault, "rxe0", "has 2 of the 2 contexts of the device that it may have: no program", "/" + session + "/rdma.max has hca_handle=2 for rxe0, and rdma.current beside it 2", "echo 'rxe0 hca_handle=max' > /" + session + "/rdma.max"})
	m.put("sys/fs/cgroup/user.slice/rdma.max", "rxe0 hca_object=10\n", "sys/fs/cgroup/user.slice/rdma.current", "rxe0 hca_handle=2 hca_object=9\n", session+"/rdma.current", "")
	findsOnly(t, m.node(), wanted{"rdmacgroup", Warning, "rxe0", "has 9 of the 10 objects of the device that it may have: soon", "/sys/fs/cgroup/user.slice/rdma.max", ""})
	m.put("sys/fs/cgroup/user.slice/rdma.max", "rxe0 hca_object=lots\n")
	if r := examined(t, m.node()); len(r.NotLooked) != 1 || r.NotLooked[0].Check != "rdmacgroup" {
		t.Errorf("%+v", r)
	}
}

func TestParseLists(t *testing.T) {
	for _, s := range []string{"0", "0-3", "0-3,7", "1,3,5-8"} {
		all, err := parseList(s)
		if err != nil || formatList(all) != s {
			t.Errorf("parseList(%q) = %v, %v, which is %q", s, all, err, formatList(all))
		}
	}
	if all, err := parseList("3,1,2-2"); err != nil || formatList(all) != "1-3" {
		t.Errorf("%v, %v", all, err)
	}
	for _, s := range []string{"-1", "3-1", "a", "1,", "0-8192", "99999"} {
		if all, err := parseList(s); err == nil {
			t.Errorf("parseList(%q) = %v", s, all)
		}
	}
}

func FuzzCgroups(f *testing.F) {
	f.Add("0::/a\n", "26 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "50000 100000\n")
	f.Add("4:cpu:/../a\n", "26 24 0:23 /.. /sys\\040fs rw - cgroup none cpu\n", "max 1\n")
	f.Add("0::/\n", "26 24 0:23 / / rw - cgroup2 cgroup2 rw\n", "\n")
	f.Fuzz(func(t *testing.T, groups, mounts, limit string) {
		m := blank(t, "6.1.0")
		m.put("proc/self/cgroup", groups, "proc/self/mountinfo", mounts, "sys/fs/cgroup/cpu.max", limit, "sys/fs/cgroup/rdma.max", limit)
		n := m.node()
		h, err := n.hierarchy("cpu")
		if err == nil && len(h.levels) > len(groups)+len(mounts)+1 {
			t.Errorf("%d levels", len(h.levels))
		}
		all, err := n.quotas()
		for _, q := range all {
			if err == nil && !(q.cpus >= 0) {
				t.Errorf("%+v", q)
			}
		}
		_, _ = n.charges("sys/fs/cgroup/rdma.max")
		if all, err := parseList(strings.TrimSpace(limit)); err == nil && len(all) > maxCPUs {
			t.Errorf("%d processors", len(all))
		}
	})
}
