package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// A moduleState is what became of a kernel module.
type moduleState int

const (
	moduleUnknown moduleState = iota // not loaded; whether there is such a file nobody tells
	moduleHidden                     // neither /proc nor /sys tells whether it is loaded
	moduleMissing                    // not loaded, and this kernel has no such file
	moduleNever                      // not built in, and this kernel loads no modules
	moduleOnDisk                     // not loaded, but there to be loaded
	moduleLoaded
	moduleBuiltIn
)

var moduleStates = [...]string{"not loaded", "not known to be loaded, without /proc and /sys", "not part of this kernel's packages", "not built in, and this kernel loads no modules", "not loaded", "loaded", "built in"}

func (s moduleState) String() string { return moduleStates[s] }

// running tells whether its code is in the kernel.
func (s moduleState) running() bool { return s == moduleLoaded || s == moduleBuiltIn }

// kernelModules are the modules of the running kernel.
type kernelModules struct {
	loaded  map[string]bool
	builtIn map[string]bool
	onDisk  map[string]bool
	disk    bool // onDisk and builtIn are known
	never   bool // the kernel was built without modules
	hidden  bool // nobody tells which are loaded
	n       *Node
}

// modules reads which modules are loaded, built in, and there to be loaded. A container may
// see the first alone, and a kernel without modules has none of the lists.
func (n *Node) modules() *kernelModules {
	m := &kernelModules{n: n}
	dir := "lib/modules/" + n.Release
	loaded, err := n.read("proc/modules")
	m.loaded = moduleNames(loaded)
	if errors.Is(err, fs.ErrNotExist) {
		m.never = n.exists("proc/sys") // else all of /proc but processes is not there
		m.hidden = !m.never && !n.sysfs()
	}
	if strings.Contains(n.Release, "/") {
		return m
	}
	if builtIn, err := n.read(dir + "/modules.builtin"); err == nil {
		m.builtIn = moduleNames(builtIn)
	}
	if onDisk, err := n.read(dir + "/modules.dep"); err == nil {
		m.onDisk, m.disk = moduleNames(onDisk), true
	}
	return m
}

// state finds out about one.
func (m *kernelModules) state(name string) moduleState {
	switch {
	case m.loaded[name]:
		return moduleLoaded
	case m.builtIn[name]:
		return moduleBuiltIn
	case m.n.exists("sys/module/" + name):
		// Some that are built in have a folder there, and so has all that is
		// loaded, should /proc/modules be hidden.
		return moduleLoaded
	case m.hidden:
		return moduleHidden
	case m.never:
		return moduleNever
	case m.onDisk[name]:
		return moduleOnDisk
	case m.disk:
		return moduleMissing
	}
	return moduleUnknown
}

// moduleNames reads the names that lines begin with: those of /proc/modules, or paths such
// as kernel/drivers/infiniband/core/ib_core.ko.xz, which end with a colon in modules.dep.
func moduleNames(list string) map[string]bool {
	names := make(map[string]bool)
	for line := range strings.Lines(list) {
		first, _, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		name := path.Base(strings.TrimSuffix(first, ":"))
		name, _, _ = strings.Cut(name, ".ko")
		if name != "" {
			// File names may have what the kernel makes an underscore.
			names[strings.ReplaceAll(name, "-", "_")] = true
		}
	}
	return names
}

// load is the command that loads a module, or says what has to be installed first.
func (m *kernelModules) load(name string) string {
	switch m.state(name) {
	case moduleMissing:
		return fmt.Sprintf("install the modules that the kernel %s lacks, or a kernel that has %s: %s", m.n.Release, name, packages(m.n, name))
	case moduleNever:
		return fmt.Sprintf("boot a kernel that has %s: this one, %s, was built without it and loads no modules", name, m.n.Release)
	case moduleUnknown, moduleHidden:
		if m.n.container().kind != "" {
			return fmt.Sprintf("modprobe %s # on the host: a container cannot load it", name)
		}
	}
	return "modprobe " + name
}

// packages says what to install for a module that a distribution does not put into its
// smallest kernel.
func packages(n *Node, module string) string {
	id := osRelease(n)
	switch {
	case strings.Contains(strings.ToLower(n.Release), "microsoft"):
		return "build WSL2's kernel with it, and name it in .wslconfig ([wsl2] kernel=PATH): no distribution has modules for this one"
	case id == "debian":
		return "apt install linux-image-" + debianArch(n.Machine) + " (the cloud flavour leaves " + module + " out), and reboot"
	case id == "ubuntu":
		return "apt install linux-modules-extra-" + n.Release
	case id == "fedora" || id == "rhel" || id == "centos" || id == "rocky" || id == "almalinux":
		return "dnf install kernel-modules-extra-" + n.Release
	}
	return "a kernel that is built with " + module
}

// debianArch is what Debian calls a machine.
func debianArch(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

// osRelease is the short name of the distribution, such as "debian".
func osRelease(n *Node) string {
	s, err := n.read("etc/os-release")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(s) {
		if id, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "ID="); ok {
			return strings.Trim(id, `"'`)
		}
	}
	return ""
}
