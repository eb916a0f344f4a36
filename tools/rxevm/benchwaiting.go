//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/ldflags"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/waitreport"
)

// waitingBench is rxevm bench -waiting: verbs waiting on the model, natively on this machine, and
// on soft-RoCE in a guest.
type waitingBench struct {
	host   *host
	guest  guestConfig
	rounds int
	json   bool
	svg    string
}

// run measures both, prints each as soon as it is there, and draws what there is, also after a
// failure.
func (b *waitingBench) run(ctx context.Context) error {
	var all []*waitreport.Report
	var err error
	for _, measure := range []func(context.Context) (*waitreport.Report, error){b.onModel, b.inGuest} {
		var r *waitreport.Report
		if r, err = measure(ctx); r != nil {
			all = append(all, r)
			err = errors.Join(err, b.print(r))
		}
		if err != nil {
			break
		}
	}
	if b.svg == "" || len(all) == 0 {
		return err
	}
	f, ferr := os.Create(b.svg)
	if ferr != nil {
		return errors.Join(err, ferr)
	}
	return errors.Join(err, waitreport.WriteSVG(f, all...), f.Close())
}

func (b *waitingBench) print(r *waitreport.Report) error {
	if b.json {
		return r.WriteJSON(os.Stdout)
	}
	err := r.WriteText(os.Stdout)
	fmt.Println()
	return err
}

// onModel measures on the model. What was measured until ctx ended counts.
func (b *waitingBench) onModel(ctx context.Context) (*waitreport.Report, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	program, err := b.host.goBuild(ctx, root, "./tools/verbs", runtime.GOARCH, ldflags.Program)
	if err != nil {
		return nil, err
	}
	dir, err := b.host.scratch()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	verbs := filepath.Join(dir, "verbs")
	if err := os.WriteFile(verbs, program, 0o755); err != nil {
		return nil, err
	}
	b.host.note("verbs waiting on the model, on this machine: %s", plural.Of(b.rounds, "round"))
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, verbs, "waiting", "-json", "-d", "sim0", "-n", strconv.Itoa(b.rounds))
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = runChild(cmd)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err != nil {
		err = fmt.Errorf("verbs waiting: %w\n%s", err, errs.String())
	}
	return waitingResult(out.Bytes(), err)
}

// Messages take milliseconds on soft-RoCE in an emulated machine: it needs other paces than the
// model, and longer slices.
var guestWaiting = []string{"-pace", "5ms,20ms", "-slice", "1s"}

// inGuest measures in a guest.
func (b *waitingBench) inGuest(ctx context.Context) (*waitreport.Report, error) {
	v, err := b.host.boot(ctx, b.guest)
	if err != nil {
		return nil, err
	}
	b.host.note("verbs waiting in the guest: %s", plural.Of(b.rounds, "round"))
	here := waitreport.ThisMachine()
	var out, errs strings.Builder
	args := append([]string{"verbs", "waiting", "-json", "-d", "rxe0", "-n", strconv.Itoa(b.rounds)}, guestWaiting...)
	code, err := v.run(ctx, job{Args: args, Env: v.environ()}, jobIO{stdout: &out, stderr: &errs})
	if err == nil && code != 0 {
		err = exitError{exitBroken, fmt.Errorf("verbs waiting ended with status %d\n%s", code, errs.String())}
	}
	r, err := waitingResult([]byte(out.String()), err)
	if r != nil {
		// The guest does not see what else the machine does.
		r.Load = here.Load
		if r.Emulated {
			r.Processor = "QEMU TCG on " + here.Processor
		}
	}
	return r, errors.Join(err, v.close(ctx))
}

// waitingResult reads a report, which may be there beside an error.
func waitingResult(text []byte, err error) (*waitreport.Report, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, err
	}
	r := new(waitreport.Report)
	if jerr := json.Unmarshal(text, r); jerr != nil {
		return nil, errors.Join(err, fmt.Errorf("verbs waiting printed no report: %w", jerr))
	}
	return r, err
}
