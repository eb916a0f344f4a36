//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// linkUp gives an interface an IPv4 address and switches it on.
func linkUp(name, addr string, prefix int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	set := func(what string, req uint, fill func(*unix.Ifreq) error) error {
		ifr, err := unix.NewIfreq(name)
		if err == nil {
			err = fill(ifr)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, req, ifr)
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", what, name, err)
		}
		return nil
	}
	ip := netip.MustParseAddr(addr).As4()
	mask := ^uint32(0) << (32 - prefix)
	return errors.Join(
		set("address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }),
		set("netmask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error {
			return r.SetInet4Addr([]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)})
		}),
		set("flags", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }),
	)
}

// Numbers of RDMA netlink, from rdma/rdma_netlink.h.
const (
	nldevGet     = 5<<10 | 1
	nldevNewLink = 5<<10 | 3
	nldevDelLink = 5<<10 | 4
	nldevResGet  = 5<<10 | 9

	attrDevIndex   = 1
	attrDevName    = 2
	attrResSummary = 15
	attrResEntry   = 16
	attrResName    = 17
	attrResCurr    = 18
	attrNdevName   = 51
	attrLinkType   = 65
)

// rdmaCall sends one RDMA netlink request and returns the replies.
func rdmaCall(op netlink.HeaderType, flags netlink.HeaderFlags, attrs func(*netlink.AttributeEncoder)) ([]netlink.Message, error) {
	conn, err := netlink.Dial(unix.NETLINK_RDMA, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ae := netlink.NewAttributeEncoder()
	if attrs != nil {
		attrs(ae)
	}
	data, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	return conn.Execute(netlink.Message{Header: netlink.Header{Type: op, Flags: netlink.Request | flags}, Data: data})
}

// addRXE makes a soft-RoCE device on an interface.
func addRXE(dev, iface string) error {
	_, err := rdmaCall(nldevNewLink, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
		ae.String(attrDevName, dev)
		ae.String(attrLinkType, "rxe")
		ae.String(attrNdevName, iface)
	})
	if err != nil {
		return fmt.Errorf("add %s on %s: %w", dev, iface, err)
	}
	return nil
}

// removeRDMA removes an RDMA link; it blocks while a program holds the device. The error wraps os.ErrNotExist when there is no such device.
func removeRDMA(dev string) error {
	msgs, err := rdmaCall(nldevGet, netlink.Dump, nil)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return err
		}
		var index uint32
		var name string
		for ad.Next() {
			switch ad.Type() {
			case attrDevIndex:
				index = ad.Uint32()
			case attrDevName:
				name = ad.String()
			}
		}
		if err := ad.Err(); err != nil {
			return err
		}
		if name == dev {
			_, err := rdmaCall(nldevDelLink, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) { ae.Uint32(attrDevIndex, index) })
			return err
		}
	}
	return fmt.Errorf("RDMA device %s: %w", dev, os.ErrNotExist)
}

// resources returns how many objects of each kind (qp, cq, mr, pd, ...) the kernel has on a device.
func resources(dev string) (map[string]uint64, error) {
	msgs, err := rdmaCall(nldevResGet, netlink.Dump, nil)
	if err != nil {
		return nil, fmt.Errorf("RDMA resources: %w", err)
	}
	for _, m := range msgs {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return nil, err
		}
		var name string
		counts := map[string]uint64{}
		for ad.Next() {
			switch ad.Type() {
			case attrDevName:
				name = ad.String()
			case attrResSummary:
				ad.Nested(func(table *netlink.AttributeDecoder) error {
					for table.Next() {
						if table.Type() == attrResEntry {
							table.Nested(func(e *netlink.AttributeDecoder) error { return resourceEntry(e, counts) })
						}
					}
					return table.Err()
				})
			}
		}
		if err := ad.Err(); err != nil {
			return nil, fmt.Errorf("RDMA resources: %w", err)
		}
		if name == dev {
			return counts, nil
		}
	}
	return nil, fmt.Errorf("RDMA device %s: %w", dev, os.ErrNotExist)
}

// resourceEntry adds one line of the summary to counts.
func resourceEntry(e *netlink.AttributeDecoder, counts map[string]uint64) error {
	var kind string
	var n uint64
	for e.Next() {
		switch e.Type() {
		case attrResName:
			kind = e.String()
		case attrResCurr:
			n = e.Uint64()
		}
	}
	counts[kind] = n
	return e.Err()
}

// resourceDiff lists the kinds of which there are more than before; "" when there are none.
func resourceDiff(before, after map[string]uint64) string {
	var more []string
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		if after[kind] > before[kind] {
			more = append(more, fmt.Sprintf("%s %d, was %d", kind, after[kind], before[kind]))
		}
	}
	return strings.Join(more, "; ")
}

// waitGID waits until the device's table has the GID of an address: the kernel adds it from a work queue.
func waitGID(dev, gid string, patience time.Duration) error {
	want := netip.MustParseAddr(gid)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		// Index 0 is the link-local address, 1 the first IPv4 one; look at a few more in case that changes.
		for i := range 4 {
			b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", dev, "ports/1/gids", fmt.Sprint(i)))
			if err != nil {
				continue
			}
			if a, err := netip.ParseAddr(strings.TrimSpace(string(b))); err == nil && a == want {
				return nil
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s has no GID %s after %v", dev, gid, patience)
		}
	}
}
