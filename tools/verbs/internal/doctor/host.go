package doctor

import (
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/internal/uname"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// Host is the machine that the program runs on, and its own process.
func Host() *Node {
	n := &Node{
		Root: os.DirFS("/"), System: runtime.GOOS, Open: open, Stat: stat, Interfaces: interfaces, Query: query,
		Vectors: poll.ReadVectors, Coalescing: coalescing,
		Netlink: func() (Netlink, error) {
			c, err := nldev.Dial()
			if err != nil {
				return nil, err // not a nil *Conn in an interface
			}
			return c, nil
		},
	}
	n.Release, n.Machine = uname.Read()
	return n
}

// interfaces lists the network devices.
func interfaces() ([]Interface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	all := make([]Interface, 0, len(list))
	for _, i := range list {
		one := Interface{Name: i.Name, Index: i.Index, MTU: i.MTU, Up: i.Flags&net.FlagUp != 0, Running: i.Flags&net.FlagRunning != 0}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			p, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			addr, _ := netip.AddrFromSlice(p.IP)
			bits, _ := p.Mask.Size()
			if prefix, err := addr.Unmap().Prefix(bits); err == nil {
				one.Addrs = append(one.Addrs, netip.PrefixFrom(addr.Unmap(), prefix.Bits()))
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// query opens a device, asks it, and closes it.
func query(name string) (a *Answers, err error) {
	d, err := uverbs.Open(name, nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := d.Close(); err == nil && cerr != nil {
			a, err = nil, cerr
		}
	}()
	a = &Answers{Attr: d.Attr(), Vectors: d.CompletionVectors()}
	if a.GIDs, err = d.GIDTable(); err != nil {
		return nil, err
	}
	for port := 1; port <= a.Attr.Ports; port++ {
		p, err := d.PortAttr(port)
		if err != nil {
			return nil, err
		}
		a.Ports = append(a.Ports, p)
	}
	return a, nil
}
