// Package poll is how to wait for completions: spinning or sleeping, on one
// completion queue or several.
//
//	w, err := poll.NewWaiter(poll.Adaptive{}, q)
//	if err != nil {
//		return err
//	}
//	defer w.Close()
//	var wcs [64]uverbs.WC
//	for {
//		n, err := w.Wait(ctx, wcs[:])
//		if err != nil {
//			return err
//		}
//		handle(wcs[:n])
//	}
//
// No order of arrivals makes a Wait sleep while a completion is in a queue: queues are
// armed, looked at once more, and only then the goroutine parks.
//
// # Which strategy
//
// [Adaptive] is for those who have no reason to take another: it spins while completions
// follow each other closely, and sleeps while they do not. It is no wiser than its past:
// the first completions after a pause are answered as late as with Event, and traffic
// whose gaps are about as long as a sleep costs is spun for or slept on by turns.
//
// [Event] always sleeps. It is for queues where a few microseconds more do not matter,
// and for more waiters than there are processors to spin on. Under load it is as good as
// the others, as a waiter that finds completions does not sleep.
//
// [Busy] answers soonest, each time, and burns a core whether something comes or not. It
// is right where that core has nothing else to do, ever: on a machine where goroutines
// or other programs need it, the poller is put off the processor in the middle of
// traffic, and its best answers are paid for with its worst.
//
// [Waiter.SetStrategy] changes it while the program runs, and [Waiter.Stats] tells what
// the one in use costs.
//
// A [Group] serves many queues with few goroutines that are bound to processors, and
// hands completions to a function. [ReadVectors] tells which processor the interrupt of
// a completion vector runs on, and a [Moderator] adapts how often a queue interrupts.
//
// # Concurrency
//
// One goroutine at a time calls Wait, and it is the poller of all the Waiter's
// queues. Close, SetStrategy and Stats may be called from any goroutine, as may the
// Close of a queue: a Wait that is under way then returns os.ErrClosed.
//
// # Errors
//
// Wait returns n > 0 or an error, never both and never neither. A Wait that
// was cancelled has consumed no completion. After a queue fails, its completions
// come first, then its error, and the error stays.
package poll
