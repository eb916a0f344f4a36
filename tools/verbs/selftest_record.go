package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/goverbs/goverbs/tools/verbs/internal/selftest"
)

// recordFile is the file of -record. What was in it stays until there is a record to put in its
// place.
type recordFile struct {
	*os.File
	made bool // it did not exist
	kept bool
}

// openRecord finds out whether a record can be written.
func openRecord(name string) (*recordFile, error) {
	_, err := os.Stat(name)
	f := &recordFile{made: errors.Is(err, fs.ErrNotExist)}
	f.File, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	return f, err
}

// keep writes the record, in the place of all that the file had.
func (f *recordFile) keep(r *selftest.Record) error {
	f.kept = true
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	return errors.Join(r.Write(f), f.Close())
}

// discard closes the file, and takes it away if it is new and got no record.
func (f *recordFile) discard() {
	f.Close()
	if f.made && !f.kept {
		os.Remove(f.Name())
	}
}
