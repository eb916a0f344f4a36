package uverbs

import (
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/uverbs/internal/bridge"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Package sim opens devices of a kernel of its own.
func init() {
	bridge.Open = func(k kernel.Kernel, name string, options any) (any, error) {
		return simulated(k).open(name, options.(*Options))
	}
	bridge.OpenAddr = func(k kernel.Kernel, addr netip.Addr, options any) (any, error) {
		return simulated(k).openAddr(addr, options.(*Options))
	}
	bridge.Devices = func(k kernel.Kernel) (any, error) {
		return discover(k, simulated(k).dial)
	}
}

// simulated is a system of which nobody but the program knows.
func simulated(k kernel.Kernel) system {
	return system{k, func() (netlink, error) { return nil, errors.New("a simulated system has none") }}
}
