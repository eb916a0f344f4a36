package planted

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tools/verbs/internal/doctor"
	"github.com/goverbs/goverbs/uverbs"
)

// here is the control group of the fault that is planted.
var here *group

func inGroup(cmd *exec.Cmd) { here.in(cmd) }

// confine makes the group that a fault needs, which goes at the end of its test, and returns
// what lifts its limits.
func confine(controller string, spoilt, lifted []string) func(t *testing.T) func(t *testing.T) {
	return func(t *testing.T) func(t *testing.T) {
		here = newGroup(t, controller, spoilt...)
		t.Cleanup(func() { here.remove(t) })
		return func(t *testing.T) { here.set(t, lifted...) }
	}
}

// aside is where a device's file is while it is not in its place.
const aside = "/dev/uverbs0.aside"

// withoutFile moves the device's file away, puts another there, perhaps, and brings it back.
func withoutFile(instead func(t *testing.T)) func(t *testing.T) func(t *testing.T) {
	return func(t *testing.T) func(t *testing.T) {
		must(t, os.Rename(file, aside))
		instead(t)
		return func(t *testing.T) { must(t, os.Rename(aside, file)) } // over the other
	}
}

// faults are planted in this order.
var faults = []fault{
	{
		name: "no device file", plant: withoutFile(func(*testing.T) {}),
		check: "files", severity: doctor.Fault, object: device, words: []string{file, "does not exist", "mknod -m 0666 " + file + " c 231 192"},
	}, {
		name: "the device file is another's", plant: withoutFile(func(t *testing.T) {
			must(t, unix.Mknod(file, unix.S_IFCHR|0o666, int(unix.Mkdev(231, 200))))
		}),
		check: "files", severity: doctor.Fault, object: device, words: []string{"that of another device", "231:200", "231:192"},
	}, {
		name: "the device file is none", plant: withoutFile(func(t *testing.T) { must(t, os.WriteFile(file, nil, 0o666)) }),
		check: "files", severity: doctor.Fault, object: device, words: []string{"none of a device", file},
	}, {
		name: "no permission", as: asNobody, args: []string{"-memlock", "4M"}, plant: func(t *testing.T) func(t *testing.T) {
			must(t, os.Chmod(file, 0o600))
			return func(t *testing.T) { must(t, os.Chmod(file, 0o666)) }
		},
		check: "files", severity: doctor.Fault, object: device, words: []string{"may not open", "0600", "65534", "chmod 0666 " + file},
	}, {
		name: "the control group denies the device", as: inGroup, plant: denyDevice,
		check: "files", severity: doctor.Fault, object: device, words: []string{"control group", "operation not permitted"},
	}, {
		name: "little memory may be locked", as: asNobody, args: []string{"-memlock", "64M"}, plant: func(t *testing.T) func(t *testing.T) {
			little := unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}
			var before unix.Rlimit
			must(t, unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &little, &before))
			enough := unix.Rlimit{Cur: 1 << 30, Max: 1 << 30}
			t.Cleanup(func() { must(t, unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &before, nil)) })
			return func(t *testing.T) { must(t, unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &enough, nil)) }
		},
		check: "memlock", severity: doctor.Fault, words: []string{"ENOMEM", "64 KiB", "64 MiB"},
	}, {
		name: "half a processor for a poller", as: inGroup, args: []string{"-pollers", "1"},
		plant: confine("cpu", []string{"cpu.max", "50000 100000"}, []string{"cpu.max", "max 100000"}),
		check: "cpu", severity: doctor.Warning, words: []string{"0.5 processors", groups + "/planted/cpu.max"},
	}, {
		name: "one processor for a poller and the rest", as: inGroup, args: []string{"-pollers", "1"},
		plant: confine("cpuset", []string{"cpuset.cpus", "1"}, []string{"cpuset.cpus", "0-1"}),
		check: "cpu", severity: doctor.Fault, words: []string{"1 processor for 1 goroutine", "Cpus_allowed_list", "is 1"},
	}, {
		name: "the control group may open no more devices", as: inGroup, plant: func(t *testing.T) func(t *testing.T) {
			lift := confine("rdma", []string{"rdma.max", device + " hca_handle=1"}, []string{"rdma.max", device + " hca_handle=max"})(t)
			end := hold(t, 1, inGroup)
			return func(t *testing.T) { end(); lift(t) }
		},
		check: "rdmacgroup", severity: doctor.Fault, object: device, words: []string{"has 1 of the 1 contexts", groups + "/planted/rdma.max"},
	}, {
		name: "no address", plant: func(t *testing.T) func(t *testing.T) {
			setAddress(t, unspecified)
			await(t, "the GID is to go", func() error {
				if hasGID() {
					return errors.New("it is still there")
				}
				return nil
			})
			return func(t *testing.T) { setAddress(t, address); awaitActive(t) }
		},
		check: "gids", severity: doctor.Warning, object: device + "/1", words: []string{"link-local", netdev},
	}, {
		name: "the network device is down", plant: func(t *testing.T) func(t *testing.T) {
			setUp(t, false)
			await(t, "the port is to go down", func() error {
				if s := portState(); s == "4: ACTIVE" {
					return errors.New(s)
				}
				return nil
			})
			return func(t *testing.T) { setUp(t, true); awaitActive(t) }
		},
		check: "ports", severity: doctor.Fault, object: device + "/1", words: []string{netdev, "ip link set " + netdev + " up"},
	}, {
		name: "a small MTU", plant: func(t *testing.T) func(t *testing.T) {
			setMTU(t, 600)
			return func(t *testing.T) { setMTU(t, 1500); awaitActive(t) }
		},
		check: "mtu", severity: doctor.Warning, object: device + "/1", words: []string{"512 bytes only", "600"},
	}, {
		name: "the network device is in another namespace", as: inNamespace, plant: func(t *testing.T) func(t *testing.T) {
			away = true
			return func(*testing.T) { away = false }
		},
		check: "namespace", severity: doctor.Fault, object: device + "/1", words: []string{netdev, "another network namespace", "shared"},
	}, {
		name: "the device is in another namespace", as: inNamespace, plant: func(t *testing.T) func(t *testing.T) {
			setShared(t, false)
			t.Cleanup(func() { setShared(t, true) })
			away = true
			return func(*testing.T) { away = false }
		},
		check: "namespace", severity: doctor.Fault, object: device, words: []string{"another network namespace", "exclusive"},
	}, {
		name: "requests are given up", plant: func(t *testing.T) func(t *testing.T) {
			giveUp(t)
			// The counters begin again with the device.
			return func(t *testing.T) { removeDevice(t); addDevice(t) }
		},
		check: "counters", severity: doctor.Note, object: device + "/1", words: []string{"requests were given up", "retry_exceeded_err is 1"},
	}, {
		name: "the kernel's types are hidden", plant: func(t *testing.T) func(t *testing.T) {
			const dir = "/sys/kernel/btf"
			must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
			return func(t *testing.T) { must(t, unix.Unmount(dir, 0)) }
		},
		check: "abi", severity: doctor.Note, words: []string{"/sys/kernel/btf"},
	}, {
		name: "no device", plant: func(t *testing.T) func(t *testing.T) {
			removeDevice(t)
			return addDevice
		},
		check: "devices", severity: doctor.Fault, words: []string{"no RDMA device", "rdma link add rxe0 type rxe netdev " + netdev},
	}, {
		name: "the driver is not loaded", plant: func(t *testing.T) func(t *testing.T) {
			removeDevice(t)
			unloadModule(t, "rdma_rxe")
			return func(t *testing.T) { loadModule(t, "rdma_rxe"); addDevice(t) }
		},
		check: "devices", severity: doctor.Fault, words: []string{"no RDMA device", "modprobe rdma_rxe"},
	}, {
		name: "nothing of RDMA is loaded", plant: func(t *testing.T) func(t *testing.T) {
			removeDevice(t)
			stack := []string{"ib_core", "ib_uverbs", "rdma_rxe", "ib_cm", "iw_cm", "rdma_cm", "rdma_ucm"}
			for i := range stack {
				unloadModule(t, stack[len(stack)-1-i])
			}
			return func(t *testing.T) {
				for _, m := range stack {
					loadModule(t, m)
				}
				addDevice(t)
			}
		},
		check: "devices", severity: doctor.Fault, words: []string{"ib_core is not loaded", "modprobe"},
	},
}

// away tells inNamespace to do so.
var away bool

// inNamespace runs a program in another network namespace while the fault is there.
func inNamespace(cmd *exec.Cmd) {
	if away {
		elsewhere(cmd)
	}
}

// denyDevice lets a control group use all devices but those of verbs.
func denyDevice(t *testing.T) func(t *testing.T) {
	here = newGroup(t, "")
	t.Cleanup(func() { here.remove(t) })
	// struct bpf_cgroup_dev_ctx of linux/bpf.h: access_type, major, minor.
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, License: "BSD",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 4, asm.Word),
			asm.Mov.Imm(asm.R0, 1),
			asm.JNE.Imm(asm.R2, 231, "out"),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return().WithSymbol("out"),
		},
	})
	must(t, err)
	fd := int(here.f.Fd())
	must(t, link.RawAttachProgram(link.RawAttachProgramOptions{Target: fd, Program: program, Attach: ebpf.AttachCGroupDevice}))
	return func(t *testing.T) {
		must(t, link.RawDetachProgram(link.RawDetachProgramOptions{Target: fd, Program: program, Attach: ebpf.AttachCGroupDevice}))
		must(t, program.Close())
	}
}

// giveUp sends to a queue pair that there is not.
func giveUp(t *testing.T) {
	t.Helper()
	d, err := uverbs.Open(device, nil)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	pd, err := d.NewPD()
	must(t, err)
	mem, err := uverbs.Alloc(4096, nil)
	must(t, err)
	defer mem.Close()
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite)
	must(t, err)
	q, err := d.NewCQ(16, nil)
	must(t, err)
	qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: 4, RecvDepth: 4})
	must(t, err)
	peer := qp.Endpoint()
	peer.QPN = 0xabcde
	must(t, qp.Connect(t.Context(), peer, &uverbs.ConnectOptions{AckTimeout: 16 * time.Millisecond, Retries: 2}))
	qp.SendQueue().Send(1, mr.Span(0, 8))
	must(t, qp.SendQueue().Flush())
	await(t, "the request is to fail", func() error {
		var wcs [4]uverbs.WC
		n, err := q.Poll(wcs[:])
		must(t, err)
		if n == 0 {
			return errors.New("no completion")
		}
		if wcs[0].Status != uverbs.StatusRetryExceeded {
			return fmt.Errorf("completion %v", wcs[0].Status)
		}
		return nil
	})
}
