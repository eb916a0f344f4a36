package poll

// Strategy is how to wait: [Busy], [Event] or [Adaptive].
type Strategy interface {
	newWait(w *Waiter) (waiting, error)
}

// Busy polls without rest. It needs no event channel and answers within the time
// of one poll, at the price of one core per Waiter; the process needs another
// one for everything else, so NewWaiter refuses as many busy waiters as
// GOMAXPROCS. Lock the goroutine to its thread (runtime.LockOSThread): else the
// scheduler moves it between threads, and the kernel those between processors.
type Busy struct{}

// Event sleeps until the device reports a completion. The queues need
// CQOptions.Events.
//
// A report that gets lost wakes nobody, and nobody can know of it. No kernel is known to
// lose one; a program that has to survive that all the same gives Wait a context with a
// deadline. The Wait that reaches it returns what has come, or the context's error, and
// the next one sleeps and wakes as before.
type Event struct {
	// Solicited sleeps through completions that are not solicited. It is
	// for receive queues.
	Solicited bool
	// Thread parks the operating-system thread, not only the goroutine. It
	// answers sooner where the goroutine owns its thread
	// (runtime.LockOSThread), and costs a thread per Waiter.
	Thread bool
}
