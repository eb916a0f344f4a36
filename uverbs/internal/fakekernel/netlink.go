package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// Netlink answers the questions that discovery asks of package nldev's Conn.
type Netlink struct{ k *Kernel }

// Netlink opens RDMA netlink, or fails as SetNetlink said.
func (k *Kernel) Netlink() (*Netlink, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.noNetlink != nil {
		return nil, k.noNetlink
	}
	return &Netlink{k}, nil
}

// SetNetlink lets Netlink fail with err from now on; nil lets it work again.
func (k *Kernel) SetNetlink(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.noNetlink = err
}

// Links is as in nldev.Conn.
func (n *Netlink) Links() ([]nldev.Link, error) {
	n.k.mu.Lock()
	defer n.k.mu.Unlock()
	var links []nldev.Link
	for _, d := range n.k.devices {
		if !d.leaving() {
			links = append(links, nldev.Link{
				Index: d.index, Name: d.Name, Ports: 1, NodeGUID: d.guid, SysImageGUID: d.guid,
				NodeType: nldev.NodeCA, Protocol: "roce",
			})
		}
	}
	return links, nil
}

// Ports is as in nldev.Conn.
func (n *Netlink) Ports(index uint32) ([]nldev.Port, error) {
	d, unlock := n.device(index)
	defer unlock()
	if d == nil {
		return nil, syscall.ENODEV
	}
	p := nldev.Port{
		DeviceIndex: d.index, Device: d.Name, Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp,
		NetdevIndex: d.index + 2, Netdev: d.Netdev,
	}
	if !d.up {
		p.State, p.PhysState = nldev.PortDown, nldev.PhysDisabled
	}
	return []nldev.Port{p}, nil
}

// Chardev is as in nldev.Conn.
func (n *Netlink) Chardev(index uint32, kind string) (nldev.Chardev, error) {
	d, unlock := n.device(index)
	defer unlock()
	switch {
	case d == nil:
		return nldev.Chardev{}, syscall.ENODEV
	case d.NoUverbs || kind != "uverbs":
		return nldev.Chardev{}, syscall.ENOENT
	}
	return nldev.Chardev{Name: d.name, ABI: 2, Dev: d.rdev, DriverID: uint32(d.Driver)}, nil
}

// Close closes nothing.
func (n *Netlink) Close() error { return nil }

func (n *Netlink) device(index uint32) (d *device, unlock func()) {
	n.k.mu.Lock()
	for _, d := range n.k.devices {
		if d.index == index && !d.leaving() {
			return d, n.k.mu.Unlock
		}
	}
	return nil, n.k.mu.Unlock
}
