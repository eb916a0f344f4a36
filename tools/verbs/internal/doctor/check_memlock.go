package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Without a wanted size a limit is remarkable when hardly a program fits below it: 64 KiB is
// what old systems give, 8 MiB what newer ones do.
const (
	hardlyAny = 64 << 10
	notMuch   = 8 << 20
)

// checkMemlock looks at how much memory the process may register.
var checkMemlock = Check{
	Name:  "memlock",
	About: "how much memory the process may register, by limit, by memory of the machine, and by its control groups",
	After: []string{"system"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		if n.System != "linux" || len(n.devices()) == 0 && n.Memlock == 0 && n.PID == 0 {
			return nil, nil
		}
		var found []Finding
		var errs []error
		c, errStatus := n.credentials()
		soft, hard, errLimit := n.memlockLimit()
		if err := errors.Join(errStatus, errLimit); err != nil {
			errs = append(errs, err)
		} else {
			n.saw("/%s/limits: Max locked memory is %s, at most %s; /%s/status: VmPin %s, VmLck %s, CAP_IPC_LOCK %s",
				n.process(), sizeText(soft), sizeText(hard), n.process(), sizeText(c.pinned), sizeText(c.locked), yesNo(c.may(capIPCLock)))
			if f, ok := n.checkLimit(&c, soft, hard); ok {
				found = append(found, f)
			}
		}
		if n.Memlock > 0 {
			more, err := n.checkMemory()
			found, errs = append(found, more...), append(errs, err)
		}
		return found, errors.Join(errs...)
	},
}

// checkLimit compares what is wanted with RLIMIT_MEMLOCK. The kernel counts what the whole
// process has pinned (VmPin; not VmLck, which is mlock's), in whole pages, and asks for
// CAP_IPC_LOCK in the first user namespace when it is more than the soft limit.
func (n *Node) checkLimit(c *credentials, soft, hard uint64) (Finding, bool) {
	if soft == unlimited || c.may(capIPCLock) {
		return Finding{}, false
	}
	f := Finding{Seen: fmt.Sprintf("/%s/limits: Max locked memory is %s, at most %s; /%s/status: VmPin is %s, and CapEff lacks CAP_IPC_LOCK",
		n.process(), sizeText(soft), sizeText(hard), n.process(), sizeText(c.pinned))}
	if !c.initial && c.caps>>capIPCLock&1 != 0 {
		f.Seen = fmt.Sprintf("/%s/limits: Max locked memory is %s, at most %s; /%s/status: VmPin is %s; CAP_IPC_LOCK does not count in a user namespace, as /%s/uid_map shows one",
			n.process(), sizeText(soft), sizeText(hard), n.process(), sizeText(c.pinned), n.process())
	}
	left := soft - min(soft, c.pinned)
	who := "this process"
	if n.PID > 0 {
		who = fmt.Sprintf("process %d", n.PID)
	}
	need := uint64(unlimited)
	switch {
	case n.Memlock > 0 && n.Memlock > left:
		need = c.pinned + min(n.Memlock, unlimited-1-c.pinned)
		f.Severity = Fault
		f.What = fmt.Sprintf("%s may register %s more, and %s are wanted: registration will fail with ENOMEM", who, sizeText(left), sizeText(n.Memlock))
	case n.Memlock > 0:
		return Finding{}, false
	case c.pinned > soft/10*9:
		f.Severity = Warning
		f.What = fmt.Sprintf("%s has registered %s of the %s that it may", who, sizeText(c.pinned), sizeText(soft))
	case soft <= hardlyAny:
		f.Severity = Warning
		f.What = fmt.Sprintf("%s may register no more than %s, which hardly any program can do with", who, sizeText(soft))
	case soft <= notMuch:
		f.Severity = Note
		f.What = fmt.Sprintf("%s may register no more than %s; verbs doctor -memlock SIZE says whether that is enough", who, sizeText(soft))
	default:
		return Finding{}, false
	}
	f.Mend = n.mendLimit(need, hard)
	return f, true
}

// mendLimit is the command that raises the limit.
func (n *Node) mendLimit(need, hard uint64) string {
	bytes, kB := "unlimited", "unlimited"
	if need != unlimited {
		bytes, kB = strconv.FormatUint(need, 10), strconv.FormatUint((need+1023)/1024, 10)
	}
	switch kind := n.container().kind; {
	case n.PID > 0:
		return fmt.Sprintf("prlimit --pid %d --memlock=%s:%s", n.PID, bytes, bytes)
	case hard == unlimited || need != unlimited && need <= hard:
		return "ulimit -l " + kB
	case kind == "docker" || kind == "podman":
		return kind + " run --ulimit memlock=-1:-1 ..."
	case kind == "kubernetes":
		return "add to the container: securityContext: {capabilities: {add: [\"IPC_LOCK\"]}}"
	}
	return strings.Join([]string{
		"echo '* - memlock " + kB + "' >> /etc/security/limits.d/rdma.conf # and log in again",
		"systemctl edit UNIT # for a service: [Service] LimitMEMLOCK=infinity",
		"setcap cap_ipc_lock=ep PROGRAM # for one program",
	}, "\n")
}

// checkMemory compares what is wanted with the memory that there is.
func (n *Node) checkMemory() ([]Finding, error) {
	var found []Finding
	var errs []error
	s, err := n.read("proc/meminfo")
	if err == nil && meminfo(s, "MemTotal") == 0 {
		err = errors.New("/proc/meminfo: there is no MemTotal in it")
	}
	if err == nil {
		total, available := meminfo(s, "MemTotal"), meminfo(s, "MemAvailable")
		n.saw("/proc/meminfo: %s of memory, %s available", sizeText(total), sizeText(available))
		f := Finding{Seen: fmt.Sprintf("/proc/meminfo: MemTotal is %s, MemAvailable %s", sizeText(total), sizeText(available))}
		switch {
		case total > 0 && n.Memlock > total:
			f.Severity, f.What = Fault, fmt.Sprintf("%s are wanted to be registered, and the machine has %s: registered memory is never swapped out", sizeText(n.Memlock), sizeText(total))
			f.Mend = "register less, or add memory"
			found = append(found, f)
		case available > 0 && n.Memlock > available:
			f.Severity, f.What = Warning, fmt.Sprintf("%s are wanted to be registered, and %s are free: registered memory is never swapped out", sizeText(n.Memlock), sizeText(available))
			f.Mend = "ps -eo pid,rss,comm --sort=-rss | head # and end what is not needed"
			found = append(found, f)
		}
	} else {
		errs = append(errs, err)
	}
	h, err := n.hierarchy("memory")
	if err != nil {
		return found, errors.Join(append(errs, err)...)
	}
	file := "memory.max"
	if !h.unified {
		file = "memory.limit_in_bytes"
	}
	for _, dir := range h.levels {
		text, err := n.line(dir + "/" + file)
		limit, errParse := strconv.ParseUint(text, 10, 63)
		if err != nil || errParse != nil {
			continue // the root's, or max
		}
		n.saw("/%s/%s is %s", dir, file, sizeText(limit))
		if n.Memlock <= limit {
			continue
		}
		found = append(found, Finding{
			Severity: Fault,
			What:     fmt.Sprintf("%s are wanted to be registered, and the control group may have %s: the kernel will end the process", sizeText(n.Memlock), sizeText(limit)),
			Seen:     fmt.Sprintf("/%s/%s is %d", dir, file, limit),
			Mend:     n.mendMemory(dir + "/" + file),
		})
		break // those above it would say the same
	}
	return found, errors.Join(errs...)
}

func (n *Node) mendMemory(file string) string {
	switch kind := n.container().kind; kind {
	case "docker", "podman":
		return fmt.Sprintf("%s run --memory %d ...", kind, n.Memlock+n.Memlock/4)
	case "kubernetes":
		return fmt.Sprintf("raise the container's limit: resources: {limits: {memory: \"%d\"}}", n.Memlock+n.Memlock/4)
	}
	return fmt.Sprintf("echo %d > /%s", n.Memlock+n.Memlock/4, file)
}

// meminfo finds a line of /proc/meminfo, such as "MemTotal:  16384 kB", in bytes.
func meminfo(s, key string) uint64 {
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(line, key+":")
		if ok {
			return parseKB(strings.Fields(rest))
		}
	}
	return 0
}

func yesNo(b bool) string {
	if b {
		return "is there"
	}
	return "is not there"
}
