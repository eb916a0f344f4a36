package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// The guest and the host talk over one virtio serial port in frames: a type byte, a job number, a
// length (both little endian, 32 bits), the payload. What a job prints travels as payload, so no
// byte that a program writes can be mistaken for an exit status.

// frameType says what a frame's payload is.
type frameType byte

const (
	frameJob   frameType = 'J' // host to guest: a job, as JSON
	frameInput frameType = 'I' // host to guest: bytes for the job's standard input; an empty one ends it
	frameKill  frameType = 'K' // host to guest: kill the job's processes
	frameQuit  frameType = 'Q' // host to guest: take soft-RoCE down, report, power off

	frameHello  frameType = 'H' // guest to host: a hello, as JSON
	frameStdout frameType = 'o'
	frameStderr frameType = 'e'
	frameFile   frameType = 'f' // guest to host: a fileHeader, as JSON; its content follows
	frameData   frameType = 'd' // guest to host: content of the file announced last for this job
	frameExit   frameType = 'x' // guest to host: an exitReport, as JSON; the job's last frame
	frameBye    frameType = 'B' // guest to host: a byeReport, as JSON; the guest's last frame
)

// maxFrame bounds a payload, so that a broken peer cannot make the reader allocate without end.
const maxFrame = 1 << 20

// A frame is one message.
type frame struct {
	typ     frameType
	job     uint32
	payload []byte
}

// A job is one program for the guest to run, or, without Args, only files to fetch.
type job struct {
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	// Mkdirs are folders to make before the program starts.
	Mkdirs []string `json:"mkdirs,omitempty"`
	// Collect names files and folders to send back after the program ended; those that do not exist
	// are left out.
	Collect []string `json:"collect,omitempty"`
	// Listen, when not zero, delays the start until a TCP socket listens on this port: the peer of
	// a ping-pong must be ready.
	Listen uint16 `json:"listen,omitempty"`
	// Stdin asks for a pipe that frameInput feeds; otherwise the program reads end of file.
	Stdin bool `json:"stdin,omitempty"`
	// Terminal asks for a pseudo terminal of this size instead of pipes.
	Terminal *termSize `json:"terminal,omitempty"`
	harsh
	// Now is the host's clock in nanoseconds since 1970, for guests without a clock driver.
	Now int64 `json:"now"`
}

// harsh is what is done to a program while it runs.
type harsh struct {
	// CPUs, when not zero, is how many processors' time the program may use: cpu.max of a
	// cgroup of its own, in the usual periods of 100 ms.
	CPUs float64 `json:"cpus,omitempty"`
	// Storm sends the program SIGURG all the time: the signal with which Go's runtime interrupts
	// goroutines, so a program bears it, but every system call may end early with EINTR.
	Storm bool `json:"storm,omitempty"`
}

// A termSize is the size of a terminal in characters.
type termSize struct {
	Rows, Cols uint16
}

// A hello is what the guest says when it can run jobs.
type hello struct {
	Release string `json:"release"`
	// Uptime is the guest's age in seconds: what booting cost.
	Uptime float64 `json:"uptime"`
}

// An exitReport says how a job ended.
type exitReport struct {
	// Code is the exit status, or 128 plus the signal that ended the program.
	Code int `json:"code"`
	// Err is set when the program could not be started at all.
	Err string `json:"err,omitempty"`
	// CPU is the processor time of the program, user and system, by wait4.
	CPU time.Duration `json:"cpu_ns,omitempty"`
}

// A fileHeader announces a file that comes back.
type fileHeader struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
}

// A byeReport is the guest's last word, after soft-RoCE is gone.
type byeReport struct {
	// Tainted is /proc/sys/kernel/tainted.
	Tainted uint64 `json:"tainted"`
	// Leaks are sentences about kernel objects that outlived every process.
	Leaks []string `json:"leaks,omitempty"`
}

// A frameWriter writes frames; it may be used by several goroutines.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// write sends one frame, or several of the same type when the payload is long. An empty payload is
// one empty frame.
func (f *frameWriter) write(typ frameType, job uint32, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		n := min(len(payload), maxFrame)
		buf := make([]byte, 9, 9+n)
		buf[0] = byte(typ)
		binary.LittleEndian.PutUint32(buf[1:], job)
		binary.LittleEndian.PutUint32(buf[5:], uint32(n))
		if _, err := f.w.Write(append(buf, payload[:n]...)); err != nil {
			return err
		}
		if payload = payload[n:]; len(payload) == 0 {
			return nil
		}
	}
}

// writeJSON sends v as one frame.
func (f *frameWriter) writeJSON(typ frameType, job uint32, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("a %c message of %d bytes is longer than a frame may be (%d)", typ, len(b), maxFrame)
	}
	return f.write(typ, job, b)
}

// readFrame reads one frame. io.EOF means that the stream ended between frames.
func readFrame(r io.Reader) (frame, error) {
	var h [9]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(h[5:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("frame of type %q announces %d bytes, the most allowed is %d", h[0], n, maxFrame)
	}
	f := frame{typ: frameType(h[0]), job: binary.LittleEndian.Uint32(h[1:]), payload: make([]byte, n)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

// A streamWriter sends what is written to it as frames of one type.
type streamWriter struct {
	w   *frameWriter
	typ frameType
	job uint32
}

// Write implements io.Writer.
func (s streamWriter) Write(p []byte) (int, error) {
	if len(p) == 0 { // An empty frame would mean end of input.
		return 0, nil
	}
	if err := s.w.write(s.typ, s.job, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
