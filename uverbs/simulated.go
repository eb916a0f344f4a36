package uverbs

import (
	"errors"

	"github.com/goverbs/goverbs/uverbs/internal/bridge"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Package sim opens devices of a kernel of its own.
func init() {
	bridge.Within = func(k kernel.Kernel, options any) any {
		var o Options
		if given := options.(*Options); given != nil {
			o = *given
		}
		s := simulated(k)
		o.on = &s
		return &o
	}
	bridge.Devices = func(k kernel.Kernel) (any, error) {
		return discover(k, simulated(k).dial)
	}
}

// simulated is a system of which nobody but the program knows.
func simulated(k kernel.Kernel) system {
	return system{k, func() (netlink, error) { return nil, errors.New("a simulated system has none") }}
}
