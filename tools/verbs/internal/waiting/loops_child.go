package waiting

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/tools/internal/printable"
)

var fillSends model.FillOptions

// newStand says how often and how long a loop stood still in a time.
func newStand(gaps []time.Duration, length time.Duration) (s stand) {
	if len(gaps) == 0 {
		return s
	}
	var sum time.Duration
	for _, g := range gaps {
		sum += g
	}
	slices.Sort(gaps)
	return stand{float64(len(gaps)) / length.Seconds(), sum.Seconds() / length.Seconds(), gaps[len(gaps)/2].Seconds()}
}

// loopSet opens loops when they are asked for.
type loopSet map[string]running

func (s loopSet) run(name string, length time.Duration) (float64, error) {
	if s[name] == nil {
		i := slices.IndexFunc(allLoops(), func(l loop) bool { return l.name == name })
		if i < 0 {
			return 0, fmt.Errorf("no loop is %q", name)
		}
		r, err := allLoops()[i].open()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		s[name] = r
	}
	perSecond, err := s[name].run(length)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return perSecond, err
}

func (s loopSet) close() (err error) {
	for _, r := range s {
		err = errors.Join(err, r.close())
	}
	return err
}

func allLoops() []loop { return slices.Concat(loops, pingpongs) }

// ServeLoops is the program of the processes that RunPreempt compares. It obeys lines until their
// end, and answers each by "ok" and numbers, or by "error" and a sentence:
//
//	run LOOP NS          run a loop; says how many times a second
//	signal once NS       say what a SIGURG costs the thread that gets it, in seconds
//	stands LOCKED NS     look at the clock, in a thread of its own or not; says how often a
//	                     second it stood still, what it lost of a second, and a median
func ServeLoops(in io.Reader, out io.Writer) (err error) {
	// Never unlocked: the loops keep this processor, and one of two threads that wait busily for
	// each other the other one.
	runtime.LockOSThread()
	if err := pin(true); err != nil {
		return err
	}
	set := loopSet{}
	defer func() { err = errors.Join(err, set.close()) }()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		text, err := set.obey(lines.Text())
		if err != nil {
			text = "error " + printable.Error(err)
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	return nil
}

func (s loopSet) obey(line string) (string, error) {
	var word, name string
	var length time.Duration
	if _, err := fmt.Sscan(line, &word, &name, (*int64)(&length)); err != nil {
		return "", fmt.Errorf("%q: %w", line, err)
	}
	switch word {
	case "run":
		perSecond, err := s.run(name, length)
		return fmt.Sprintf("ok %g", perSecond), err
	case "signal":
		cost, err := signalCost(length)
		return fmt.Sprintf("ok %g", cost.Seconds()), err
	case "stands":
		done := make(chan stand)
		go func() { done <- stands(name == "locked", length) }() // in a thread that may go anywhere
		st := <-done
		return fmt.Sprintf("ok %g %g %g", st.perSecond, st.lost, st.median), nil
	}
	return "", fmt.Errorf("%q is nothing to do", line)
}

// loopChild is a process that runs loops.
type loopChild struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs strings.Builder
}

// startLoops starts a process with a setting of GODEBUG in place of all others.
func startLoops(command []string, godebug string) (*loopChild, error) {
	c := &loopChild{cmd: exec.Command(command[0], command[1:]...)}
	c.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GODEBUG=") }), "GODEBUG="+godebug)
	c.cmd.Stderr = &c.errs
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	return c, nil
}

// numbers has the process do something, and reads the numbers of its answer.
func (c *loopChild) numbers(to []float64, format string, args ...any) error {
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		return err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("a process that runs loops went away: %w %s", err, strings.TrimSpace(c.errs.String()))
	}
	if text, ok := strings.CutPrefix(line, "error "); ok {
		return errors.New(strings.TrimSpace(text))
	}
	fields := strings.Fields(line)
	if len(fields) != len(to)+1 || fields[0] != "ok" {
		return fmt.Errorf("a process that runs loops says %q", line)
	}
	for i := range to {
		if _, err := fmt.Sscan(fields[i+1], &to[i]); err != nil {
			return fmt.Errorf("a process that runs loops says %q: %w", line, err)
		}
	}
	return nil
}

func (c *loopChild) close() error {
	c.in.Close()
	return c.cmd.Wait()
}
