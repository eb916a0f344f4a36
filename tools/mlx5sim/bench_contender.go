package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

// A contender is a program that is measured. It does what it is told; see benchClient.
type contender struct {
	name string
	cmd  *simproc.Cmd
	in   *os.File
	out  *os.File
	read *bufio.Reader

	dev  *model.Device
	qpn  uint32 // the first queue pair
	next uint64 // id of the next request
}

// contenderForms are the programs: three of libibverbs, which are the first ones, and goverbs.
var contenderForms = []struct{ form, name, env string }{
	{"plain", "ibv_poll_cq", ""},
	{"single", "MLX5_SINGLE_THREADED=1", "MLX5_SINGLE_THREADED=1"},
	{"ex", "ibv_start_poll", "MLX5_SINGLE_THREADED=1"},
	{"go", "goverbs", ""},
}

// startContender starts a program on a processor.
func startContender(s *simproc.Server, dev *model.Device, name string, cpu int, env []string, argv ...string) (c *contender, err error) {
	c = &contender{name: name, dev: dev, next: 1}
	inr, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inr.Close()
	out, outw, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer outw.Close()
	c.in, c.out, c.read = in, out, bufio.NewReader(out)
	c.cmd = s.Command(argv[0], append(argv[1:], strconv.Itoa(cpu))...)
	c.cmd.Env, c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = env, inr, outw, os.Stderr
	if err := c.cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	outw.Close()
	if _, err := c.answer(); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// end lets the program end, and waits for it.
func (c *contender) end() error {
	c.in.Close()
	_, _ = io.Copy(io.Discard, c.read) // so that it can write what it has to
	c.out.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// ask tells the program to do something and returns the numbers of its answer.
func (c *contender) ask(format string, args ...any) ([]uint64, error) {
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return c.answer()
}

// answer reads an answer.
func (c *contender) answer() ([]uint64, error) {
	line, err := c.read.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s says no more: %w", c.name, err)
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "ok" {
		return nil, fmt.Errorf("%s: %s", c.name, strings.TrimSpace(line))
	}
	var all []uint64
	for _, w := range words[1:] {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", c.name, line, err)
		}
		all = append(all, n)
	}
	return all, nil
}

// numbers is ask for an answer of so many numbers.
func (c *contender) numbers(n int, format string, args ...any) ([]uint64, error) {
	all, err := c.ask(format, args...)
	if err == nil && len(all) != n {
		err = fmt.Errorf("%s: "+format+": %d numbers, want %d", append(append([]any{c.name}, args...), len(all), n)...)
	}
	return all, err
}

// setup has the program make its queues, which the device then leaves alone.
func (c *contender) setup(g *benchGroup) error {
	n, err := c.numbers(1, "setup %d %d %d", g.qps, g.ring, g.depth())
	if err != nil {
		return err
	}
	c.qpn = uint32(n[0])
	return c.dev.Hold(c.qpn)
}

func (c *contender) teardown() error {
	_, err := c.ask("teardown")
	return err
}

// A portion is what is posted or polled at once: lead of it without looking at the clock, so that it
// and what it works on are warm, and the rest in blocks that are timed.
type portion struct{ lead, rest, block int }

// portionOf divides n, which is a power of two from 256 on.
func portionOf(n int) portion {
	p := portion{lead: min(n/4, 256)}
	p.rest = n - p.lead
	p.block = min(p.rest, 768)
	return p
}

// posted is the sum of the ids of the next n requests.
func (c *contender) posted(n int) (sum uint64) {
	first := c.next
	c.next += uint64(n)
	return uint64(n)*first + uint64(n)*uint64(n-1)/2
}

// drain has the device complete all requests that are posted, and the program poll them. It
// returns how long a block of them took.
func (c *contender) drain(fill func(func()), batch int, p portion, sum uint64, o model.FillOptions) (ns uint64, err error) {
	n := p.lead + p.rest
	done := 0
	fill(func() { done, err = c.dev.Fill(c.qpn, n, o) })
	if err == nil && done != n {
		err = fmt.Errorf("%s: %d completions could be written, of %d", c.name, done, n)
	}
	if err != nil {
		return 0, err
	}
	got, err := c.numbers(4, "polls %d %d %d %d", batch, p.lead, p.rest, p.block)
	if err != nil {
		return 0, err
	}
	if err := checkPolled(got, n, sum, o.Flush); err != nil {
		return 0, fmt.Errorf("%s: %w", c.name, err)
	}
	return got[0], nil
}

// checkPolled compares what a program says of the n completions that it polled with what it is to
// say. A fast one that loses some would be no use.
func checkPolled(got []uint64, n int, sum uint64, flush bool) error {
	failed, flushed := uint64(0), uint64(0)
	if flush {
		failed, flushed = uint64(n), 1
	}
	if got[1] != sum || got[2] != failed || got[3] != flushed {
		return fmt.Errorf("of %d completions the ids add up to %d and %d failed (flushed %d): want %d and %d (%d)",
			n, got[1], got[2], got[3], sum, failed, flushed)
	}
	return nil
}
