//go:build !linux || !(amd64 || arm64)

package simproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/mlx5/model"
)

var errSystem = fmt.Errorf("simproc: programs are served on Linux 5.19 or later, on amd64 and arm64, and this is %s on %s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)

// Server serves the devices of a model to programs.
type Server struct{}

// Serve fails on this system.
func Serve(*model.Model, *Options) (*Server, error) { return nil, errSystem }

// Close does nothing on this system.
func (*Server) Close() error { return nil }

// Stats is zero on this system.
func (*Server) Stats() Stats { return Stats{} }

// Rest does nothing on this system.
func (*Server) Rest(bool) {}

// Command makes a program that this system cannot start.
func (*Server) Command(name string, args ...string) *Cmd {
	return &Cmd{Args: append([]string{name}, args...)}
}

// Cmd is a program.
type Cmd struct {
	// Args are the program and its arguments, Env its environment and Dir its folder.
	Args []string
	Env  []string
	Dir  string
	// Stdin, Stdout and Stderr are its files.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Start fails on this system.
func (*Cmd) Start() error { return errSystem }

// Wait fails on this system.
func (*Cmd) Wait() error { return errSystem }

// Run fails on this system.
func (*Cmd) Run() error { return errSystem }

// Signal fails on this system.
func (*Cmd) Signal(os.Signal) error { return errSystem }

// Kill does nothing on this system.
func (*Cmd) Kill() {}

// Listening is false on this system.
func (*Cmd) Listening() bool { return false }
