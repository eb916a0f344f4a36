package nldev

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// ResourceCounts counts the objects of a device by kind: "pd", "cq", "qp",
// "cm_id", "mr", "ctx", "srq". They include the kernel's own, so only
// differences mean something. Kernels add kinds.
type ResourceCounts map[string]uint64

// ResourceCounts counts the objects of the device with the given index, as
// "rdma resource" does.
func (c *Conn) ResourceCounts(index uint32) (ResourceCounts, error) {
	b, err := c.get(abi.RDMA_NLDEV_CMD_RES_GET, u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, index))
	var counts ResourceCounts
	if err == nil {
		counts, err = resourceTable.parse(b)
	}
	if err != nil {
		return nil, fmt.Errorf("nldev: count the resources of device %d: %w", index, err)
	}
	return counts, nil
}

// Counters are hardware counters by name, such as "sent_pkts". What they mean
// is the driver's.
type Counters map[string]uint64

// Counters reads the hardware counters of a port, as "rdma statistic" does.
// Drivers without counters say EINVAL or EOPNOTSUPP.
func (c *Conn) Counters(index, port uint32) (Counters, error) {
	b, err := c.get(abi.RDMA_NLDEV_CMD_STAT_GET, u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, index), u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, port))
	var counters map[string]uint64
	if err == nil {
		counters, err = counterTable.parse(b)
	}
	if err != nil {
		return nil, fmt.Errorf("nldev: read the counters of port %d of device %d: %w", port, index, err)
	}
	return counters, nil
}

// countTable has the attributes of a nested table whose entries are a name and
// a number.
type countTable struct{ table, entry, name, number uint16 }

var (
	resourceTable = countTable{
		table:  abi.RDMA_NLDEV_ATTR_RES_SUMMARY,
		entry:  abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY,
		name:   abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME,
		number: abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR,
	}
	counterTable = countTable{
		table:  abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTERS,
		entry:  abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY,
		name:   abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME,
		number: abi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE,
	}
)

func (t countTable) parse(b []byte) (map[string]uint64, error) {
	counts := make(map[string]uint64)
	err := each(b, func(v value) {
		if v.typ != t.table {
			return
		}
		v.nested(func(e value) {
			if e.typ != t.entry {
				return
			}
			var key string
			var n uint64
			var haveNumber bool
			e.nested(func(v value) {
				switch v.typ {
				case t.name:
					key = v.name(maxTextLength)
				case t.number:
					n, haveNumber = v.uint64(), true
				}
			})
			if key == "" || !haveNumber {
				e.fail("an entry with name and number")
				return
			}
			counts[key] = n
		})
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}
