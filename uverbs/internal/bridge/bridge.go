// Package bridge lets package sim open devices that are not this machine's. Package
// uverbs fills it in; through its exported names it would let everybody.
package bridge

import (
	"net/netip"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Open is [uverbs.Open] on another kernel: options are an *uverbs.Options, the
// device is an *uverbs.Device.
//
// [uverbs.Open]: https://pkg.go.dev/github.com/goverbs/goverbs/uverbs#Open
var Open func(k kernel.Kernel, name string, options any) (device any, err error)

// OpenAddr is [uverbs.OpenAddr] likewise.
//
// [uverbs.OpenAddr]: https://pkg.go.dev/github.com/goverbs/goverbs/uverbs#OpenAddr
var OpenAddr func(k kernel.Kernel, addr netip.Addr, options any) (device any, err error)

// Devices is [uverbs.Devices] on another kernel: the list is an []uverbs.DeviceInfo.
//
// [uverbs.Devices]: https://pkg.go.dev/github.com/goverbs/goverbs/uverbs#Devices
var Devices func(k kernel.Kernel) (list any, err error)
