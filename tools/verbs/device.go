package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// deviceError is why there is no device to work with, and the exit status of that.
type deviceError struct {
	error
	status int
}

func (e *deviceError) Unwrap() error { return e.error }

// openDevice opens the device of a name, or else the first that can be opened. Its errors
// are *deviceErrors.
func openDevice(name string) (*uverbs.Device, error) {
	dev, err := tryDevices(name)
	if err != nil {
		status, err := withoutDevice(err, name)
		return nil, &deviceError{err, status}
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
// was named, what there is all the same. The exit status is 2 if another name would help.
func withoutDevice(err error, name string) (status int, _ error) {
	switch {
	case name == "" && errors.Is(err, uverbs.ErrNoDevices):
		return 1, fmt.Errorf("%w; without any device: verbs demo", err)
	case errors.Is(err, uverbs.ErrNoDevices):
		return 2, fmt.Errorf("no device %q: %w; %s", name, err, simulatedHelp)
	case errors.Is(err, uverbs.ErrUnknownDevice):
		return 2, fmt.Errorf("%w; %s", err, simulatedHelp)
	}
	return 1, err
}
