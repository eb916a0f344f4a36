package uverbs

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/goverbs/goverbs/abi"
)

// ErrMalformed says that the kernel's answer, or a file in /sys, makes no
// sense.
var ErrMalformed = errors.New("malformed answer of the kernel")

func (d *Device) malformed(op, format string, args ...any) error {
	return &Error{Op: op, Device: d.info.Name, Err: fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)}
}

// hint adds the likely cause to an error of a call.
func hint(err error, text string) {
	var e *Error
	if errors.As(err, &e) {
		e.Hint = text
	}
}

// checkPort refuses port numbers that the device does not have, before a
// number is cut to the kernel's width. A device whose port count is not known
// is asked.
func (d *Device) checkPort(op string, port int) error {
	ports := d.attr.Ports
	if ports == 0 {
		ports = 1<<31 - 1
	}
	if port < 1 || port > ports {
		return invalid("%s: port %d: %s has %d, numbered from 1", op, port, d.info.Name, ports)
	}
	return nil
}

// PKey is the partition key at index of the port's table, from /sys: there is
// no other way to ask. The top bit says full membership; 0xffff is the default
// partition.
func (d *Device) PKey(port, index int) (uint16, error) {
	const op = "query P_Key"
	if err := d.checkPort(op, port); err != nil {
		return 0, err
	}
	if index < 0 || index > 0xffff {
		return 0, invalid("%s: index %d: allowed are 0 to 65535", op, index)
	}
	b, err := readSysfs(d.kernel.Sysfs(), fmt.Sprintf("class/infiniband/%s/ports/%d/pkeys/%d", d.info.Name, port, index))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, &Error{Op: op, Device: d.info.Name, Err: err, Hint: fmt.Sprintf("port %d has no index %d, or /sys is not mounted", port, index)}
	}
	var key uint64
	if err == nil {
		key, err = parseNumber(b, 16)
	}
	if err != nil {
		return 0, &Error{Op: op, Device: d.info.Name, Err: err}
	}
	return uint16(key), nil
}

// coreStruct is a struct of the older write interface.
type coreStruct interface{ Bytes() []byte }

// command runs a command of the older write interface.
func (d *Device) command(op string, number uint32, in, out coreStruct) error {
	return d.call(op, newCommand(d.driver, number, in.Bytes(), out.Bytes()))
}

// extended is the number of an extended command.
func extended(number uint32) uint32 { return number | abi.IB_USER_VERBS_CMD_FLAG_EXTENDED }
