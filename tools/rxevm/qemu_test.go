//go:build linux

package main

import (
	"strings"
	"testing"
)

// Nodes share the guest's memory and CPUs out, and QEMU is told the sum.
func TestNUMANodes(t *testing.T) {
	for _, tt := range []struct {
		m    machine
		want []string
	}{
		{machine{arch: "amd64", cpus: 2, memMiB: 1023, nodes: 2}, []string{
			"-smp 2,sockets=2 -m 1022 ",
			"-object memory-backend-ram,id=node0,size=511M -numa node,nodeid=0,memdev=node0,cpus=0-0 ",
			"-object memory-backend-ram,id=node1,size=511M -numa node,nodeid=1,memdev=node1,cpus=1-1 ",
		}},
		{machine{arch: "arm64", cpus: 6, memMiB: 1024, nodes: 2}, []string{"memdev=node0,cpus=0-2 ", "memdev=node1,cpus=3-5 "}},
		{machine{arch: "amd64", cpus: 2, memMiB: 1023, nodes: 1}, []string{"-smp 2,sockets=1 -m 1023 "}},
		{machine{arch: "amd64", cpus: 2, memMiB: 1023}, []string{"-smp 2,sockets=1 -m 1023 "}},
	} {
		got := strings.Join(tt.m.args(hostTool{}, "vmlinuz", "initrd", 4), " ") + " "
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: %q is not in\n%s", tt.m, want, got)
			}
		}
		if alone := tt.m.nodes <= 1; alone == strings.Contains(got, "-numa") {
			t.Errorf("%+v: %s", tt.m, got)
		}
	}
}

// A guest whose kernel has probes attached is emulated on one thread, or runs on
// real processors.
func TestOneThread(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		for _, one := range []bool{false, true} {
			args := strings.Join(machine{arch: arch, cpus: 2, memMiB: 512, oneThread: one}.args(hostTool{}, "vmlinuz", "initrd", 4), " ")
			if strings.Contains(args, "tcg,thread=single") != one || strings.Contains(args, "tcg,thread=multi") == one {
				t.Errorf("%s, one thread %v: %s", arch, one, args)
			}
			real := strings.Join(machine{arch: arch, cpus: 2, memMiB: 512, oneThread: one, kvm: true}.args(hostTool{}, "vmlinuz", "initrd", 4), " ")
			if strings.Contains(real, "tcg") {
				t.Errorf("%s with KVM: %s", arch, real)
			}
		}
	}
}

// A clock that counts instructions is of an emulated guest, on one thread.
func TestInstructionClock(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		for _, count := range []bool{false, true} {
			args := strings.Join(machine{arch: arch, cpus: 1, memMiB: 512, instructions: count}.args(hostTool{}, "vmlinuz", "initrd", 4), " ")
			if strings.Contains(args, "-icount shift=0,sleep=off") != count || strings.Contains(args, "tcg,thread=single") != count {
				t.Errorf("%s, instructions %v: %s", arch, count, args)
			}
		}
	}
	c := guestConfig{cpus: 2}
	if c.countInstructions(); !c.instructions || c.cpus != 1 {
		t.Errorf("%+v", c)
	}
}

// Only an emulated guest of x86 needs to be told which clock to take, and not to doubt its timer.
func TestMeasuringClock(t *testing.T) {
	for _, tt := range []struct {
		m    machine
		want bool
	}{
		{machine{arch: "amd64", vdsoClock: true}, true},
		{machine{arch: "amd64"}, false},
		{machine{arch: "amd64", vdsoClock: true, kvm: true}, false},
		{machine{arch: "arm64", vdsoClock: true}, false},
	} {
		if got := strings.Contains(tt.m.commandLine(), "clocksource=tsc"); got != tt.want {
			t.Errorf("%+v: %s", tt.m, tt.m.commandLine())
		}
		if got := strings.Contains(tt.m.commandLine(), noTimerCheck); got != (tt.m.arch == "amd64" && !tt.m.kvm) {
			t.Errorf("%+v: %s", tt.m, tt.m.commandLine())
		}
	}
}
