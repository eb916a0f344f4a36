// Package usage has the error of wrong use: choices that cannot be, and what would help. The
// commands of verbs end with status 2 for it, and say where their flags are listed.
package usage

import "fmt"

// An Error is a choice that cannot be: other flags will help.
type Error struct{ text string }

// Error implements error.
func (e *Error) Error() string { return e.text }

// Errorf makes an *Error of a text, as fmt.Errorf does, without %w.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }
