package doctor

import "testing"

// Containers are known by their marks, and hosts that run engines are none.
func TestContainer(t *testing.T) {
	for _, c := range []struct{ file, content, want string }{
		{"etc/hostname", "server\n", ""},
		{"proc/self/cgroup", "0::/system.slice/docker.service\n", ""},
		{"proc/self/cgroup", "0::/system.slice/lxcfs.service\n", ""},
		{"proc/self/cgroup", "0::/../../docker-4f2a.scope\n", "docker"},
		{"proc/self/cgroup", "12:cpu:/docker/4f2a\n", "docker"},
		{"proc/self/cgroup", "12:cpu:/lxc/web\n", "lxc"},
		{"proc/self/cgroup", "0::/lxc.payload.web/init.scope\n", "lxc"},
		{"proc/self/cgroup", "0::/machine.slice/libpod-88.scope/container\n", "podman"},
		{"proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-9.scope\n", "kubernetes"},
		{"run/secrets/kubernetes.io/serviceaccount/token", "", "kubernetes"},
		{"run/systemd/container", "systemd-nspawn\n", "container"},
		{"run/.containerenv", "", "podman"},
		{".dockerenv", "", "docker"},
		{"proc/self/mountinfo", "30 1 0:44 / / rw - overlay overlay rw\n", "container"},
	} {
		m := healthyRoCE(t)
		m.put(c.file, c.content)
		if got := m.node().container(); got.kind != c.want || (got.kind == "") != (got.seen == "") {
			t.Errorf("%s with %q: %+v, want %q", c.file, c.content, got, c.want)
		}
	}
	m := healthyRoCE(t) // a live system
	m.put("proc/self/mountinfo", "30 1 0:44 / / rw - overlay overlay rw\n", "run/systemd/system/x", "")
	if got := m.node().container(); got.kind != "" {
		t.Errorf("a live system is %+v", got)
	}
}
