//go:build amd64 || arm64

package simproc_test

import (
	"io"
	"os"
	"testing"
	"time"
)

// A server at rest does not look, and looks again when it is told to.
func TestRest(t *testing.T) {
	_, s := serve(t, true)
	c := program(s, "hold")
	in, inw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, outw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin, c.Stdout, c.Stderr = in, outw, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	outw.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil { // it says that it has the device open
		t.Fatal(err)
	}
	for range 2 {
		s.Rest(true)
		// The look that is under way may end. Between two others there are 5 ms at most.
		until(t, "no looks", func() bool {
			before := s.Stats().Looks
			time.Sleep(50 * time.Millisecond)
			return s.Stats().Looks == before
		})
		before := s.Stats().Looks
		s.Rest(false)
		until(t, "looks again", func() bool { return s.Stats().Looks > before+2 })
	}
	s.Rest(true) // it ends all the same
	inw.Close()
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	out.Close()
}
