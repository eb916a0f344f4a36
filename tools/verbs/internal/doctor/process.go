package doctor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// credentials are those parts of /proc/PID/status that decide what a process may do.
type credentials struct {
	uid, gid uint64 // those that count for files
	groups   []uint64
	caps     uint64 // effective
	// initial tells whether the process is in the first user namespace. Where
	// it is not, the kernel does not count its capabilities for what belongs
	// to the whole machine.
	initial bool
	// pinned is the memory that devices may write to, and locked that which
	// is only not swapped out, in bytes.
	pinned, locked uint64
}

// Bits of the capabilities, from linux/capability.h.
const (
	capDACOverride = 1
	capIPCLock     = 14
)

// may tells whether a capability counts for the whole machine.
func (c *credentials) may(capability int) bool { return c.initial && c.caps>>capability&1 != 0 }

// credentials reads those of the process that is looked at.
func (n *Node) credentials() (c credentials, err error) {
	file := n.process() + "/status"
	s, err := n.read(file)
	if err != nil {
		return c, err
	}
	if c, err = parseStatus(s); err != nil {
		return c, fmt.Errorf("/%s: %w", file, err)
	}
	c.initial = true
	if m, err := n.read(n.process() + "/uid_map"); err == nil {
		// The first namespace maps every number to itself.
		f := strings.Fields(m)
		c.initial = slices.Equal(f, []string{"0", "0", "4294967295"})
	}
	return c, nil
}

// parseStatus reads /proc/PID/status.
func parseStatus(s string) (c credentials, err error) {
	var haveUID, haveGID, haveCaps bool
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		switch key {
		case "Uid", "Gid": // real, effective, saved, for files
			if len(f) != 4 {
				return c, fmt.Errorf("%s is %.40q", key, value)
			}
			id, err := strconv.ParseUint(f[3], 10, 32)
			if err != nil {
				return c, fmt.Errorf("%s is %.40q", key, value)
			}
			if key == "Uid" {
				c.uid, haveUID = id, true
			} else {
				c.gid, haveGID = id, true
			}
		case "Groups":
			for _, g := range f {
				if id, err := strconv.ParseUint(g, 10, 32); err == nil {
					c.groups = append(c.groups, id)
				}
			}
		case "CapEff":
			if len(f) == 1 {
				c.caps, err = strconv.ParseUint(f[0], 16, 64)
				haveCaps = err == nil
			}
		case "VmPin":
			c.pinned = parseKB(f)
		case "VmLck":
			c.locked = parseKB(f)
		}
	}
	if !haveUID || !haveGID || !haveCaps {
		return c, fmt.Errorf("it has no Uid, Gid and CapEff")
	}
	return c, nil
}

// parseKB reads a number of kB as the kernel prints them, and is in bytes; 0 if it is none.
func parseKB(f []string) uint64 {
	if len(f) != 2 || f[1] != "kB" {
		return 0
	}
	kB, err := strconv.ParseUint(f[0], 10, 53)
	if err != nil {
		return 0
	}
	return kB << 10
}

// unlimited is the value of a limit that does not limit.
const unlimited = math.MaxUint64

// memlockLimit reads RLIMIT_MEMLOCK, soft and hard, in bytes.
func (n *Node) memlockLimit() (soft, hard uint64, err error) {
	file := n.process() + "/limits"
	s, err := n.read(file)
	if err != nil {
		return 0, 0, err
	}
	if soft, hard, err = parseLimit(s, "Max locked memory"); err != nil {
		return 0, 0, fmt.Errorf("/%s: %w", file, err)
	}
	return soft, hard, nil
}

// parseLimit finds a line of /proc/PID/limits, such as
//
//	Max locked memory         8388608              8388608              bytes
func parseLimit(s, name string) (soft, hard uint64, err error) {
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(line, name)
		f := strings.Fields(rest)
		if !ok || len(f) < 2 {
			continue
		}
		var v [2]uint64
		for i := range v {
			if f[i] == "unlimited" {
				v[i] = unlimited
			} else if v[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
				return 0, 0, fmt.Errorf("%s is %.60q", name, rest)
			}
		}
		return v[0], v[1], nil
	}
	return 0, 0, fmt.Errorf("it has no line %q", name)
}

// sizeText is a number of bytes for people.
func sizeText(n uint64) string {
	if n == unlimited {
		return "unlimited"
	}
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f %s", v, units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
