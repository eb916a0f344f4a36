package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/mlx5/model"
)

// tracer prints the events of a model, in their order. What is not printed yet is kept,
// however much it is: the model must not wait for who reads, and no line may be missing.
type tracer struct {
	w    io.Writer
	wake chan struct{} // has a value when there is something to do
	done chan struct{}

	mu      sync.Mutex // taken with the model's lock held
	waiting []model.Event
	closed  bool
}

// startTrace prints to w what happens on the model from now on, until stop.
func startTrace(m *model.Model, w io.Writer) *tracer {
	t := &tracer{w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go t.print()
	m.Trace(t.add)
	return t
}

// stop ends the trace of m, when all of it is printed.
func (t *tracer) stop(m *model.Model) {
	m.Trace(nil)
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.signal()
	<-t.done
}

func (t *tracer) add(e model.Event) {
	t.mu.Lock()
	t.waiting = append(t.waiting, e)
	t.mu.Unlock()
	t.signal()
}

func (t *tracer) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// wholeWrite is how much a pipe takes in one piece (PIPE_BUF), so that lines stay whole
// beside those of the programs.
const wholeWrite = 4096

// print runs until the trace is closed and nothing is left. It has nowhere to say that a
// write failed: that is where errors go.
func (t *tracer) print() {
	defer close(t.done)
	var b bytes.Buffer
	var events []model.Event
	for closed := false; !closed; {
		<-t.wake
		t.mu.Lock()
		events, t.waiting, closed = t.waiting, events[:0], t.closed
		t.mu.Unlock()
		for i, e := range events {
			line := traceLine(e)
			if b.Len()+len(line) > wholeWrite {
				_, _ = b.WriteTo(t.w)
				b.Reset()
			}
			b.WriteString(line)
			events[i] = nil
		}
		_, _ = b.WriteTo(t.w)
		b.Reset()
	}
}

// traceLine is the line of an event: seconds since the devices are there, the process that
// opened the device, the device, and what happened.
func traceLine(e model.Event) string {
	o := e.From()
	return fmt.Sprintf("mlx5sim: %.6f pid %s %s: %v\n", o.Time.Seconds(), o.Program, o.Device, e)
}
