package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

func (c *ioctl) getContext() error {
	if c.f.ctx != nil {
		return syscall.EINVAL
	}
	c.f.ctx = c.f.newContext()
	if err := c.setUint32(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, uint32(c.f.dev.Vectors)); err != nil {
		return err
	}
	core := uint64(abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS)
	if c.f.dev.NoOptionalAccess {
		core = 0
	}
	return c.setUint64(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, core)
}

func (c *ioctl) queryPort() error {
	if port, _ := c.Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM); port != 1 {
		return syscall.EINVAL
	}
	return c.set(abi.UVERBS_ATTR_QUERY_PORT_RESP, c.f.dev.queryPort().Bytes())
}

func (c *ioctl) queryGIDTable() error {
	if size, _ := c.Const(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE); size != abi.SizeofUverbsGIDEntry {
		return syscall.EOPNOTSUPP
	}
	if _, err := c.Flags(abi.UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0); err != nil {
		return err
	}
	room, _ := c.OutLen(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES)
	if room%abi.SizeofUverbsGIDEntry != 0 {
		return syscall.EINVAL
	}
	var table []byte
	n := uint64(0)
	for i, g := range c.f.dev.gids {
		if g != [16]byte{} {
			table = append(table, c.f.dev.gidEntry(i)...)
			n++
		}
	}
	if len(table) > room {
		return syscall.EINVAL
	}
	if err := c.set(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table); err != nil {
		return err
	}
	return c.setUint64(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, n)
}

func (c *ioctl) queryGIDEntry() error {
	if flags, err := c.Flags(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0); err != nil || flags != 0 {
		return err
	}
	port, _ := c.Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT)
	index, _ := c.Const(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)
	switch {
	case port != 1, index >= gidTableLength:
		return syscall.EINVAL
	case !c.f.dev.hasGID(index):
		return syscall.ENODATA
	}
	return c.set(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, c.f.dev.gidEntry(int(index)))
}

// hasGID tells whether there is an address at an index of the GID table.
func (d *device) hasGID(index uint64) bool {
	return index < uint64(len(d.gids)) && d.gids[index] != [16]byte{}
}

func (c *ioctl) asyncAlloc() error {
	e, err := c.newEvents(asyncFile)
	if err != nil {
		return err
	}
	c.f.ctx.asyncs = append(c.f.ctx.asyncs, e)
	return c.SetFD(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, int32(e.FD()))
}
