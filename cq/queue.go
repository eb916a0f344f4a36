package cq

// Queue is a completion queue as package poll sees it. *uverbs.CQ is one. One
// goroutine at a time calls its methods. Attach, detach and wake functions are called
// from any.
type Queue interface {
	// Poll takes up to len(wcs) completions without waiting. It never
	// returns n > 0 together with an error.
	Poll(wcs []WC) (n int, err error)

	// Arm asks for one event when the next completion arrives, or the next
	// solicited one. Completions that are already there raise none: poll
	// again after arming.
	Arm(solicitedOnly bool) error

	// TakeEvent consumes one event if there is one, without waiting.
	TakeEvent() (bool, error)

	// Attach makes wake the function that is called, from any goroutine,
	// when a waiter has to look again although the descriptor may stay
	// silent: the queue was closed, the device is gone. fd is the
	// descriptor that becomes readable with an event, or -1 when events
	// come by wake alone. It fails when the queue has no event channel, or
	// another waiter. Call detach when done.
	Attach(wake func()) (fd int, detach func(), err error)
}

// EventsFirst is what a Queue has that may want its events taken before it is polled for
// the completions that they report. A waiter takes those of other queues when it waits
// again: who is woken has something to do first.
type EventsFirst interface {
	EventsFirst() bool
}
