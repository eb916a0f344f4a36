package selftest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
)

// Config is what a run does.
type Config struct {
	// Open opens the device, for each test and each end in this process anew.
	Open func() (*uverbs.Device, error)
	// Peer is where the other end is served, host and port; empty: in this process.
	Peer string
	// Quick does everything less often. Rounds, if not 0, is how often instead.
	Quick  bool
	Rounds int
	// Only are the tests to run: those whose names contain one of these; none: all.
	Only []string
	// Record keeps completions and requests as they stand in memory.
	Record bool
	// Patience is how long a completion may take; 0 is 10 seconds.
	Patience time.Duration
	// Begin, if not nil, is told of each test that begins, and Tell of each that is over.
	Begin func(name string)
	Tell  func(Row)

	marker []byte                                               // of tests of the masks
	bare   bool                                                 // the same: no masks
	tamper func(test string, e *end, w []uverbs.WC) []uverbs.WC // of tests of tests
}

// An Outcome is what came of a test.
type Outcome string

// The outcomes.
const (
	Passed      Outcome = "pass"
	Failed      Outcome = "FAIL"
	Unsupported Outcome = "not supported"
	Hung        Outcome = "HUNG"
	NotRun      Outcome = "not run"
)

// Row is a line of the table.
type Row struct {
	Group   string  `json:"group"`
	Test    string  `json:"test"`
	Outcome Outcome `json:"outcome"`
	// Detail says what was done, or what is wrong, or why it is not supported.
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds"`
}

// run is a run that is under way.
type run struct {
	Config
	recorder *recorder
	rate     atomic.Int64 // messages a second of the last stream, 0 if not known
}

// Result is what came of a run.
type Result struct {
	Rows []Row
	// Interrupted: not all tests ran, since the context ended.
	Interrupted bool
	recorder    *recorder
}

// Failed says whether something failed.
func (r *Result) Failed() bool { return r.count(Failed)+r.count(Hung) > 0 }

func (r *Result) count(o Outcome) int {
	n := 0
	for i := range r.Rows {
		if r.Rows[i].Outcome == o {
			n++
		}
	}
	return n
}

// grace is how long a test may take to notice that its time is over.
const grace = 10 * time.Second

// Run runs the tests, one after another. It returns a result also when ctx ends first.
// The error is of a run that cannot begin.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	r := &run{Config: c}
	if c.Record {
		r.recorder = newRecorder()
		r.recorder.bare = c.bare
	}
	var chosen []test
	for _, t := range tests() {
		if r.wanted(t) {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return nil, usage.Errorf("no test has %s in its name: -list names them", strings.Join(c.Only, " or "))
	}
	result := &Result{recorder: r.recorder}
	alone := "" // why there is no other end any more
	for _, t := range chosen {
		row := Row{Group: t.group, Test: t.name, Outcome: NotRun, Detail: alone}
		if ctx.Err() == nil && alone == "" {
			row = r.one(ctx, t)
		}
		if ctx.Err() != nil && row.Outcome == NotRun {
			result.Interrupted = true
			row.Detail = "interrupted"
		} else if row.Outcome == NotRun {
			alone = row.Detail // nobody is waited for again
		}
		result.Rows = append(result.Rows, row)
		if c.Tell != nil {
			c.Tell(row)
		}
	}
	if c.Peer != "" && alone == "" {
		// Also after an interruption: the other end would wait for ever.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), greetingPatience)
		defer cancel()
		if l, err := dial(ctx, c.Peer); err == nil {
			l.do(ctx, &Order{Do: doBye, Patience: 1})
			l.conn.Close()
		}
	}
	return result, nil
}

// Room tries to register as much memory as the two ends of a test do. Where too little may be
// registered, tests say nothing of the device.
func Room(d *uverbs.Device) error {
	pd, err := d.NewPD()
	if err != nil {
		return nil // that is the device's, and tests will say so
	}
	defer pd.Close()
	mem, err := uverbs.Alloc(2*memoryBytes, nil)
	if err != nil {
		return err
	}
	defer mem.Close()
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite)
	if err == nil {
		mr.Close()
	} else if errors.Is(err, syscall.ENOMEM) {
		return err
	}
	return nil
}

// wanted says whether a test was chosen.
func (r *run) wanted(t test) bool {
	for _, only := range r.Only {
		if strings.Contains(t.group+": "+t.name, only) {
			return true
		}
	}
	return len(r.Only) == 0
}

// Names are the names of all tests, in their order.
func Names() []string {
	var names []string
	for _, t := range tests() {
		names = append(names, t.group+": "+t.name)
	}
	return names
}

// end is an end of a test in this process.
func (r *run) end(test, name string) *end {
	e := &end{name: name, open: r.Open, marker: r.marker}
	if r.recorder != nil {
		e.record = func(e *end, w *uverbs.WC) { r.recorder.completion(test, e, w) }
	}
	if r.tamper != nil {
		e.tamper = func(e *end, w []uverbs.WC) []uverbs.WC { return r.tamper(test, e, w) }
	}
	return e
}

// one runs a test. One that does not come back is left behind with what it has open,
// which the end of the process gives back.
func (r *run) one(ctx context.Context, t test) Row {
	if r.Begin != nil {
		r.Begin(t.group + ": " + t.name)
	}
	limit := t.limit
	if limit == 0 {
		limit = time.Minute
	}
	b := &bench{run: r, test: t.group + ": " + t.name, patience: r.Patience, claims: t.claims}
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	done := make(chan error, 1)
	go func() {
		err := b.try(own, t)
		done <- err
	}()
	row := Row{Group: t.group, Test: t.name}
	select {
	case err := <-done:
		row.Outcome, row.Detail = b.judge(err)
	case <-own.Done():
		late := time.NewTimer(grace)
		select {
		case err := <-done:
			row.Outcome, row.Detail = b.judge(err)
		case <-late.C:
			row.Outcome, row.Detail = Hung, fmt.Sprintf("it does not come back, %v after its limit of %v: what it has open stays open", grace, limit)
		}
		late.Stop()
	}
	if ctx.Err() != nil && row.Outcome != Passed {
		row.Outcome, row.Detail = NotRun, "interrupted"
	}
	row.Seconds = time.Since(begin).Seconds()
	return row
}

// try runs the test and closes what it has made.
func (t *bench) try(ctx context.Context, test test) error {
	err := test.run(ctx, t)
	// Closing is not to be cut short: what is left behind is in the way of others.
	cerr := t.close(context.WithoutCancel(ctx))
	if err == nil {
		err = cerr
	} else if cerr != nil && !errors.Is(err, uverbs.ErrNotSupported) {
		err = fmt.Errorf("%w; and then: %w", err, cerr)
	}
	if err == nil && ctx.Err() != nil {
		err = errors.New("it took too long")
	}
	return err
}

// judge says what came of a test.
func (t *bench) judge(err error) (Outcome, string) {
	detail := strings.Join(t.notes, "; ")
	switch {
	case err == nil:
		return Passed, detail
	case errors.Is(err, errNoPeer):
		return NotRun, printable.Error(err)
	case errors.Is(err, uverbs.ErrNotSupported):
		text := printable.Error(err)
		for i, a := range t.made {
			if a != nil && a.Device != nil && t.claims != nil && t.claims(a.Device) {
				return Failed, fmt.Sprintf("the device of end %c says that it can, and then: %s", 'a'+rune(i), text)
			}
		}
		return Unsupported, text
	}
	return Failed, printable.Error(err)
}
