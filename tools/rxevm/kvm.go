//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// kvmPatience is how long a kernel under KVM may take to its first console line; real ones need a
// fraction of it.
const kvmPatience = 4 * time.Second

// kvmWorks tells whether KVM boots a kernel here. That /dev/kvm can be opened proves nothing, so a
// real kernel is started and its console watched. The answer is kept until the machine restarts.
// GOVERBS_KVM=0 or 1 overrides it.
func (h *host) kvmWorks(ctx context.Context, t hostTool, k kernelDir, arch string) bool {
	switch os.Getenv("GOVERBS_KVM") {
	case "0":
		return false
	case "1":
		return true
	}
	if arch != runtime.GOARCH {
		return false
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false
	}
	memo := h.path("kvm-" + arch)
	if b, err := os.ReadFile(memo); err == nil {
		if id, answer, ok := strings.Cut(string(b), " "); ok && id == strings.TrimSpace(string(boot)) {
			return answer == "yes"
		}
	}
	works := probeKVM(ctx, t, k, arch, kvmPatience)
	if ctx.Err() != nil {
		return false
	}
	answer := "no"
	if works {
		answer = "yes"
	} else {
		h.note("/dev/kvm is there but boots no kernel within %v: using emulation", kvmPatience)
	}
	tmp := memo + ".part"
	if os.WriteFile(tmp, []byte(strings.TrimSpace(string(boot))+" "+answer), 0o644) == nil {
		_ = os.Rename(tmp, memo) // Without the memo the next run probes again.
	}
	return works
}

// probeKVM starts a kernel under KVM and waits for its first console line as long as patience
// lets it.
func probeKVM(ctx context.Context, t hostTool, k kernelDir, arch string, patience time.Duration) bool {
	con := &console{}
	// With all messages on, the kernel's first line is its version, and a missing /init cannot be
	// reached before it.
	m := machine{arch: arch, cpus: 1, memMiB: 512, kvm: true, loud: true}
	var messages bytes.Buffer
	e, err := startQEMU(t, m, filepath.Clean(k.vmlinuz()), image{}, con, &messages)
	if err != nil {
		return false
	}
	defer e.kill()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		select {
		case <-tick.C:
			if con.started() {
				return true
			}
		case <-end:
			return false
		case <-e.done:
			return con.started()
		case <-ctx.Done():
			return false
		}
	}
}
