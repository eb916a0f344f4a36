//go:build linux

package waiting

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// Both measurements of loops, briefly: every loop in every round, with every figure.
func TestLoops(t *testing.T) {
	c := LoopConfig{Rounds: 2, Slice: 2 * time.Millisecond}
	percent := debug.SetGCPercent(100)
	defer debug.SetGCPercent(percent)
	r, err := RunGC(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(loops) || r.Rows[1].ToFirst == nil || r.Rows[1].Verdict == "" || r.Interrupted {
		t.Errorf("%+v", r)
	}
	if now := debug.SetGCPercent(100); now != 100 {
		t.Errorf("it left GOGC=%d behind", now)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if r, err = RunPreempt(t.Context(), c, []string{self, "loops"}, nil); err != nil {
		t.Fatal(err)
	}
	want := len(loops) + len(pingpongs)
	if runtime.GOMAXPROCS(0) == 1 {
		want-- // a busy waiter is refused
	}
	if len(r.Rows) != want || len(r.Stands) != 4 || r.Interrupted {
		t.Errorf("%+v", r)
	}
	for _, row := range r.Rows {
		if row.With.N != 2 || row.With.Median <= 0 || row.Ratio == nil {
			t.Errorf("%+v", row)
		}
	}
}

// A machine may stand still for the whole of a slice: each loop goes round once even so.
func TestLoopsOnce(t *testing.T) {
	for _, l := range allLoops() {
		if runtime.GOMAXPROCS(0) == 1 && l.name == "busy" {
			continue // a busy waiter is refused
		}
		t.Run(l.name, func(t *testing.T) {
			r, err := l.open()
			if err != nil {
				t.Fatal(err)
			}
			if perSecond, err := r.run(1); err != nil || !(perSecond > 0) {
				t.Errorf("%v times a second, %v", perSecond, err)
			}
			if err := r.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLoopsInterrupted(t *testing.T) {
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := RunGC(ctx, LoopConfig{Rounds: 1000, Slice: time.Millisecond}, func(done, of int) {
		if done == len(loops) {
			cancel(enough)
		}
	})
	if !errors.Is(err, enough) || r == nil || !r.Interrupted || len(r.Rows) != len(loops) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLoopProtocol(t *testing.T) {
	var out strings.Builder
	served := make(chan error)
	go func() { // with its thread, which stays bound to a processor, this goroutine ends
		served <- ServeLoops(strings.NewReader("run spin 1000000\nrun hoop 1\nfly spin 1\nrun\nstands locked 1000000\n"), &out)
	}()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"ok ", `error no loop is "hoop"`, `error "fly spin 1" is nothing to do`, `error "run": `, "ok "} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d of %q, want %q", i, lines, want)
		}
	}
	if _, err := startLoops([]string{"/no/such/program"}, "asyncpreemptoff=0"); err == nil {
		t.Error("started nothing")
	}
}

func TestStand(t *testing.T) {
	s := newStand([]time.Duration{5 * time.Microsecond, time.Microsecond, 3 * time.Microsecond}, time.Second/2)
	if s != (stand{6, 18e-6, 3e-6}) {
		t.Errorf("%+v", s)
	}
	if s := newStand(nil, time.Second); s != (stand{}) {
		t.Errorf("%+v", s)
	}
}
