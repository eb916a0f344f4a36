package uverbs

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Counters are a port's counters by name, as the kernel names them in
// /sys/class/infiniband/DEVICE/ports/N. What they count is the driver's to say;
// soft-RoCE has sent_pkts and rcvd_pkts among the hardware ones.
type Counters struct {
	// Port are the counters of the InfiniBand specification. Soft-RoCE has
	// none.
	Port map[string]uint64
	// Hardware are the driver's own.
	Hardware map[string]uint64
}

// Counters reads the counters of a port. A kind that the device does not have is
// empty. The kernel reads the device at most once in the time that the file
// "lifespan" beside the hardware counters says, usually 10 ms.
func (d *Device) Counters(port int) (Counters, error) {
	if err := d.checkPort("read counters", port); err != nil {
		return Counters{}, err
	}
	var c Counters
	for _, kind := range []struct {
		dir string
		to  *map[string]uint64
	}{{"counters", &c.Port}, {"hw_counters", &c.Hardware}} {
		dir := fmt.Sprintf("class/infiniband/%s/ports/%d/%s", d.info.Name, port, kind.dir)
		m, err := readCounters(d.kernel.Sysfs(), dir)
		if err != nil {
			return Counters{}, fmt.Errorf("goverbs: %s: read counters of port %d: %w", d.info.Name, port, err)
		}
		*kind.to = m
	}
	return c, nil
}

// readCounters reads a folder of files with a number in each. Files that hold
// none, or that the device refuses to fill, are no counters.
func readCounters(sys fs.FS, dir string) (map[string]uint64, error) {
	m := map[string]uint64{}
	names, err := sysfsNames(sys, dir)
	if err != nil {
		if _, e := fs.Stat(sys, dir); e != nil {
			return m, nil // the device has no such
		}
		return nil, err
	}
	for _, name := range names {
		if name == "lifespan" { // the cache time of the others
			continue
		}
		text, err := readSysfs(sys, dir+"/"+name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil {
			m[name] = n
		}
	}
	return m, nil
}
