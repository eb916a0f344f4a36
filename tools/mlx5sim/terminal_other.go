//go:build !linux

package main

import "os"

// fromTerminal is for systems on which programs run.
func fromTerminal(os.Signal) bool { return false }
