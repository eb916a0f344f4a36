package uverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Options are the choices of Open. The zero value, and nil, are fine.
type Options struct {
	// Logger is told of what no call can return: an asynchronous event file
	// that broke. The library is silent without it.
	Logger Logger

	on *system // where devices are looked for, or nil for this machine
}

// Logger is the part of *slog.Logger that the library uses. It is an interface
// so that programs which do not log structured do not link log/slog and
// encoding/json.
type Logger interface {
	Error(msg string, args ...any)
}

// system is the operating system that devices are looked for on.
type system struct {
	kernel kernel.Kernel
	dial   func() (netlink, error)
}

func (o *Options) system() system {
	if o != nil && o.on != nil {
		return *o.on
	}
	return system{kernel.Host(), dialNetlink}
}

// Open opens the device of that name, such as "rxe0". Close it when done.
//
// If there is no such device the error wraps ErrUnknownDevice and names those
// that exist; without any it wraps ErrNoDevices.
func Open(name string, opts *Options) (*Device, error) {
	return opts.system().open(name, opts)
}

// OpenAddr opens the device that has the given IP address on one of its ports.
// If there is none the error wraps ErrUnknownDevice and lists the addresses
// that devices have.
func OpenAddr(addr netip.Addr, opts *Options) (*Device, error) {
	return opts.system().openAddr(addr, opts)
}

func (s system) open(name string, opts *Options) (*Device, error) {
	all, err := listDevices(s.kernel, s.dial, name)
	if err != nil {
		return nil, err
	}
	info, err := find(all, name)
	if err != nil {
		return nil, err
	}
	d, err := openDevice(s.kernel, info, opts)
	if err == nil && info.Index >= 0 {
		d.netdev.dial = s.dial
	}
	return d, err
}

func (s system) openAddr(addr netip.Addr, opts *Options) (*Device, error) {
	addr = addr.Unmap()
	all, err := listDevices(s.kernel, s.dial, "")
	if err != nil {
		return nil, err
	}
	var errs []error
	var seen []string
	for i := range all {
		info := &all[i]
		d, err := openDevice(s.kernel, info, opts)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		table, err := d.GIDTable()
		for _, e := range table {
			if a, ok := e.GID.Addr(); ok && a == addr {
				return d, nil
			} else if ok {
				seen = append(seen, fmt.Sprintf("%v on %s", a, info.Name))
			}
		}
		d.Close()
		if err != nil {
			errs = append(errs, err)
		}
	}
	have := "no device here has an address"
	if len(seen) > 0 {
		have = "the devices here have " + strings.Join(seen, ", ")
	}
	err = fmt.Errorf("goverbs: %w with address %v: %s", ErrUnknownDevice, addr, have)
	return nil, errors.Join(append([]error{err}, errs...)...)
}

// openDevice opens a device that was listed. It, and what it calls, hands large structs
// on by address: with copies in its frames, the stack of a program that begins with Open
// had to be moved to one of twice the size.
func openDevice(k kernel.Kernel, info *DeviceInfo, opts *Options) (*Device, error) {
	if info.Err != nil {
		return nil, info.Err
	}
	d := &Device{
		kernel: k, driver: uint32(info.Driver), trace: newTracer(),
		objects: make(map[uint64]closer), closed: make(chan struct{}),
	}
	d.info = *info
	if opts != nil {
		d.opts = *opts
	}
	d.left = make(chan struct{})
	// The watch begins before the file is opened: see there.
	var err error
	if d.watch, d.unwatch, err = k.Watch(info.UverbsName, d.lose); err != nil {
		return nil, info.explainOpen(err)
	}
	if d.file, err = d.info.open(k); err != nil {
		d.unwatch()
		return nil, err
	}
	d.byQPN.m = make(map[uint32]*QP)
	if os.Getenv("GOVERBS_NOWRITE") == "1" {
		d.noWrite.Store(true)
	}
	if err := d.begin(); err != nil {
		d.file.Close()
		d.unwatch()
		return nil, err
	}
	d.opened.Store(true)
	return d, nil
}

// reopen begins again with a new file: a context is what it was made as.
func (d *Device) reopen() error {
	d.file.Close()
	f, err := d.kernel.Open(d.info.Path, d.info.Rdev)
	if err != nil {
		return d.info.explainOpen(err)
	}
	d.file = f
	return explainContext(d.getContext())
}

// begin makes the file a context and learns what there is to know.
func (d *Device) begin() error {
	if err := d.findDriver(); err != nil {
		return err
	}
	if err := d.queryDevice(); err != nil {
		return err
	}
	if d.provides() {
		if err := d.provider.begin(); err != nil {
			return err
		}
	}
	if err := d.startAsync(); err != nil {
		if d.provides() {
			d.provider.end()
		}
		return err
	}
	return nil
}

// findDriver makes the context. The kernel wants the number of the driver in
// every request and has no request to ask it; where discovery could not tell,
// all are tried: a wrong one is refused and does no harm.
func (d *Device) findDriver() error {
	if d.driver != uint32(abi.RDMA_DRIVER_UNKNOWN) {
		d.provider = d.findProvider()
		return explainContext(d.getContext())
	}
	const highest = 64 // drivers are numbered from 1; the newest known has 21
	for d.driver = 1; d.driver <= highest; d.driver++ {
		d.provider = d.findProvider()
		err := d.getContext()
		if err == nil || !isErrno(err, syscall.EINVAL) {
			d.info.Driver = Driver(d.driver)
			return explainContext(err)
		}
	}
	return fmt.Errorf("goverbs: open %s: %w: no driver number up to %d is taken", d.info.Name, ErrNotSupported, highest)
}

// explainContext says what an errno of the first request means.
func explainContext(err error) error {
	var e *Error
	if errors.As(err, &e) && isErrno(err, syscall.ENOTTY, syscall.EPROTONOSUPPORT) {
		e.Hint = "the kernel is too old: goverbs needs Linux 5.10 or newer"
	}
	return err
}
