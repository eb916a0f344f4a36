package perf

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// alone makes a loop that polls the only one that runs in this process, until the result is
// called, if the other side is another process. The other goroutines have their turn when the
// loop rests; with more than one processor for them each rest would wake a thread that looks for
// work, which takes a processor from this loop, or from the other side's: on an emulated machine
// that costs one message in fifty.
func (s *Side) alone(duration time.Duration) (restore func()) {
	c := &s.cfg
	if c.Wait != Busy || c.Together || !c.sends() && !c.receives() {
		return func() {}
	}
	processors, punctual := runtime.GOMAXPROCS(1), func() {}
	if !c.lossy() && (duration == 0 || c.Server != "" && !c.Bidirectional) {
		// Not for who has to hear that the other side is done: one hears by the monitor
		// thread.
		punctual = slacken()
	}
	return func() {
		punctual()
		runtime.GOMAXPROCS(processors)
	}
}

// lateness is how late timers of this process may come while a loop polls.
const lateness = 200 * time.Millisecond

// slacken lets the timers of all threads of this process come late, until the result is called.
// A loop that polls needs none, but the runtime's monitor thread has one every 10 ms, and each
// that has to wake a processor costs an emulated machine as much as six messages. The kernel has
// this done by those with CAP_SYS_NICE; of others the timers stay as they are.
func slacken() (restore func()) {
	threads, _ := os.ReadDir(ownThreads)
	if len(threads) == 0 {
		return func() {}
	}
	before, err := os.ReadFile(slackOf(threads[0]))
	if err != nil {
		return func() {}
	}
	setSlack(strconv.AppendInt(nil, int64(lateness), 10))
	return func() { setSlack(before) }
}

// setSlack sets by how many ns the timers of all threads may be late. Some threads may end
// meanwhile, and those that start have what the thread had that started them. Who may not do so
// hears no more of it than that nothing is faster.
func setSlack(ns []byte) {
	set := map[string]bool{}
	for again := true; again; {
		again = false
		threads, _ := os.ReadDir(ownThreads)
		for _, t := range threads {
			if file := slackOf(t); !set[file] {
				_ = os.WriteFile(file, ns, 0)
				set[file], again = true, true
			}
		}
	}
}

const ownThreads = "/proc/self/task"

// slackOf is the file of a thread's timer slack, which is not among those that the directory of
// its process has.
func slackOf(thread os.DirEntry) string {
	return filepath.Join("/proc", thread.Name(), "timerslack_ns")
}
