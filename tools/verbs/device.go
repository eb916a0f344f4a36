package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// openDevice opens the device of a name, or else the first that can be opened. Its errors
// are those of withoutDevice.
func openDevice(name string) (*uverbs.Device, error) {
	dev, err := tryDevices(name)
	if err != nil {
		return nil, withoutDevice(err, name)
	}
	return dev, nil
}

func tryDevices(name string) (*uverbs.Device, error) {
	if name != "" {
		return uverbs.Open(name, nil)
	}
	all, err := uverbs.Devices()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, d := range all {
		dev, err := uverbs.Open(d.Name, nil)
		if err == nil {
			return dev, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// withoutDevice adds to the error of a machine without devices, or without the one that
// was named, what there is all the same. It is a *statusError, of status 2 if another name
// would help.
func withoutDevice(err error, name string) error {
	switch {
	case name == "" && errors.Is(err, uverbs.ErrNoDevices):
		return &statusError{fmt.Errorf("%w; without any device: verbs demo", err), 1}
	case errors.Is(err, uverbs.ErrNoDevices):
		return &statusError{fmt.Errorf("no device %q: %w; %s", name, err, simulatedHelp), 2}
	case errors.Is(err, uverbs.ErrUnknownDevice):
		return &statusError{fmt.Errorf("%w; %s", err, simulatedHelp), 2}
	}
	return &statusError{err, 1}
}
