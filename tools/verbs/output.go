package main

import (
	"os"
	"sync"
)

// output is standard output. It keeps the first error: a command whose text a full disk did not
// take has failed, whether or not it looked.
type output struct {
	file *os.File
	mu   sync.Mutex
	err  error
}

// Write writes to the file.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Fd is the descriptor of the file, for who asks whether it is a terminal.
func (o *output) Fd() uintptr { return o.file.Fd() }

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
