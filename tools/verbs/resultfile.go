package main

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// resultFile is the file of a flag, which gets in the end what a command found out. Whether it
// can be written is known before anything takes its time. What was in it stays until there is
// something to put in its place. A nil one is that of a flag that was not given.
type resultFile struct {
	*os.File
	made bool // it did not exist
	kept bool
}

// openResult opens the file of a flag.
func openResult(flag, name string) (*resultFile, error) {
	if name == "" {
		return nil, nil
	}
	_, err := os.Stat(name)
	f := &resultFile{made: errors.Is(err, fs.ErrNotExist)}
	if f.File, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
		return nil, usage.Errorf("-%s: %v", flag, err)
	}
	return f, nil
}

// keep writes a result, in the place of all that the file had, and closes it.
func (f *resultFile) keep(write func(io.Writer) error) error {
	if f == nil {
		return nil
	}
	f.kept = true
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	return errors.Join(write(f), f.Close())
}

// discard closes the file, and takes it away if it is new and got nothing.
func (f *resultFile) discard() {
	if f == nil {
		return
	}
	f.Close()
	if f.made && !f.kept {
		os.Remove(f.Name())
	}
}
