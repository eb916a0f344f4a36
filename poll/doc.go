// Package poll is how to wait for completions: spinning or sleeping, on one
// completion queue or several.
//
//	w, err := poll.NewWaiter(poll.Event{}, q)
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
// [Busy] answers soonest and burns a core. [Event] sleeps: the queue is armed,
// looked at once more, and the goroutine parks until the device reports. No
// order of arrivals makes a Wait sleep while a completion is in a queue.
//
// # Concurrency
//
// One goroutine at a time calls Wait, and it is the poller of all the Waiter's
// queues. Close may be called from any goroutine, as may the Close of a queue:
// a parked Wait then returns os.ErrClosed.
//
// # Errors
//
// Wait returns n > 0 or an error, never both and never neither. A Wait that
// was cancelled has consumed no completion. After a queue fails, its completions
// come first, then its error, and the error stays.
package poll
