//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// A hostJob is a job in progress, seen from the host.
type hostJob struct {
	stdout, stderr io.Writer
	file           func(fileHeader) (io.WriteCloser, error)
	open           io.WriteCloser
	err            error // the first thing that went wrong on the host's side
	exit           chan exitReport
}

// killPatience is how long a killed job may take to go.
const killPatience = 5 * time.Second

// frame handles one frame. An error means that the guest does not keep the protocol.
func (v *vm) frame(f frame) error {
	v.mu.Lock()
	j := v.jobs[f.job]
	v.mu.Unlock()
	switch f.typ {
	case frameHello:
		var hi hello
		if err := json.Unmarshal(f.payload, &hi); err != nil {
			return err
		}
		select {
		case v.hello <- hi:
			return nil
		default:
			return errors.New("the guest said hello twice")
		}
	case frameBye:
		var bye byeReport
		if err := json.Unmarshal(f.payload, &bye); err != nil {
			return err
		}
		v.mu.Lock()
		v.bye = &bye
		v.mu.Unlock()
		return nil
	}
	if j == nil {
		return fmt.Errorf("the guest sent a frame of type %q for job %d, which does not run", f.typ, f.job)
	}
	switch f.typ {
	case frameStdout:
		j.write(j.stdout, f.payload)
	case frameStderr:
		j.write(j.stderr, f.payload)
	case frameFile:
		j.closeFile()
		var fh fileHeader
		if err := json.Unmarshal(f.payload, &fh); err != nil {
			return err
		}
		if j.file == nil {
			return fmt.Errorf("the guest sent %s, which nobody asked for", fh.Path)
		}
		w, err := j.file(fh)
		if err != nil {
			j.fail(err)
			w = discard{}
		}
		j.open = w
	case frameData:
		if j.open == nil {
			return errors.New("the guest sent file content without a file")
		}
		j.write(j.open, f.payload)
	case frameExit:
		j.closeFile()
		var rep exitReport
		if err := json.Unmarshal(f.payload, &rep); err != nil {
			return err
		}
		v.mu.Lock()
		delete(v.jobs, f.job)
		v.mu.Unlock()
		j.exit <- rep
	default:
		return fmt.Errorf("the guest sent a frame of unknown type %q", f.typ)
	}
	return nil
}

// write passes output on and keeps the first error: a broken pipe must not stop the guest's other
// jobs.
func (j *hostJob) write(w io.Writer, p []byte) {
	if w == nil {
		return
	}
	if _, err := w.Write(p); err != nil {
		j.fail(err)
	}
}

// fail keeps the first error.
func (j *hostJob) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

// closeFile ends the file that is being received.
func (j *hostJob) closeFile() {
	if j.open != nil {
		if err := j.open.Close(); err != nil {
			j.fail(err)
		}
		j.open = nil
	}
}

// A discard swallows a file that cannot be stored.
type discard struct{}

// Write implements io.Writer.
func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Close implements io.Closer.
func (discard) Close() error { return nil }

// A jobIO connects a job with the host. Nil writers drop output.
type jobIO struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	file           func(fileHeader) (io.WriteCloser, error)
}

// A started job can be waited for or killed.
type started struct {
	v  *vm
	id uint32
	j  *hostJob
}

// start sends a job to the guest.
func (v *vm) start(j job, x jobIO) (started, error) {
	hj := &hostJob{stdout: x.stdout, stderr: x.stderr, file: x.file, exit: make(chan exitReport, 1)}
	v.mu.Lock()
	v.next++
	id := v.next
	v.jobs[id] = hj
	v.mu.Unlock()
	j.Now = time.Now().UnixNano()
	j.Stdin = x.stdin != nil
	if err := v.out.writeJSON(frameJob, id, j); err != nil {
		return started{}, fmt.Errorf("the guest does not listen: %w", err)
	}
	if x.stdin != nil {
		go func() {
			_, _ = io.Copy(streamWriter{v.out, frameInput, id}, x.stdin) // An error here shows as end of input there.
			_ = v.out.write(frameInput, id, nil)
		}()
	}
	return started{v, id, hj}, nil
}

// wait waits for the job's end. The error is about the machinery; what the program did is the code.
func (s started) wait(ctx context.Context) (int, error) {
	rep, err := s.waitReport(ctx)
	return rep.Code, err
}

// waitReport is wait, and tells what the job cost, too.
func (s started) waitReport(ctx context.Context) (rep exitReport, err error) {
	select {
	case rep := <-s.j.exit:
		if rep.Err != "" {
			return rep, errors.New(rep.Err)
		}
		return rep, s.j.err
	case <-s.v.lost:
		select { // The last frames may have brought both.
		case rep := <-s.j.exit:
			return rep, s.j.err
		default:
		}
		select {
		case <-s.v.emu.done:
		case <-time.After(killPatience): // The port is lost and the guest is not.
			return rep, exitError{exitBroken, fmt.Errorf("the guest can be talked to no more: %w\nconsole:\n%s", s.v.lostErr, s.v.console.last())}
		}
		if err := s.v.console.err(); err != nil {
			return rep, exitError{exitKernel, fmt.Errorf("%w\nconsole:\n%s", err, s.v.console.last())}
		}
		return rep, exitError{exitBroken, fmt.Errorf("the guest went away in the middle of a job (QEMU: %v)\nconsole:\n%s", s.v.emu.err, s.v.console.last())}
	case <-ctx.Done():
		return rep, s.v.ended(ctx)
	}
}

// kill ends the job's processes; wait then returns 137.
func (s started) kill() {
	_ = s.v.out.write(frameKill, s.id, nil) // A guest that is gone has no processes.
}

// run runs one job to its end. When the context ends first, the job is killed, so that the guest is
// free for the next one.
func (v *vm) run(ctx context.Context, j job, x jobIO) (int, error) {
	s, err := v.start(j, x)
	if err != nil {
		return 0, err
	}
	code, err := s.wait(ctx)
	if ctx.Err() != nil {
		s.kill()
		select { // Nothing writes to x any more after this, unless the guest is stuck.
		case <-s.j.exit:
		case <-v.lost:
		case <-time.After(killPatience):
		}
	}
	return code, err
}

// readFile returns the content of a file of the guest.
func (v *vm) readFile(ctx context.Context, path string) (string, error) {
	var b strings.Builder
	seen := false
	_, err := v.run(ctx, job{Collect: []string{path}}, jobIO{file: func(fileHeader) (io.WriteCloser, error) {
		seen = true
		return nopCloser{&b}, nil
	}})
	if err == nil && !seen {
		err = fmt.Errorf("the guest has no %s", path)
	}
	return b.String(), err
}
