package doctor

import (
	"path"
	"strings"
)

// container says whether the process lives in one, and of which kind.
type container struct {
	kind string // "docker", "podman", "kubernetes", "lxc", "container"; "" if in none
	seen string // how that was seen
}

// container looks for the marks that container engines leave.
func (n *Node) container() container {
	switch {
	case n.exists("var/run/secrets/kubernetes.io/serviceaccount"), n.exists("run/secrets/kubernetes.io/serviceaccount"):
		return container{"kubernetes", "/var/run/secrets/kubernetes.io/serviceaccount exists"}
	case n.exists(".dockerenv"):
		return container{"docker", "/.dockerenv exists"}
	case n.exists("run/.containerenv"):
		return container{"podman", "/run/.containerenv exists"}
	}
	group, _ := n.read("proc/self/cgroup")
	for _, mark := range []struct{ text, kind string }{
		{"kubepods", "kubernetes"}, {"cri-containerd", "kubernetes"}, {"/docker/", "docker"}, {"/docker-", "docker"},
		{"libpod-", "podman"}, {"/lxc/", "lxc"}, {"/lxc.payload", "lxc"},
	} {
		if strings.Contains(group, mark.text) {
			return container{mark.kind, "/proc/self/cgroup has " + mark.text}
		}
	}
	if kind, err := n.line("run/systemd/container"); err == nil && kind != "" {
		if kind != "docker" && kind != "podman" && kind != "lxc" {
			kind = "container"
		}
		return container{kind, "/run/systemd/container exists"}
	}
	// Engines without marks of their own still put the root on an overlay; live
	// systems do that, too, but those have a service manager.
	if !n.exists("run/systemd/system") {
		for _, m := range n.mounts() {
			if m.point == "/" && m.kind == "overlay" {
				return container{"container", "/ is an overlay"}
			}
		}
	}
	return container{}
}

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point   string
	options []string
	kind    string // of the file system
}

// mounts lists what is mounted, in order: of those at one place the last is seen.
func (n *Node) mounts() []mount {
	s, err := n.read("proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var all []mount
	for line := range strings.Lines(s) {
		front, back, _ := strings.Cut(line, " - ")
		f, b := strings.Fields(front), strings.Fields(back)
		if len(f) < 6 || len(b) < 1 {
			continue
		}
		all = append(all, mount{point: unescape(f[4]), options: strings.Split(f[5], ","), kind: b[0]})
	}
	return all
}

// mountOf finds what a path is mounted from.
func (n *Node) mountOf(name string) (m mount, ok bool) {
	all := n.mounts()
	for dir := path.Clean(name); ; dir = path.Dir(dir) {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].point == dir {
				return all[i], true
			}
		}
		if dir == "/" || dir == "." {
			return mount{}, false
		}
	}
}
