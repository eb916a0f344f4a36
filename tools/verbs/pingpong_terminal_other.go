//go:build !linux

package main

import "io"

// isTerminal says that nothing is a terminal: the games are on Linux.
func isTerminal(io.Writer) bool { return false }
