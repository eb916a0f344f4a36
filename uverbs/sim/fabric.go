package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/internal/bridge"
)

// Options are the choices of [New]. The zero value, and nil, are fine.
type Options struct {
	// Devices are the devices. One without a name is called sim and its place
	// in the list, counted from 0. Without any there are two with one RoCE port
	// each, sim0 and sim1.
	Devices []model.DeviceConfig
	// Privileged has programs use what needs CAP_NET_RAW on a machine: Q_Keys
	// with the highest bit set.
	Privileged bool
}

// Fabric is a set of devices that reach one another. Its methods may be called from
// any goroutine. There is nothing to close: what holds memory are the devices that
// were opened.
type Fabric struct {
	model  *model.Model
	system *system
}

// New makes a fabric. It fails where a device's configuration is none that there is,
// where two devices have one name, address or LID, and for names that the kernel would not
// give a device. It keeps nothing of opts.
func New(opts *Options) (*Fabric, error) {
	if opts == nil {
		opts = new(Options)
	}
	configs := append([]model.DeviceConfig(nil), opts.Devices...)
	if len(configs) == 0 {
		configs = make([]model.DeviceConfig, 2)
	}
	for i := range configs {
		name := &configs[i].Name
		if *name == "" {
			*name = fmt.Sprintf("sim%d", i)
		}
		if !isName(*name) {
			return nil, fmt.Errorf("sim: device %d: the name %.80q: want 1 to %d printable characters without space and slash, and not . or ..", i, *name, maxName)
		}
	}
	m, err := model.New(configs...)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return &Fabric{m, newSystem(m, opts.Privileged)}, nil
}

// maxName is what IB_DEVICE_NAME_MAX of rdma/ib_user_verbs.h leaves for a name.
const maxName = 63

// isName says whether the kernel could have given a device that name and a file
// in /sys.
func isName(s string) bool {
	return len(s) <= maxName && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
}

var errNotMade = errors.New("sim: the Fabric was not made by New")

// Open opens the device of that name, as [uverbs.Open] does on a machine. Close it when
// done. A device may be open any number of times, each with objects and events of its own.
//
// If there is no such device the error wraps [uverbs.ErrUnknownDevice] and names those that
// exist. After [model.Device.Fail] it wraps [uverbs.ErrDeviceGone].
func (f *Fabric) Open(name string, opts *uverbs.Options) (*uverbs.Device, error) {
	if f == nil || f.model == nil {
		return nil, errNotMade
	}
	return uverbs.Open(name, f.options(opts))
}

// OpenAddr opens the device that has the IP address on one of its ports, as
// [uverbs.OpenAddr] does on a machine. The error is as of Open.
func (f *Fabric) OpenAddr(addr netip.Addr, opts *uverbs.Options) (*uverbs.Device, error) {
	if f == nil || f.model == nil {
		return nil, errNotMade
	}
	return uverbs.OpenAddr(addr, f.options(opts))
}

// options are opts for devices of the Fabric.
func (f *Fabric) options(opts *uverbs.Options) *uverbs.Options {
	return bridge.Within(f.system, opts).(*uverbs.Options)
}

// Devices lists the devices by name, as [uverbs.Devices] does on a machine, also those
// that failed and cannot be opened any more.
func (f *Fabric) Devices() ([]uverbs.DeviceInfo, error) {
	if f == nil || f.model == nil {
		return nil, errNotMade
	}
	list, err := bridge.Devices(f.system)
	if err != nil {
		return nil, err
	}
	return list.([]uverbs.DeviceInfo), nil
}

// Model is the other side of the devices, for what a test does to them: faults
// ([model.Model.Inject], [model.Model.Script]), cables, addresses and the end of a
// device ([model.Device.SetPort], [model.Device.SetGID], [model.Device.Fail]), and what
// it asks at the end, whether the program broke rules that nobody enforces
// ([model.Model.Violations]).
func (f *Fabric) Model() *model.Model { return f.model }
