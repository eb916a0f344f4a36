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

	"github.com/goverbs/goverbs/uverbs/nldev"
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

// onRDMA calls f with an RDMA netlink socket and the index of a device. The error wraps
// os.ErrNotExist when there is no such device.
func onRDMA(dev string, f func(c *nldev.Conn, index uint32) error) error {
	c, err := nldev.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Name == dev {
			return f(c, l.Index)
		}
	}
	return fmt.Errorf("RDMA device %s: %w", dev, os.ErrNotExist)
}

// addRXE makes a soft-RoCE device on an interface.
func addRXE(dev, iface string) error {
	c, err := nldev.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.NewLink(dev, "rxe", iface)
}

// removeRDMA removes an RDMA link; it blocks while a program holds the device.
func removeRDMA(dev string) error {
	return onRDMA(dev, func(c *nldev.Conn, index uint32) error { return c.DelLink(index) })
}

// resources returns how many objects of each kind the kernel has on a device.
func resources(dev string) (counts nldev.ResourceCounts, err error) {
	err = onRDMA(dev, func(c *nldev.Conn, index uint32) error {
		counts, err = c.ResourceCounts(index)
		return err
	})
	return counts, err
}

// resourceDiff lists the kinds of which there are more than before; "" when there are none.
func resourceDiff(before, after nldev.ResourceCounts) string {
	var more []string
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		if after[kind] > before[kind] {
			more = append(more, fmt.Sprintf("%s %d, was %d", kind, after[kind], before[kind]))
		}
	}
	return strings.Join(more, "; ")
}

// waitGID waits until the device's table has the GID of an address: the kernel adds it from a work
// queue.
func waitGID(dev, gid string, patience time.Duration) error {
	want := netip.MustParseAddr(gid)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		// Index 0 is the link-local address, 1 the first IPv4 one; look at a few more in case that
		// changes.
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
