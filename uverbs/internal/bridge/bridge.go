// Package bridge lets package sim open devices that are not this machine's. Package
// uverbs fills it in; through its exported names it would let everybody. What stands
// here is part of every program, so it is little.
package bridge

import "github.com/goverbs/goverbs/uverbs/internal/kernel"

// Within makes options with which [uverbs.Open] and [uverbs.OpenAddr] look for devices
// on another kernel. Both are an *uverbs.Options; those that come in may be nil.
//
// [uverbs.Open]: https://pkg.go.dev/github.com/goverbs/goverbs/uverbs#Open
// [uverbs.OpenAddr]: https://pkg.go.dev/github.com/goverbs/goverbs/uverbs#OpenAddr
var Within func(k kernel.Kernel, options any) any

// Devices is [uverbs.Devices] on another kernel: the list is an []uverbs.DeviceInfo.
//
// [uverbs.Devices]: https://pkg.go.dev/github.com/goverbs/goverbs/uverbs#Devices
var Devices func(k kernel.Kernel) (list any, err error)
