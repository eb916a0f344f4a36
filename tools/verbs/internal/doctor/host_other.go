//go:build !linux

package doctor

import (
	"errors"
	"os"
)

func open(path string) error {
	return &os.PathError{Op: "open", Path: path, Err: errors.ErrUnsupported}
}

func stat(path string) (Stat, error) {
	return Stat{}, &os.PathError{Op: "stat", Path: path, Err: errors.ErrUnsupported}
}
