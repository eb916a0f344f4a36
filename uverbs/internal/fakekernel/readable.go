package fakekernel

// Readable says whether a poll of an event descriptor finds something to read, or
// an error.
func (k *Kernel) Readable(fd int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.fds[fd]
	return e != nil && (len(e.queue) > 0 || e.broken != nil)
}
