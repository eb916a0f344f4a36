package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

// cmdRun is mlx5sim run. The exit status is that of the first program that fails.
func cmdRun(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var m *model.Model
	made := time.Now()
	if err == nil {
		m, err = o.model()
	}
	if err != nil {
		fmt.Fprintf(stderr, "mlx5sim run: %v\nmlx5sim run -h lists the flags.\n", err)
		return exitUsage
	}
	var sinks []sink
	if o.trace {
		sinks = append(sinks, &printer{w: stderr})
	}
	var packets *capture
	if o.pcap != "" {
		if packets, err = newCapture(o.pcap, made); err != nil {
			fmt.Fprintf(stderr, "mlx5sim run: -pcap: %v\n", err)
			return exitUsage
		}
		sinks = append(sinks, packets)
	}
	// From here a signal ends the programs and not this process, which would leave it to
	// the keepers to.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	s, err := simproc.Serve(m, &simproc.Options{NoMount: o.noMount, Strict: o.strict})
	if err != nil {
		fmt.Fprintf(stderr, "mlx5sim run: %v\n", err)
		return exitSystem
	}
	var tr *tracer
	if len(sinks) > 0 {
		tr = startTrace(m, sinks...)
	}
	begin := time.Now()
	code := (&run{server: s, signals: signals, stderr: stderr, wait: o.wait}).all(o.programs, stdin, stdout)
	if o.stat {
		st := s.Stats()
		fmt.Fprintf(stderr, "mlx5sim: %.1f s; %s, %s, %s at registers, %d with doorbells, %s\n",
			time.Since(begin).Seconds(), plural.Of(st.Opens, "open"), plural.Of(st.Calls, "system call"), plural.Of(st.Looks, "look"), st.Doorbells, plural.Of(st.Events, "event"))
	}
	err = s.Close()
	if tr != nil {
		tr.stop(m)
	}
	if packets != nil {
		err = errors.Join(err, packets.close())
	}
	if err != nil {
		fmt.Fprintf(stderr, "mlx5sim run: %v\n", err)
		return exitSystem
	}
	for _, err := range m.MissedFaults() {
		fmt.Fprintf(stderr, "mlx5sim: -faults: %v\n", err)
	}
	violations := m.Violations()
	for _, v := range violations {
		fmt.Fprintf(stderr, "mlx5sim: a correct program does not do this: %s\n", v)
	}
	if code == 0 && len(violations) > 0 && !o.allowViolations {
		return exitViolations
	}
	return code
}

// run is what runs.
type run struct {
	server  *simproc.Server
	signals <-chan os.Signal
	stderr  io.Writer
	wait    time.Duration

	cmds     []*simproc.Cmd
	signaled bool
}

// ending is the end of the program of that number.
type ending struct {
	number int
	err    error
}

// all runs the programs, and returns the exit status.
func (r *run) all(programs [][]string, stdin *os.File, stdout io.Writer) (code int) {
	endings := make(chan ending, len(programs))
	running := 0
	note := func(e ending) {
		running--
		c := r.statusOf(programs[e.number][0], e.err)
		if c == 0 || code != 0 {
			return
		}
		code = c
		if running > 0 {
			fmt.Fprintf(r.stderr, "mlx5sim: %s failed, so the others are ended\n", programs[e.number][0])
		}
		r.kill()
	}
	for i, p := range programs {
		c := r.server.Command(p[0], p[1:]...)
		c.Stdout, c.Stderr = stdout, r.stderr
		if i == 0 && stdin != nil {
			c.Stdin = stdin // one can read it
		}
		if err := c.Start(); err != nil {
			running++
			note(ending{i, err})
			break
		}
		r.cmds = append(r.cmds, c)
		running++
		go func() { endings <- ending{i, c.Wait()} }()
		if i < len(programs)-1 {
			r.await(c, endings, note)
		}
		if code != 0 || r.signaled {
			break
		}
	}
	for running > 0 {
		select {
		case e := <-endings:
			note(e)
		case s := <-r.signals:
			r.forward(s)
		}
	}
	return code
}

// await waits until a program is ready for the next one.
func (r *run) await(c *simproc.Cmd, endings chan ending, note func(ending)) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(r.wait)
	defer limit.Stop()
	for !c.Listening() {
		select {
		case e := <-endings:
			note(e)
			return
		case s := <-r.signals:
			r.forward(s)
			return
		case <-limit.C:
			return
		case <-tick.C:
		}
	}
}

// forward gives a signal to the programs. A second one kills them.
func (r *run) forward(s os.Signal) {
	if r.signaled {
		r.kill()
		return
	}
	r.signaled = true
	if fromTerminal(s) {
		return // they got it too
	}
	for _, c := range r.cmds {
		if err := c.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			fmt.Fprintf(r.stderr, "mlx5sim: %v\n", err)
		}
	}
}

func (r *run) kill() {
	for _, c := range r.cmds {
		c.Kill()
	}
}

// statusOf is the exit status for the way in which a program ended.
func (r *run) statusOf(name string, err error) int {
	var exit *simproc.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.Signal != 0:
		return exitSignal + int(exit.Signal)
	case errors.As(err, &exit):
		if err != error(exit) {
			fmt.Fprintf(r.stderr, "mlx5sim: %s: %v\n", name, err)
		}
		return exit.Code
	}
	fmt.Fprintf(r.stderr, "mlx5sim: %v\n", err)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound
	}
	return exitSystem
}
