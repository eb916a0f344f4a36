// Package nldev speaks RDMA netlink (NETLINK_RDMA, the "nldev" client): it
// lists the RDMA devices of this system, finds their character devices, makes
// and removes soft-RoCE links, lists the objects of a device, whoever owns
// them, and counts its packets. It is what iproute2's rdma command does, as Go
// functions.
//
//	c, err := nldev.Dial()
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	links, err := c.Links()
//	if err != nil {
//		return err
//	}
//	for _, l := range links {
//		fmt.Println(l.Index, l.Name, l.NodeType, l.Protocol)
//	}
//
// # Concurrency
//
// The methods of a [Conn] may be called from any goroutine; requests wait for
// each other. None takes a context: the kernel answers while it takes the
// request, so there is nothing to wait for, and what it does wait for cannot
// be interrupted (see [Conn.DelLink]).
//
// # Errors
//
// Errors say which question was asked of which device and wrap the errno of
// the kernel, so that errors.Is(err, fs.ErrPermission) and
// errors.Is(err, syscall.ENODEV) work. [ErrNoRDMA] says that there is no RDMA
// subsystem to talk to, [ErrMalformed] that an answer made no sense. On other
// systems than Linux, Dial's error wraps [errors.ErrUnsupported].
//
// # Byte order
//
// Everything is in host byte order. A GUID is the number whose big-endian
// bytes are the GUID.
package nldev
