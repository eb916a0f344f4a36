package uverbstest_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that fails without failing the one that it is part of.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	said     []string
	failed   bool
	cleanups []func()
}

// run runs a test to its end and returns what it was told.
func run(t *testing.T, test func(t testing.TB)) []string {
	t.Helper()
	r := &recorder{TB: t}
	for _, f := range []func(){func() { test(r) }, r.clean} {
		done := make(chan struct{})
		go func() { // Fatal ends the goroutine
			defer close(done)
			f()
		}()
		<-done
	}
	return r.said
}

func (r *recorder) clean() {
	for len(r.cleanups) > 0 {
		f := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		f()
	}
}

func (r *recorder) say(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said, r.failed = append(r.said, strings.TrimSpace(s)), true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Helper()                   {}
func (r *recorder) Error(args ...any)         { r.say(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.say(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(args ...any)         { r.say(fmt.Sprintln(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.say(fmt.Sprintf(f, a...)); runtime.Goexit() }
