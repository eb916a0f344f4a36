package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/mlx5/model"
)

// sink takes the events of a model, one after the other, from one goroutine. flush comes when
// there are no more for the moment.
type sink interface {
	event(e model.Event)
	flush()
}

// tracer hands the events of a model to sinks, in their order. What is not handed on yet
// is kept, however much it is: the model must not wait for who reads, and nothing may be
// missing.
type tracer struct {
	sinks []sink
	wake  chan struct{} // has a value when there is something to do
	done  chan struct{}

	mu      sync.Mutex // taken with the model's lock held
	waiting []model.Event
	closed  bool
}

// startTrace hands on what happens on the model from now on, until stop.
func startTrace(m *model.Model, sinks ...sink) *tracer {
	t := &tracer{sinks: sinks, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go t.run()
	m.Trace(t.add)
	return t
}

// stop ends the trace of m, when all of it is handed on.
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

// run ends when the trace is closed and nothing is left.
func (t *tracer) run() {
	defer close(t.done)
	var events []model.Event
	for closed := false; !closed; {
		<-t.wake
		t.mu.Lock()
		events, t.waiting, closed = t.waiting, events[:0], t.closed
		t.mu.Unlock()
		for _, s := range t.sinks {
			for _, e := range events {
				s.event(e)
			}
			s.flush()
		}
		clear(events)
	}
}

// wholeWrite is how much a pipe takes in one piece (PIPE_BUF), so that lines stay whole
// beside those of the programs.
const wholeWrite = 4096

// printer prints events. It has nowhere to say that a write failed: that is where errors go.
type printer struct {
	w io.Writer
	b bytes.Buffer
}

func (p *printer) event(e model.Event) {
	line := traceLine(e)
	if p.b.Len()+len(line) > wholeWrite {
		p.flush()
	}
	p.b.WriteString(line)
}

func (p *printer) flush() {
	_, _ = p.w.Write(p.b.Bytes())
	p.b.Reset()
}

// traceLine is the line of an event: seconds since the devices are there, the process that
// opened the device, the device, and what happened.
func traceLine(e model.Event) string {
	o := e.From()
	return fmt.Sprintf("mlx5sim: %.6f pid %s %s: %v\n", o.Time.Seconds(), o.Program, o.Device, e)
}
