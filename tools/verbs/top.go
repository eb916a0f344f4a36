package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/top"
	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// cmdTop is verbs top.
func cmdTop(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return topHere.run(ctx, args, stdout, stderr)
}

// A topPlace is where verbs top looks and how it shows what it saw.
type topPlace struct {
	dial   func() (top.Conn, error)
	host   top.Host
	trace  func(trace.Options) (topTracer, error)
	screen func(stdout io.Writer) (topScreen, error) // nil where there is no terminal
}

// topTracer is what verbs top needs of a tracer.
type topTracer interface {
	top.Tracer
	io.Closer
}

// topScreen is a terminal that shows looks.
type topScreen interface {
	// size is that of the terminal, in characters.
	size() (width, height int)
	// show replaces what was shown.
	show(lines []string) error
	// resized tells that the size has changed, quit that the user wants to
	// leave.
	resized() <-chan struct{}
	quit() <-chan struct{}
	// close makes the terminal what it was.
	close()
}

// topHere is this machine.
var topHere = topPlace{
	dial: func() (top.Conn, error) {
		c, err := nldev.Dial()
		if err != nil {
			return nil, err
		}
		return c, nil
	},
	host: top.ThisHost(),
	trace: func(o trace.Options) (topTracer, error) {
		t, err := trace.Open(o)
		if err != nil {
			return nil, err
		}
		return t, nil
	},
	screen: openTopScreen,
}

func (p topPlace) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseTop(args, stdout)
	if err != nil {
		return exitStatus(ctx, "top", err, stderr)
	}
	status, err := p.runFlags(ctx, o, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "verbs top: %s\n", printable.Error(err))
	}
	return status
}

// runFlags is the command after its flags. An error has its exit status.
func (p topPlace) runFlags(ctx context.Context, o topOptions, stdout, stderr io.Writer) (int, error) {
	netlink := &top.Redialer{Dial: p.dial}
	defer netlink.Close()
	if isSimulated(o.device) {
		return 2, fmt.Errorf("-d %s: that device is in software in the memory of one process, where netlink does not see it", o.device)
	}
	// Whether there is anything to look at is known before probes are
	// attached.
	links, err := netlink.Links()
	if errors.Is(err, nldev.ErrNoRDMA) {
		return 1, fmt.Errorf("%w; verbs doctor says what to do", err)
	}
	if err != nil {
		return 1, err
	}
	if o.device != "" {
		if err := topDevice(links, o.device); err != nil {
			return 2, err
		}
	}
	var listener net.Listener
	if o.listen != "" {
		if listener, err = topListen(o.listen); err != nil {
			return 1, err
		}
		defer listener.Close()
	}
	var screen topScreen
	if listener == nil && !o.json && !o.once {
		if screen, err = p.screen(stdout); err != nil {
			return 1, err
		}
	}
	if screen != nil {
		defer screen.close()
		if o.trace != "off" {
			if err := screen.show([]string{"verbs top: attaching probes, which may take seconds"}); err != nil {
				return 1, err
			}
		}
	}
	tracer, levels := p.openTrace(o)
	var t top.Tracer
	if tracer != nil {
		defer tracer.Close()
		t = topAsked{tracer, o}
	}
	r := &topRun{o: o, netlink: netlink, collector: top.NewCollector(netlink, p.host, t, levels...), stdout: stdout, stderr: stderr}
	switch {
	case listener != nil:
		return r.serve(ctx, listener)
	case screen != nil:
		return r.watch(ctx, screen)
	}
	return r.print(ctx)
}

// topDevice says whether there is a device of the name.
func topDevice(links []nldev.Link, name string) error {
	names := "none"
	for i, l := range links {
		if l.Name == name {
			return nil
		}
		if i == 0 {
			names = ""
		} else {
			names += ", "
		}
		names += l.Name
	}
	return fmt.Errorf("-d %q: there is no such device; there are: %s", name, names)
}

// openTrace opens the tracer, or says why its levels are not live.
func (p topPlace) openTrace(o topOptions) (topTracer, []top.Level) {
	if o.trace == "off" {
		return nil, top.TraceLevels("turned off by -trace=off")
	}
	t, err := p.trace(trace.Options{Events: o.events, Syscalls: o.syscalls, EveryCQE: o.cqe})
	if err != nil {
		return nil, top.TraceLevels(printable.Escape(printable.Error(err)))
	}
	return t, nil
}

// topAsked is a tracer that says of levels that nobody asked for how to ask.
type topAsked struct {
	topTracer
	o topOptions
}

// Levels are the tracer's.
func (t topAsked) Levels() []trace.Level {
	all := t.topTracer.Levels()
	for i := range all {
		l := &all[i]
		switch {
		case l.Live:
		case l.Name == trace.LevelEvents && !t.o.events:
			l.Why = "-events asks for it, at the cost of two probes for each completion event"
		case l.Name == trace.LevelSyscalls && !t.o.syscalls:
			l.Why = "-syscalls asks for it, at the cost of two probes for each call to uverbs"
		case l.Name == trace.LevelEveryCQE && !t.o.cqe:
			l.Why = "-cqe asks for it, at the cost of a probe for each completion"
		}
	}
	return all
}

// A topRun is one run of the command.
type topRun struct {
	o              topOptions
	netlink        *top.Redialer
	collector      *top.Collector
	stdout, stderr io.Writer
}

// look makes a look, and holds nothing of the kernel's until the next.
func (r *topRun) look() (*top.Look, error) {
	defer r.netlink.Close()
	return r.collector.Look(r.o.device)
}

// next is when the look after one that began at a time begins. Where looks take
// long there is as much time between them as they take.
func (r *topRun) next(began time.Time) time.Time {
	next, rest := began.Add(r.o.interval), time.Now()
	if took := rest.Sub(began); next.Before(rest.Add(took)) {
		next = rest.Add(took)
	}
	return next
}

// wait waits for the time, and says whether it came before ctx was done.
func wait(ctx context.Context, until time.Time) bool {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// print writes looks, as text or JSON: those that have rates.
func (r *topRun) print(ctx context.Context) (int, error) {
	began := time.Now()
	if _, err := r.look(); err != nil {
		return 1, err
	}
	for n := 0; r.o.count == 0 || n < r.o.count; n++ {
		if !wait(ctx, r.next(began)) {
			if n == 0 {
				return 1, fmt.Errorf("ended before the first look was complete: %w", context.Cause(ctx))
			}
			return 0, nil
		}
		began = time.Now()
		look, err := r.look()
		if err != nil {
			return 1, err
		}
		if err := r.write(look, n > 0); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

func (r *topRun) write(look *top.Look, more bool) error {
	if r.o.json {
		return top.WriteJSON(r.stdout, look)
	}
	if more {
		if _, err := fmt.Fprintln(r.stdout); err != nil {
			return err
		}
	}
	return top.WriteText(r.stdout, look, top.Page{})
}

// watch shows looks on a terminal.
func (r *topRun) watch(ctx context.Context, s topScreen) (int, error) {
	var look *top.Look
	var failed error
	for n := 0; ; n++ {
		began := time.Now()
		if l, err := r.look(); err != nil {
			if look == nil {
				return 1, err
			}
			failed = err
		} else {
			look, failed = l, nil
		}
		if err := draw(s, look, failed); err != nil {
			return 1, err
		}
		if r.o.count > 0 && n >= r.o.count { // the first has no rates
			return 0, nil
		}
		timer := time.NewTimer(time.Until(r.next(began)))
		for due := false; !due; {
			select {
			case <-timer.C:
				due = true
			case <-s.resized():
				if err := draw(s, look, failed); err != nil {
					timer.Stop()
					return 1, err
				}
			case <-s.quit():
				timer.Stop()
				return 0, nil
			case <-ctx.Done():
				timer.Stop()
				return 0, nil
			}
		}
	}
}

// draw shows a look, and what made the one after it fail.
func draw(s topScreen, look *top.Look, failed error) error {
	width, height := s.size()
	width = max(width-1, 1) // a character in the last column makes some terminals begin a line
	var lines []string
	if failed != nil {
		lines = append(lines, printable.Escape("no look since: "+printable.Error(failed)))
		lines[0] = lines[0][:min(len(lines[0]), width)]
		height--
	}
	return s.show(append(lines, top.Lines(look, top.Page{Width: width, Height: max(height, 1)})...))
}

// serve hands out metrics until ctx is done.
func (r *topRun) serve(ctx context.Context, l net.Listener) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var server top.Server
	began := time.Now()
	look, err := r.look()
	if err == nil {
		err = r.publish(&server, look, top.Health{Up: true})
	}
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(r.stderr, "verbs top: serving http://%v/metrics, a look every %v; Ctrl-C ends it\n", l.Addr(), r.o.interval)
	for _, v := range look.Levels {
		if !v.Live {
			fmt.Fprintf(r.stderr, "verbs top: not live: %s: %s\n", v.Name, v.Why)
		}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(ctx, l)
		cancel()
	}()
	failures := uint64(0)
	for wait(ctx, r.next(began)) {
		began = time.Now()
		if l, err := r.look(); err == nil {
			look = l
			err = r.publish(&server, look, top.Health{Up: true, Failures: failures})
			if err == nil {
				continue
			}
		}
		failures++
		if err := r.publish(&server, nil, top.Health{Failures: failures}); err != nil {
			return 1, err
		}
	}
	if err := <-ended; err != nil {
		return 1, err
	}
	return 0, nil
}

// publish gives the server the text of a look.
func (r *topRun) publish(s *top.Server, look *top.Look, h top.Health) error {
	var b bytes.Buffer
	if err := top.WriteMetrics(&b, look, h); err != nil {
		return err
	}
	s.Set(b.Bytes())
	return nil
}
