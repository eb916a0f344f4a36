package uverbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	reader "github.com/goverbs/goverbs/abi/request"
)

// tracer prints every request that goes to the kernel, and what came back, with
// the names of the kernel's headers. GOVERBS_DEBUG=ioctl turns it on: the one
// case in which the library writes to standard error.
type tracer struct{ w io.Writer }

// newTracer returns nil unless the environment asks for a trace.
func newTracer() *tracer {
	for word := range strings.SplitSeq(os.Getenv("GOVERBS_DEBUG"), ",") {
		if strings.TrimSpace(word) == "ioctl" {
			return &tracer{w: os.Stderr}
		}
	}
	return nil
}

// before prints a request that is about to be made, so that one that never
// comes back is seen too.
func (t *tracer) before(r *request) {
	if err := reader.Dump(t.w, requestMemory{r}, address(r.buf)); err != nil {
		fmt.Fprintf(t.w, "goverbs: trace: %v\n", err)
	}
}

// after prints the reply.
func (t *tracer) after(r *request, err error) {
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		fmt.Fprintf(t.w, "goverbs: trace: %v\n", err)
		return
	}
	if err := reader.DumpReply(t.w, requestMemory{r}, address(r.buf), reader.Errno(errno)); err != nil {
		fmt.Fprintf(t.w, "goverbs: trace: %v\n", err)
	}
}

// requestMemory lets the reader look at a request and at what it points to, and
// at nothing else.
type requestMemory struct{ r *request }

var errNotOurs = errors.New("address outside of the request and its buffers")

// find returns the n bytes at addr if one of the request's buffers has them.
func (m requestMemory) find(addr uint64, n int) ([]byte, error) {
	for _, b := range append([][]byte{m.r.buf}, m.r.keep...) {
		if start := address(b); addr >= start && addr-start <= uint64(len(b)) && uint64(n) <= uint64(len(b))-(addr-start) {
			return b[addr-start:][:n], nil
		}
	}
	return nil, errNotOurs
}

// Read implements the reader's Memory.
func (m requestMemory) Read(addr uint64, p []byte) error {
	b, err := m.find(addr, len(p))
	copy(p, b)
	return err
}

// Write implements the reader's Memory; a trace changes nothing.
func (m requestMemory) Write(uint64, []byte) error { return errNotOurs }
