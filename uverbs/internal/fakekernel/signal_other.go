//go:build !linux

package fakekernel

// signal stands for a descriptor: a number that is nobody else's.
type signal struct{ fd int }

func newSignal(k *Kernel) (signal, error) {
	const first = 1000
	fd := first
	for k.fds[fd] != nil {
		fd++
	}
	return signal{fd}, nil
}

func (signal) raise() {}
func (signal) clear() {}
func (signal) close() {}
