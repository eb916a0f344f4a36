//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// A part is what one of two programs that talk to one another did.
type part struct {
	stdout, stderr bytes.Buffer
	exit           exitReport
}

// duet runs a server and its client to their end: first the server, and the client when the server
// listens. An error says which of them failed; the parts, the server's first, are there all the same.
func (v *vm) duet(ctx context.Context, server, client job, timeout time.Duration) (parts [2]*part, err error) {
	limit, cancel := withDeadline(ctx, timeout)
	defer cancel()
	var jobs [2]started
	for i, j := range []job{server, client} {
		p := new(part)
		parts[i] = p
		if jobs[i], err = v.start(j, jobIO{stdout: &p.stdout, stderr: &p.stderr}); err != nil {
			return [2]*part{new(part), new(part)}, err // the server may still write to its own
		}
	}
	var errs [2]error
	if parts[1].exit, errs[1] = jobs[1].waitReport(limit); errs[1] != nil || parts[1].exit.Code != 0 {
		jobs[0].kill() // It would wait for ever.
	}
	parts[0].exit, errs[0] = jobs[0].waitReport(limit)
	if limit.Err() != nil && ctx.Err() == nil {
		// Only the programs' own time is over: end them, so that the guest can go on with the next.
		for _, i := range []int{1, 0} {
			if errs[i] == nil {
				continue // it has ended before
			}
			jobs[i].kill()
			if _, err := jobs[i].wait(ctx); err != nil && ctx.Err() != nil {
				return parts, err
			}
		}
		errs[0], errs[1] = nil, fmt.Errorf("did not end within %v", timeout)
	}
	for i, who := range []string{"server", "client"} {
		switch {
		case errs[i] != nil:
			errs[i] = fmt.Errorf("%s: %w", who, errs[i])
		case parts[i].exit.Code != 0:
			errs[i] = fmt.Errorf("%s ended with status %d", who, parts[i].exit.Code)
		}
	}
	return parts, errors.Join(errs[1], errs[0])
}
