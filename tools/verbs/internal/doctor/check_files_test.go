package doctor

import (
	"io/fs"
	"syscall"
	"testing"
)

// mode changes the permissions and the owner of the device's file.
func (m *machine) mode(perm fs.FileMode, uid, gid uint32) {
	s := m.dev["/dev/infiniband/uverbs0"]
	s.Mode, s.UID, s.GID = fs.ModeDevice|fs.ModeCharDevice|perm, uid, gid
	m.dev["/dev/infiniband/uverbs0"] = s
	m.openErr["/dev/infiniband/uverbs0"] = syscall.EACCES
	delete(m.answers, "mlx5_0")
}

// noFile takes the device's file away.
func (m *machine) noFile() {
	delete(m.dev, "/dev/infiniband/uverbs0")
	delete(m.answers, "mlx5_0")
}

// refuse makes opening the device's file fail.
func (m *machine) refuse(err error) {
	m.openErr["/dev/infiniband/uverbs0"] = err
	delete(m.answers, "mlx5_0")
}

func fileFinding(what, seen, mend string) []Finding {
	return []Finding{{Check: "files", Severity: Fault, Object: "mlx5_0", What: what, Seen: seen, Mend: mend}}
}

func TestFileFindings(t *testing.T) {
	const missing = "stat(/dev/infiniband/uverbs0): no such file or directory, and the kernel has it as device 231:192"
	const notPassed = "its file was not passed into this container, which sees the device all the same"
	const denied = "the control group of this process may not use the device, whatever the file's permissions are"
	const notPermitted = "open(/dev/infiniband/uverbs0, O_RDWR): operation not permitted"
	const mknod = "mkdir -p /dev/infiniband && mknod -m 0666 /dev/infiniband/uverbs0 c 231 192"
	findAll(t, []findingCase{
		{"no file, no udev", healthyRoCE, (*machine).noFile, nil, fileFinding("its file does not exist: nobody has made it, as udev does", missing, mknod)},
		{"no file, udev", healthyRoCE, func(m *machine) { m.noFile(); m.put("run/udev/control", "") }, nil,
			fileFinding("its file does not exist: nobody has made it, as udev does", missing, "udevadm trigger --action=add --subsystem-match=infiniband_verbs")},
		{"renamed by udev", healthyRoCE, func(m *machine) {
			m.dev["/dev/char/231:192"] = m.dev["/dev/infiniband/uverbs0"]
			delete(m.dev, "/dev/infiniband/uverbs0")
		}, nil, nil},
		{"not in docker", healthyRoCE, func(m *machine) { m.noFile(); m.put(".dockerenv", "") }, nil,
			fileFinding(notPassed, missing+"; /.dockerenv exists", "docker run --device /dev/infiniband/uverbs0 ... # or --device-cgroup-rule 'c 231:* rmw' where the file is mounted by other means")},
		{"not in podman", healthyRoCE, func(m *machine) { m.noFile(); m.put("run/.containerenv", "") }, nil,
			fileFinding(notPassed, missing+"; /run/.containerenv exists", "podman run --device /dev/infiniband/uverbs0 ...")},
		{"not in kubernetes", healthyRoCE, func(m *machine) { m.noFile(); m.put("proc/self/cgroup", "0::/kubepods/pod7/9f\n") }, nil,
			fileFinding(notPassed, missing+"; /proc/self/cgroup has kubepods", passDevice("kubernetes", &Device{}))},
		{"not in lxc", healthyRoCE, func(m *machine) { m.noFile(); m.put("run/systemd/container", "lxc\n") }, nil,
			fileFinding(notPassed, missing+"; /run/systemd/container exists", "lxc config device add CONTAINER uverbs0 unix-char path=/dev/infiniband/uverbs0")},
		{"not in some other", healthyRoCE, func(m *machine) {
			m.noFile()
			m.put("proc/self/mountinfo", "24 30 0:22 / /sys ro - sysfs sysfs ro\n26 24 0:23 / /sys/fs/cgroup ro - cgroup2 cgroup2 ro\n30 1 0:44 / / rw - overlay overlay rw\n")
		}, nil, fileFinding(notPassed, missing+"; / is an overlay", passDevice("docker", &Device{Uverbs: "uverbs0", Rdev: 231<<8 | 192}))},
		{"another device's number", healthyRoCE, func(m *machine) {
			m.dev["/dev/infiniband/uverbs0"] = Stat{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, Rdev: 231<<8 | 193}
			delete(m.answers, "mlx5_0")
		}, nil, fileFinding("its file is that of another device", "stat(/dev/infiniband/uverbs0): device 231:193, and the kernel has uverbs0 as 231:192", "rm /dev/infiniband/uverbs0\n"+mknod)},
		{"made anew under a container", healthyRoCE, func(m *machine) {
			m.dev["/dev/infiniband/uverbs0"] = Stat{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, Rdev: 231<<8 | 193}
			m.put(".dockerenv", "")
			delete(m.answers, "mlx5_0")
		}, nil, fileFinding("its file is that of another device", "stat(/dev/infiniband/uverbs0): device 231:193, and the kernel has uverbs0 as 231:192",
			"restart the container: the device was made anew after the container had begun\n"+passDevice("docker", &Device{Uverbs: "uverbs0", Rdev: 231<<8 | 192}))},
		{"a folder instead", healthyRoCE, func(m *machine) {
			m.dev["/dev/infiniband/uverbs0"] = Stat{Mode: fs.ModeDir | 0o755}
			delete(m.answers, "mlx5_0")
		}, nil, fileFinding("its file is none of a device", "stat(/dev/infiniband/uverbs0): drwxr-xr-x", "rmdir /dev/infiniband/uverbs0\n"+mknod)},
		{"for root only", healthyRoCE, func(m *machine) { m.mode(0o600, 0, 0) }, nil,
			fileFinding("this user may not open its file", "open(/dev/infiniband/uverbs0, O_RDWR): permission denied; mode 0600, owner 0:0; this process is user 1000, group 1000",
				"chmod 0666 /dev/infiniband/uverbs0 # udev's rules of rdma-core give that mode for good")},
		{"for a group", healthyRoCE, func(m *machine) {
			m.mode(0o660, 0, 113)
			m.put("etc/group", "root:x:0:\nrdma:x:113:\n", "etc/passwd", "root:x:0:0::/:/bin/sh\nann:x:1000:1000:,,,:/home/ann:/bin/sh\n")
		}, nil, fileFinding("this user is not in the group that may open its file",
			"open(/dev/infiniband/uverbs0, O_RDWR): permission denied; mode 0660, owner 0:113; this process is user 1000, group 1000",
			"usermod -aG rdma ann # and log in again")},
		{"for a group without name", healthyRoCE, func(m *machine) { m.mode(0o660, 0, 113) }, nil, fileFinding("this user may not open its file",
			"open(/dev/infiniband/uverbs0, O_RDWR): permission denied; mode 0660, owner 0:113; this process is user 1000, group 1000",
			"chmod 0666 /dev/infiniband/uverbs0 # udev's rules of rdma-core give that mode for good")},
		{"nodev", healthyRoCE, func(m *machine) {
			m.mode(0o666, 0, 0)
			m.put("proc/self/mountinfo", "26 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 30 0:5 / /dev rw,nosuid,nodev - tmpfs tmpfs rw\n30 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
		}, nil, fileFinding("its file lies where device files do not count",
			"open(/dev/infiniband/uverbs0, O_RDWR): permission denied; mode 0666, owner 0:0; this process is user 1000, group 1000; /dev is mounted nodev", "mount -o remount,dev /dev")},
		{"SELinux", healthyRoCE, func(m *machine) { m.mode(0o660, 0, 1000) }, nil,
			fileFinding("a security module (SELinux, AppArmor) forbids this process to open its file, whose permissions allow it",
				"open(/dev/infiniband/uverbs0, O_RDWR): permission denied; mode 0660, owner 0:1000; this process is user 1000, group 1000",
				"ausearch -m avc -ts recent # or: dmesg | grep -i apparmor; it names the rule")},
		{"control group of a container", healthyRoCE, func(m *machine) { m.refuse(syscall.EPERM); m.put(".dockerenv", "") }, nil,
			fileFinding(denied, notPermitted, passDevice("docker", &Device{Uverbs: "uverbs0", Rdev: 231<<8 | 192}))},
		{"control group, version 1", healthyRoCE, func(m *machine) {
			m.refuse(syscall.EPERM)
			m.put("proc/self/cgroup", "5:devices:/job\n0::/user.slice/session-2.scope\n",
				"proc/self/mountinfo", "26 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n27 24 0:24 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n",
				"sys/fs/cgroup/devices/job/devices.list", "c 1:3 rwm\n")
		}, nil, fileFinding(denied, notPermitted, "echo 'c 231:192 rwm' > /sys/fs/cgroup/devices/job/devices.allow")},
		{"control group, version 1, that allows the rest", healthyRoCE, func(m *machine) {
			m.refuse(syscall.EPERM)
			m.put("proc/self/cgroup", "5:devices:/job\n0::/user.slice/session-2.scope\n",
				"proc/self/mountinfo", "26 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n27 24 0:24 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n",
				"sys/fs/cgroup/devices/job/devices.list", "a *:* rwm\n")
		}, nil, fileFinding(denied, notPermitted, "echo 'c 231:192 rwm' > /sys/fs/cgroup/devices/job/devices.allow\necho 'c 231:* rwm' > /sys/fs/cgroup/devices/job/devices.allow")},
		{"control group, version 2", healthyRoCE, func(m *machine) { m.refuse(syscall.EPERM) }, nil,
			fileFinding(denied, notPermitted, "systemctl set-property UNIT 'DeviceAllow=/dev/infiniband/uverbs0 rw' # and start UNIT again")},
		{"left behind", healthyRoCE, func(m *machine) { m.refuse(syscall.ENXIO) }, nil,
			fileFinding("there is no device behind its file, which is left from an earlier one", "open(/dev/infiniband/uverbs0, O_RDWR): no such device or address", mknod)},
		{"being removed", healthyRoCE, func(m *machine) { m.refuse(syscall.EIO) }, nil,
			fileFinding("it is being removed, or has failed", "open(/dev/infiniband/uverbs0, O_RDWR): input/output error", "dmesg | tail -50 # says which")},
		{"too many open files", healthyRoCE, func(m *machine) { m.refuse(syscall.EMFILE) }, nil,
			fileFinding("this process, or the machine, may open no more files", "open(/dev/infiniband/uverbs0, O_RDWR): too many open files", "ulimit -n 65536")},
		{"something else", healthyRoCE, func(m *machine) { m.refuse(syscall.ENOMEM) }, nil,
			fileFinding("its file does not open", "open(/dev/infiniband/uverbs0, O_RDWR): cannot allocate memory", "strace -e openat verbs devinfo -d mlx5_0")},
		{"no file of this device", healthyRoCE, func(m *machine) {
			m.chardevErr = syscall.EOPNOTSUPP
			m.remove(classFiles + "/uverbs0")
			delete(m.answers, "mlx5_0")
		}, nil, fileFinding("it has no verbs file, so that no program can use it",
			"RDMA netlink, GET_CHARDEV: nldev: find the uverbs file of device 0: operation not supported; /sys/class/infiniband_verbs has no file of it", "modprobe ib_uverbs")},
		{"another process", healthyRoCE, func(m *machine) {
			s := m.dev["/dev/infiniband/uverbs0"]
			s.Mode = fs.ModeDevice | fs.ModeCharDevice | 0o660
			s.GID = 113
			m.dev["/dev/infiniband/uverbs0"] = s
			m.process("2000", "0")
		}, func(n *Node) { n.PID = 17 }, fileFinding("process 17 may not open its file",
			"stat(/dev/infiniband/uverbs0): mode 0660, owner 0:113; /proc/17/status: user 2000, group 2000", "chmod 0666 /dev/infiniband/uverbs0 # udev's rules of rdma-core give that mode for good")},
		{"another process of root", healthyRoCE, func(m *machine) {
			m.dev["/dev/infiniband/uverbs0"] = Stat{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Rdev: 231<<8 | 192}
			m.process("0", "1ffffffffff")
		}, func(n *Node) { n.PID = 17 }, nil},
	})
}

// process puts another process, 17, whose user and group have one number.
func (m *machine) process(id, caps string) {
	for _, name := range []string{"status", "limits", "cgroup", "mountinfo"} {
		m.files["proc/17/"+name] = m.files["proc/self/"+name]
	}
	m.put("proc/17/status", "Uid:\t"+id+"\t"+id+"\t"+id+"\t"+id+"\nGid:\t"+id+"\t"+id+"\t"+id+"\t"+id+"\nGroups:\t\nVmPin:\t0 kB\nCapEff:\t"+caps+"\nCpus_allowed_list:\t0-15\n",
		"proc/17/uid_map", "         0          0 4294967295\n")
}
