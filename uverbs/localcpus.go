package uverbs

import "strings"

// LocalCPUs returns the numbers of the processors that are on the device's NUMA node, as
// the system lists them, those included that the process may not use. For a soft device
// they are those of the network device below. It returns none where the system does not
// say which node it is.
func (d *Device) LocalCPUs() []int {
	_, dir := d.located()
	if dir == "" {
		return nil
	}
	cpus, err := sysfsValue(d.kernel.Sysfs(), dir+"local_cpulist", parseCPUList)
	if err != nil {
		return nil
	}
	return cpus
}

// LocalCPUs are those of the queue's device. By them a poll.Group knows where to poll.
func (q *CQ) LocalCPUs() []int { return q.dev.LocalCPUs() }

// maxCPUs is more than any kernel can be configured for.
const maxCPUs = 8192

// parseCPUList is parseNodeList for processors, of which there may be more. (One function
// for both would be larger in programs that need only the other.)
func parseCPUList(s string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, errFirst := parseDecimal(from, 16)
		last, errLast := parseDecimal(to, 16)
		if errFirst != nil || errLast != nil || first > last || last >= maxCPUs || len(all) > maxCPUs {
			return nil, malformedText(s, "a list of processors")
		}
		for n := first; n <= last; n++ {
			all = append(all, int(n))
		}
	}
	return all, nil
}
