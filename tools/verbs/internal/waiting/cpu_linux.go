package waiting

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sleep puts the thread to sleep, in the kernel and not in the runtime, whose timers would take
// processor time of other threads.
func sleep(d time.Duration) error {
	left := unix.NsecToTimespec(int64(d))
	for {
		if err := unix.Nanosleep(&left, &left); err != unix.EINTR {
			return err
		}
	}
}

// pin binds the thread to one of the processors that it may use: the last of them, as the first one
// has more to do for others, as a rule; or the first.
func pin(first bool) error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	at, left := 0, all.Count()
	for cpu := 0; left > 0; cpu++ {
		if all.IsSet(cpu) {
			at, left = cpu, left-1
			if first {
				break
			}
		}
	}
	one.Set(at)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	return nil
}

// thread is the calling thread, for urge.
func thread() int { return unix.Gettid() }

// urge sends a thread of this process the signal with which the runtime interrupts goroutines.
func urge(tid int) error { return unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) }

// exactSleep asks for sleeps that do not end 50 us late, as they do by default.
func exactSleep() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_TIMERSLACK): %w", err)
	}
	return nil
}
