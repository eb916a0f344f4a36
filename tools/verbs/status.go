package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// statusError is an error, and the exit status that it means.
type statusError struct {
	error
	status int
}

func (e *statusError) Unwrap() error { return e.error }

// exitStatus says what went wrong with a command, and is its exit status: 2 where other flags
// would help, the one that a statusError names, and 1 for everything else.
func exitStatus(ctx context.Context, command string, err error, stderr io.Writer) int {
	var wrong *usage.Error
	var known *statusError
	switch {
	case err == nil, errors.Is(err, errHelp):
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "verbs %s: %s\nverbs %[1]s -h lists the flags.\n", command, printable.Error(err))
		return 2
	case errors.As(err, &known):
		fmt.Fprintf(stderr, "verbs %s: %s\n", command, printable.Error(err))
		return known.status
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "verbs %s: interrupted\n", command)
		return 1
	}
	fmt.Fprintf(stderr, "verbs %s: %s\n", command, printable.Error(err))
	return 1
}
