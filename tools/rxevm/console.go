package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// A console reads what the guest's kernel prints, keeps the end of it, and picks out the lines that
// must fail a run. It is an io.Writer for the emulator's output and safe for use by several
// goroutines.
type console struct {
	// emulated says that the guest has no hardware clock to rely on: stalls are reported and do not
	// fail the run.
	emulated bool
	// echo, when set, gets every line as it comes.
	echo func(line string)

	mu      sync.Mutex
	partial []byte
	tail    []string
	faults  []string
	stalls  []string
	// excuse counts the lines for which a call trace belongs to a stall that is only reported.
	excuse int
	lines  int
}

const (
	// tailLines is how much of the console is shown after a failure.
	tailLines = 60
	// traceLines is how long the dump behind one stall can be, two CPUs' registers and stacks
	// included.
	traceLines = 160
)

var (
	// A stall says that something took long. Under emulation the host's load decides that.
	stallLine = regexp.MustCompile(`rcu: INFO: |self-detected stall|detected stalls? on|soft lockup|hard LOCKUP|INFO: task .* blocked for more than|rcu_(preempt|sched) kthread starved|workqueue lockup`)
	// A fault says that something is broken, whoever runs it.
	faultLine = regexp.MustCompile(`\bWARNING: |\bBUG: |kernel BUG at |\bOops\b|Kernel panic|general protection fault|Unable to handle kernel|unable to handle page fault|` +
		`RESTRACK detected leak|restrack: .*leak|destroyed with unfree'd elem|refcount_t: |list_(add|del) corruption|UBSAN: |KASAN: |Objects remaining in |unregister_netdevice: waiting for|` +
		`WARN_ON|scheduling while atomic|sleeping function called from invalid context|bad page state|Bad page state|double free|use-after-free`)
	// A trace follows one of the former; alone it is a fault, too.
	traceLine = regexp.MustCompile(`Call [Tt]race:`)
	// harmlessLine matches lines of a healthy boot that look like faults: advice about mitigations.
	harmlessLine = regexp.MustCompile(`WARNING: Unprivileged eBPF is enabled|WARNING: Spectre|Spectre V2 : WARNING`)
)

// Write implements io.Writer.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = append(c.partial, p...)
	for {
		i := bytes.IndexByte(c.partial, '\n')
		if i < 0 {
			return len(p), nil
		}
		c.line(string(bytes.TrimRight(c.partial[:i], "\r")))
		c.partial = c.partial[i+1:]
	}
}

// line judges one line.
func (c *console) line(s string) {
	c.lines++
	if c.echo != nil {
		c.echo(s)
	}
	if c.tail = append(c.tail, s); len(c.tail) > tailLines {
		c.tail = c.tail[1:]
	}
	c.excuse = max(0, c.excuse-1)
	switch {
	case harmlessLine.MatchString(s):
	case stallLine.MatchString(s): // Before faultLine: "watchdog: BUG: soft lockup" is a stall.
		if !c.emulated {
			c.faults = append(c.faults, s)
			return
		}
		c.stalls = append(c.stalls, s)
		c.excuse = traceLines
	case faultLine.MatchString(s):
		c.faults = append(c.faults, s)
		c.excuse = 0
	case traceLine.MatchString(s) && c.excuse == 0 && len(c.faults) == 0:
		c.faults = append(c.faults, s)
	}
}

// err is nil, or says what the kernel complained about.
func (c *console) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) == 0 {
		return nil
	}
	return fmt.Errorf("the guest's kernel complained:\n    %s", strings.Join(c.faults, "\n    "))
}

// stalled returns the stall lines that were only reported.
func (c *console) stalled() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.stalls...)
}

// last returns the end of the console.
func (c *console) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.tail
	if len(c.partial) > 0 {
		all = append(append([]string(nil), all...), string(c.partial))
	}
	if len(all) == 0 {
		return "    (the console printed nothing)\n"
	}
	return "    " + strings.Join(all, "\n    ") + "\n"
}

// started reports whether the kernel has printed a line at all.
func (c *console) started() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines > 0
}
