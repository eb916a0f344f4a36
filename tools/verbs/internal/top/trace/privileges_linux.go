package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// privileges are what decides whether this process may look into the kernel.
type privileges struct {
	caps     uint64 // effective capabilities
	paranoid int    // kernel.perf_event_paranoid; -1: unknown
	lockdown string // none, integrity, confidentiality, or "" where there is no lockdown
	mapped   bool   // in a user namespace: capabilities count for nothing here
}

// has says whether the process has a capability.
func (p privileges) has(c int) bool { return p.caps>>c&1 == 1 }

// readPrivileges reads them from a root with proc and sys.
func readPrivileges(root fs.FS) (privileges, error) {
	p := privileges{paranoid: -1}
	status, err := fs.ReadFile(root, "proc/self/status")
	if err != nil {
		return p, fmt.Errorf("what this process may do is in /proc, which cannot be read: %w", err)
	}
	for s := bufio.NewScanner(bytes.NewReader(status)); s.Scan(); {
		if hex, ok := strings.CutPrefix(s.Text(), "CapEff:"); ok {
			if p.caps, err = strconv.ParseUint(strings.TrimSpace(hex), 16, 64); err != nil {
				return p, fmt.Errorf("capabilities in /proc/self/status: %w", err)
			}
		}
	}
	if b, err := fs.ReadFile(root, "proc/sys/kernel/perf_event_paranoid"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			p.paranoid = n
		}
	}
	if b, err := fs.ReadFile(root, "sys/kernel/security/lockdown"); err == nil { // none [integrity] confidentiality
		if _, after, ok := strings.Cut(string(b), "["); ok {
			p.lockdown, _, _ = strings.Cut(after, "]")
		}
	}
	if b, err := fs.ReadFile(root, "proc/self/uid_map"); err == nil {
		f := strings.Fields(string(b))
		p.mapped = len(f) != 3 || f[0] != "0" || f[1] != "0" || f[2] != "4294967295"
	}
	return p, nil
}

// lacking says what certainly will not do.
func (p privileges) lacking() error {
	var missing []string
	if !p.has(unix.CAP_BPF) {
		missing = append(missing, "CAP_BPF")
	}
	if !p.has(unix.CAP_PERFMON) {
		missing = append(missing, "CAP_PERFMON")
	}
	switch {
	case p.lockdown == "confidentiality":
		return errors.New("the kernel is locked down for confidentiality, and then programs may not read its memory: boot with lockdown=integrity or without")
	case p.has(unix.CAP_SYS_ADMIN) || len(missing) == 0:
		return nil
	}
	how := "run it as root, or give the file capabilities: setcap cap_bpf,cap_perfmon+ep FILE"
	if p.paranoid > 2 {
		how = fmt.Sprintf("run it as root, or give the file capabilities (setcap cap_bpf,cap_perfmon+ep FILE) and sysctl kernel.perf_event_paranoid=2, which is %d", p.paranoid)
	}
	return fmt.Errorf("probes in the kernel need %s, which this process has not: %s: %w", strings.Join(missing, " and "), how, fs.ErrPermission)
}

// explain says what a refusal is about.
func (p privileges) explain(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if p.mapped {
		return fmt.Errorf("the kernel refuses probes to this process, whose capabilities are those of a user namespace (a rootless container): %w", err)
	}
	return fmt.Errorf("the kernel refuses probes, although this process has the capabilities: a security module, or a container's filter of system calls: %w", err)
}

// explainAttach says what is wrong with a function.
func (p privileges) explainAttach(function, module string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("this kernel has no function %s, or the module %s is not loaded", function, module)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("this kernel has more than one function %s, and the wrong one must not be traced", function)
	case errors.Is(err, unix.EACCES) && !p.has(unix.CAP_SYS_ADMIN):
		return fmt.Errorf("kprobes need CAP_SYS_ADMIN, or kernel.perf_event_paranoid of at most 2 (sysctl kernel.perf_event_paranoid=2), which is %d: %w", p.paranoid, unix.EACCES)
	}
	return p.explain(fmt.Errorf("attach to %s: %w", function, err))
}
